/* documents.c - where the documents of a row begin and end (ops.def). */
#include "loops.h"

/* The place behind the last of the document that has place `first`. */
static int64_t end_of(const gm_tensor *segment, int64_t row, int64_t first, int64_t sequence)
{
    int64_t end = first + 1;
    while (end < sequence && ref_get(segment, row + end) == ref_get(segment, row + first)) end++;
    return end;
}

gm_status gm_ref_documents(gm_device *dev, const gm_call *call)
{
    const gm_tensor *segment = call->in[0], *spans = call->out[0];
    int64_t          n = segment->shape[1];
    (void)dev;
    for (int64_t b = 0; b < segment->shape[0]; b++)
        for (int64_t first = 0, end; first < n; first = end) {
            bool none = ref_get(segment, b * n + first) < 0;
            end = end_of(segment, b * n, first, n);
            for (int64_t i = first; i < end; i++) {
                int64_t at = 3 * (b * n + i);
                ref_set(spans, at, none ? 0 : (double)first);
                ref_set(spans, at + 1, none ? 0 : (double)end);
                ref_set(spans, at + 2, none ? 0 : (double)(i - first));
            }
        }
    return GM_OK;
}
