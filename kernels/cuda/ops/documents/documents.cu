/* documents.cu - where the documents of a row begin and end. A block has a row, and each thread one piece of it. The
 * threads tell each other where the last document begins that begins in their piece, and where the first does; from
 * these each thread knows where the document that reaches into its piece began, and where the one that reaches out of
 * it ends. A row is short beside what the layers do with it: reads are not arranged for bandwidth. */
#include "../../common/kernel.cuh"
#include "documents_args.h"

GM_DEVICE int64_t gm_documents_number(const gm_documents_args *a, int64_t i)
{
    const int64_t at = gm_block_x * a->segment_stride[0] + i * a->segment_stride[1];
    return a->narrow ? ((const int32_t *)a->segment)[at] : ((const int64_t *)a->segment)[at];
}

GM_DEVICE bool gm_documents_begins(const gm_documents_args *a, int64_t i)
{
    return i == 0 || gm_documents_number(a, i) != gm_documents_number(a, i - 1);
}

GM_DEVICE int64_t *gm_documents_at(const gm_documents_args *a, int64_t i, int which)
{
    const int64_t *step = a->spans_stride;
    return a->spans + gm_block_x * step[0] + i * step[1] + which * step[2];
}

GM_KERNEL(gm_documents, gm_documents_args)
{
    GM_SHARED(int64_t, last);
    int64_t *next = last + gm_block_size; /* of each piece: the last and the first begin; -1 and n: there is none */
    const int64_t each = (a.n + gm_block_size - 1) / gm_block_size, begin = gm_thread * each;
    const int64_t end = begin + each < a.n ? begin + each : a.n;
    int64_t       first = -1, before = a.n;
    for (int64_t i = begin; i < end; i++)
        if (gm_documents_begins(&a, i)) {
            first = i;
            before = before < i ? before : i;
        }
    last[gm_thread] = first;
    next[gm_thread] = before;
    GM_SYNC();
    first = -1;
    before = a.n;
    for (int k = 0; k < gm_thread; k++) first = last[k] > first ? last[k] : first;
    for (int k = gm_thread + 1; k < gm_block_size; k++) before = next[k] < before ? next[k] : before;
    for (int64_t i = begin; i < end; i++) {
        if (gm_documents_begins(&a, i)) first = i;
        const bool none = gm_documents_number(&a, i) < 0;
        *gm_documents_at(&a, i, 0) = none ? 0 : first;
        *gm_documents_at(&a, i, 2) = none ? 0 : i - first;
    }
    for (int64_t i = end - 1; i >= begin; i--) {
        *gm_documents_at(&a, i, 1) = gm_documents_number(&a, i) < 0 ? 0 : before;
        if (gm_documents_begins(&a, i)) before = i;
    }
}
