/* pages.c - keys and values in pages (ops.def): rows go to their places, and few queries attend to the pages of their
 * row. Its time is that of reading the pages once.
 *
 * The unit of work is some query heads of one key head of one row of the batch. It walks over the keys in blocks of
 * PAGES_KEYS, which lie in one page or several (runs). The running maximum and sum of each query make the whole row of
 * scores needless (Milakov, Gimelshein 2018). Each query is computed by one thread in the order of the keys, so that
 * the bits depend neither on the number of threads nor on how heads are shared out. Pages of 16 bits are widened a run
 * at a time, in scratch. Values are fetched while scores are computed, the keys of the next block while values are
 * added. */
#include "../pages.h"

#define PAGES_KEYS 64                            /* of a block: rows of 64 numbers of f32 fill the first-level cache */
#define PAGES_ROW  (PAGES_KEYS + CPU_VECTOR / 4) /* scores of a query, with lanes behind the last one */

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

/* Keys `first` .. `first` + PAGES_KEYS of row r, which has `count`, and the `rows` queries of a key head that a unit
 * has. */
typedef struct pages_block {
    int64_t r, head, rows, first, count;
} pages_block;

/* The keys of a block that lie in one page, from key `at` of the block on. */
typedef struct pages_run {
    int64_t     at, n, next_n;
    const char *k, *v, *next; /* next: the next_n keys that stand there in the next block */
} pages_run;

/* Keys of a block. */
typedef struct pages_span {
    int64_t begin, end; /* none where begin >= end */
} pages_span;

/* The first of a row's `count` keys that one of its queries sees. */
static int64_t pages_first(const pages_job *w, int64_t count)
{
    int64_t first = count - w->queries + 1 - w->window;
    return w->window && first > 0 ? first : 0;
}

/* How many keys the block has. */
static int64_t pages_keys(const pages_block *b)
{
    return b->count - b->first < PAGES_KEYS ? b->count - b->first : PAGES_KEYS;
}

/* What a query sees of a block. */
static pages_span pages_seen(const pages_job *w, const pages_block *b, int64_t row)
{
    int64_t n = pages_keys(b), end = b->count - w->queries + row % w->queries + 1 - b->first;
    int64_t begin = w->window && end > w->window ? end - w->window : 0;
    return (pages_span){begin, end < n ? end : n};
}

static pages_span pages_part_of(pages_span s, const pages_run *run)
{
    return (pages_span){s.begin > run->at ? s.begin : run->at, s.end < run->at + run->n ? s.end : run->at + run->n};
}

/* Where the row has position p. */
static const char *pages_at(const pages_job *w, const pages_block *b, const char *pool, const int64_t *stride,
                            int64_t p)
{
    const int64_t page = gm_pages_index(&w->g, b->r, p / w->g.page), size = (int64_t)gm_dtype_size(w->dtype);
    return pool + (page * stride[0] + b->head * stride[1] + p % w->g.page * stride[2]) * size;
}

/* How many keys from position p on lie in its page: at most n, and those that the row has. */
static int64_t pages_near(const pages_job *w, const pages_block *b, int64_t p, int64_t n)
{
    int64_t near = w->g.page - p % w->g.page, left = b->count - p;
    if (left < near) near = left;
    return n < near ? n : near;
}

/* The run that begins at run->at: false where the block ends. */
static bool pages_next(const pages_job *w, const pages_block *b, pages_run *run)
{
    const int64_t p = b->first + run->at, later = p + PAGES_KEYS;
    if (run->at >= pages_keys(b)) return false;
    run->n = pages_near(w, b, p, pages_keys(b) - run->at);
    run->k = pages_at(w, b, w->k, w->k_stride, p);
    run->v = pages_at(w, b, w->v, w->v_stride, p);
    run->next_n = later < b->count ? pages_near(w, b, later, run->n) : 0;
    if (run->next_n) run->next = pages_at(w, b, w->k, w->k_stride, later);
    return true;
}

/* Asks for n rows of a page: pages lie anywhere, and are too short for the processor to see what comes. Each query of a
 * unit asks for its share, so that there are no more lines under way than there is room for. */
static void pages_fetch(const pages_job *w, const pages_block *b, int64_t query, const char *from,
                        const int64_t *stride, int64_t n)
{
    const int64_t size = (int64_t)gm_dtype_size(w->dtype), bytes = w->size * size, row = stride[2] * size;
    for (int64_t j = n * query / b->rows; j < n * (query + 1) / b->rows; j++)
        for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + j * row + i, 0, 2);
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

static gm_status pages_whole(gm_device *dev, pages_job *w)
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
    return cpu_home(dev, o, call->out[0], pages_whole(dev, &w));
}
