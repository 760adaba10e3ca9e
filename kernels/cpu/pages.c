/* pages.c - keys and values in pages (ops.def): rows go to their places, and few queries attend to the pages of their
 * row. Its time is that of reading the pages once.
 *
 * The unit of work is some query heads of one key head of one row of the batch. It walks over the pages in blocks of up
 * to PAGES_KEYS keys. The running maximum and sum of each query make the whole row of scores needless (Milakov,
 * Gimelshein 2018). Each query is computed by one thread in the order of the keys, so that the bits depend neither on
 * the number of threads nor on how heads are shared out. Pages of 16 bits are widened a block at a time, in scratch. */
#include "../pages.h"

#define PAGES_KEYS 64 /* of a block: rows of 64 numbers of f32 are half of the first-level cache with their values */

typedef struct pages_job {
    gm_pages       g;
    int64_t        batch, queries, heads, key_heads, size;
    int64_t        parts;  /* units of a key head; each has heads / key_heads / parts heads */
    int64_t        window; /* 0: a query sees all keys up to its own */
    double         scale, softcap;
    gm_dtype       dtype;
    cast_row       widen, round; /* NULL: the elements are T already */
    attention_view q, o;
    const char    *k, *v;
    int64_t        k_stride[3], v_stride[3]; /* page, head, place */
    char          *scratch;
    size_t         scratch_step; /* bytes of a thread */
} pages_job;

/* The first of a row's `count` keys that one of its queries sees. */
static int64_t pages_first(const pages_job *w, int64_t count)
{
    int64_t first = count - w->queries + 1 - w->window;
    return w->window && first > 0 ? first : 0;
}

#define AS 32
#include "as.h"
#include "pages_t.h"
#define AS 64
#include "as.h"
#include "pages_t.h"
#define AS 0
#include "as.h"

/* ---- writing ---- */

typedef struct pages_write_job {
    gm_pages         g;
    const gm_tensor *x, *pool;
} pages_write_job;

/* Rows (b, position), each with all heads. */
static void pages_write_part(void *context, int64_t begin, int64_t end, int thread)
{
    const pages_write_job *w = context;
    const gm_tensor       *x = w->x, *pool = w->pool;
    size_t                 size = gm_dtype_size(x->dtype), bytes = size * (size_t)x->shape[3];
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        int64_t r = u / x->shape[1], i = u % x->shape[1], p = gm_pages_count(&w->g, r) - x->shape[1] + i;
        if (p < 0) continue;
        int64_t     page = gm_pages_index(&w->g, r, p / w->g.page);
        const char *from = (const char *)gm_tensor_data(x) + (r * x->stride[0] + i * x->stride[1]) * (int64_t)size;
        int64_t     at = page * pool->stride[0] + p % w->g.page * pool->stride[2];
        char       *to = (char *)gm_tensor_data(pool) + at * (int64_t)size;
        for (int64_t h = 0; h < x->shape[2]; h++)
            memcpy(to + h * pool->stride[1] * (int64_t)size, from + h * x->stride[2] * (int64_t)size, bytes);
    }
}

static gm_status cpu_pages_write(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0];
    pages_write_job  w = {gm_pages_of(call), x, call->out[0]};
    GM_TRY(gm_pages_check(call));
    if (gm_tensor_numel(x) == 0) return GM_OK;
    int64_t bytes = 2 * x->shape[2] * x->shape[3] * (int64_t)gm_dtype_size(x->dtype);
    cpu_parallel(dev, x->shape[0] * x->shape[1], bytes, pages_write_part, &w);
    return GM_OK;
}

/* ---- attention ---- */

static pages_job pages_job_of(const gm_call *call)
{
    const gm_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2];
    double           scale = call->attrs->scale;
    pages_job        w = {
               .g = gm_pages_of(call),
               .batch = q->shape[0],
               .queries = q->shape[1],
               .heads = q->shape[2],
               .key_heads = k->shape[1],
               .size = q->shape[3],
               .window = call->attrs->window,
               .scale = scale > 0 ? scale : 1 / sqrt((double)q->shape[3]),
               .softcap = call->attrs->softcap,
               .dtype = q->dtype,
               .q = attention_view_of(q),
               .k = gm_tensor_data(k),
               .v = gm_tensor_data(v),
    };
    for (int d = 0; d < 3; d++) {
        w.k_stride[d] = k->stride[d];
        w.v_stride[d] = v->stride[d];
    }
    if (gm_dtype_is_narrow(q->dtype)) {
        w.widen = find_cast(q->dtype, GM_F32);
        w.round = find_cast(GM_F32, q->dtype);
    }
    return w;
}

/* Bytes that a unit reads, on average. */
static int64_t pages_bytes(const pages_job *w)
{
    int64_t keys = 0;
    for (int64_t r = 0; r < w->batch; r++) {
        int64_t count = gm_pages_count(&w->g, r);
        keys += count - pages_first(w, count);
    }
    return 2 * keys / w->batch * w->size * (int64_t)gm_dtype_size(w->dtype);
}

static gm_status pages_run(gm_device *dev, pages_job *w)
{
    gm_block *block;
    int64_t group = w->heads / w->key_heads, units = w->batch * w->key_heads, threads = gm_threads_count(dev->threads);
    w->parts = units % threads && units < 8 * threads ? group : 1;
    units *= w->parts;
    int    parts = gm_parallel_parts(dev->threads, units, 1);
    bool   wide = w->dtype == GM_F64;
    size_t elements = wide ? pages_scratch_f64(w) : pages_scratch_f32(w);
    w->scratch_step = (elements * (wide ? sizeof(double) : sizeof(float)) + 63) & ~(size_t)63;
    GM_TRY(cpu_scratch(dev, w->scratch_step * (size_t)parts, &w->scratch, &block));
    gemm_parallel(dev->threads, units, pages_bytes(w) * w->queries, wide ? pages_part_f64 : pages_part_f32, w);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status cpu_attention_paged(gm_device *dev, const gm_call *call)
{
    gm_tensor *o = NULL;
    pages_job  w = pages_job_of(call);
    GM_TRY(gm_pages_check(call));
    if (gm_tensor_numel(call->in[0]) == 0) return GM_OK;
    GM_TRY(attention_output(dev, call->out[0], false, &o));
    w.o = attention_view_of(o);
    return gemm_home(dev, o, call->out[0], pages_run(dev, &w));
}
