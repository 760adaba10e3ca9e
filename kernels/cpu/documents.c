/* documents.c - where the documents of a row begin and end (ops.def). A thread has whole rows. Spans are written when a
 * document has ended. */

typedef struct documents_job {
    const gm_tensor *segment, *spans;
} documents_job;

static inline int64_t documents_number(const gm_tensor *t, int64_t b, int64_t i)
{
    int64_t at = b * t->stride[0] + i * t->stride[1];
    return t->dtype == GM_I32 ? ((const int32_t *)gm_tensor_data(t))[at] : ((const int64_t *)gm_tensor_data(t))[at];
}

/* Places [first, end) of row b are a document, or none. */
static void documents_put(const gm_tensor *spans, int64_t b, int64_t first, int64_t end, bool none)
{
    int64_t *to = (int64_t *)gm_tensor_data(spans) + b * spans->stride[0], step = spans->stride[2];
    for (int64_t i = first; i < end; i++) {
        int64_t *at = to + i * spans->stride[1];
        at[0] = none ? 0 : first;
        at[step] = none ? 0 : end;
        at[2 * step] = none ? 0 : i - first;
    }
}

static void documents_part(void *context, int64_t begin, int64_t last, int thread)
{
    const documents_job *j = context;
    int64_t              n = j->segment->shape[1];
    (void)thread;
    for (int64_t b = begin; b < last; b++)
        for (int64_t first = 0, i = 1; first < n; i++) {
            int64_t number = documents_number(j->segment, b, first);
            if (i < n && documents_number(j->segment, b, i) == number) continue;
            documents_put(j->spans, b, first, i, number < 0);
            first = i;
        }
}

static gm_status cpu_documents(gm_device *dev, const gm_call *call)
{
    documents_job j = {call->in[0], call->out[0]};
    cpu_parallel(dev, j.segment->shape[0], 32 * j.segment->shape[1], documents_part, &j);
    return GM_OK;
}
