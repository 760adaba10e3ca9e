/* attention.c - scaled dot-product attention and its gradient in blocks. The whole matrix of scores never exists:
 * FlashAttention-2 (Dao, "FlashAttention-2: Faster attention with better parallelism and work partitioning", 2023) on
 * the register tiles of gemm.c.
 *
 * The unit of work is one key head of one sample, or, where the gradient of a bias is wanted, of all samples that share
 * the bias. A thread packs its keys and values once. If there are fewer units
 * than threads, each unit is cut into chunks of blocks. One thread computes each element of an output and adds in the
 * order of blocks, so that the bits depend neither on scheduling nor on the number of threads. Keys that the mask hides
 * are packed as zeros, because their values may be NaN. attention_amx.c does the same for bf16 in tiles of AMX. */

#include "../key_mask.h"
#include "../drop.h"

/* What both directions read. Strides in elements; the last dimension of every tensor has stride 1. */
typedef struct attention_view {
    char   *data;
    int64_t b, s, h;
} attention_view;

typedef struct attention_tiles attention_tiles; /* attention_amx.h */

typedef struct attention_job {
    int64_t       batch, heads, key_heads, queries, keys, size;
    int64_t       shift, window; /* query i sees keys up to i + shift, or the last `window` of them */
    bool          causal, accumulate;
    bool          pairs; /* f32 only: q, k, v, o, g and their gradients are bf16, multiplied as it is (gemm_pairs.c) */
    int64_t       bytes; /* of a number of these */
    int64_t       ahead; /* bytes of a row that are fetched before its turn; 0: rows of one line, whose neighbours are
                             rows of other heads: to fetch them costs more */
    double        scale, keep; /* keep: of dropout */
    double        softcap;
    gm_drop       drop;
    uint64_t      step;
    const gm_box *box;
    const gm_tensor *mask;   /* NULL: no key is hidden */
    const gm_tensor *limits; /* NULL: none; they count keys from `first` on */
    int64_t          first;
    const gm_tensor *bias;  /* (n, heads, queries, keys); NULL: none */
    gm_tensor       *dbias; /* gradient: like bias, which is added to; NULL: not wanted */
    int64_t          row;   /* sample b takes bias (row + b) % n */
    int64_t          rows;  /* a unit has the samples r, r + rows, ..: all that share a bias where dbias is wanted */
    attention_view   q, k, v, o, g, dq, dk, dv;
    char            *lse;
    int64_t          lse_stride[3];
    int64_t          chunks;                  /* pieces of a unit */
    bool             want_keys, want_queries; /* gradient: of k and v, of q */
    bool             by_key;                  /* gradient: the chunks are of keys, not of queries */
    char            *scratch;
    size_t           scratch_step; /* bytes of a thread */

    const attention_tiles *tiles; /* not NULL, with pairs: by tiles of AMX, or their emulation (attention_amx.c) */
} attention_job;

#define ATTENTION_AHEAD 6 /* rows */
#if CPU_VECTOR == 64
#define ATTENTION_KEYS   (8 * GEMM_ROWS) /* forward: keys of a block */
#define GRADIENT_QUERIES (4 * GEMM_ROWS) /* backward: a block of queries */
#else
#define ATTENTION_KEYS   (16 * GEMM_ROWS)
#define GRADIENT_QUERIES (8 * GEMM_ROWS)
#endif
#define ATTENTION_LINES \
    (CPU_VECTOR == 64 ? 24 : CPU_VECTOR == 32 ? 12 : 0) /* cache lines of the next unit for each tile */
#define ATTENTION_SOON   (128 << 10) /* bytes of a unit, at most, that come near while the one before is in work */
#define ATTENTION_PANELS 4           /* forward: panels of queries that share a block of keys */
#define GRADIENT_PANELS  4           /* backward: panels of keys in a block */

/* Block n belongs to this chunk: there and back, so that causal work is even. */
static inline bool attention_owns(int64_t block, int64_t chunks, int64_t chunk)
{
    int64_t r = block % (2 * chunks);
    return (r < chunks ? r : 2 * chunks - 1 - r) == chunk;
}

static inline int64_t attention_within(const attention_job *w, int64_t key)
{
    return key < 0 ? 0 : key < w->keys ? key : w->keys;
}

/* The first key of this call that query i may see (which 0), or the one behind the last (1), as limits say. */
static inline int64_t attention_limit(const attention_job *w, int64_t b, int64_t i, int which)
{
    const int64_t *at = gm_tensor_data(w->limits), *step = w->limits->stride;
    return attention_within(w, at[b * step[0] + i * step[1] + which * step[2]] - w->first);
}

/* Query i of sample b sees no key from here on. */
static inline int64_t attention_seen(const attention_job *w, int64_t b, int64_t i)
{
    int64_t seen = w->causal ? attention_within(w, i + 1 + w->shift) : w->keys;
    int64_t limit = w->limits ? attention_limit(w, b, i, 1) : seen;
    return limit < seen ? limit : seen;
}

/* Query i of sample b sees no key before this one. */
static inline int64_t attention_from(const attention_job *w, int64_t b, int64_t i)
{
    int64_t from = w->window ? attention_within(w, i + 1 + w->shift - w->window) : 0;
    int64_t limit = w->limits ? attention_limit(w, b, i, 0) : from;
    return limit > from ? limit : from;
}

/* Of some queries: keys outside of [from, seen) none of them sees, and keys in [all_from, all_seen) all of them see. */
typedef struct attention_span {
    int64_t from, seen, all_from, all_seen;
} attention_span;

static inline attention_span attention_span_of(const attention_job *w, int64_t b, int64_t i, int64_t queries)
{
    int64_t last = i + queries - 1;
    if (!w->limits) /* both grow with i */
        return (attention_span){attention_from(w, b, i), attention_seen(w, b, last), attention_from(w, b, last),
                                attention_seen(w, b, i)};
    attention_span a = {w->keys, 0, 0, w->keys};
    for (; i <= last; i++) {
        int64_t from = attention_from(w, b, i), seen = attention_seen(w, b, i);
        a.all_from = from > a.all_from ? from : a.all_from;
        a.all_seen = seen < a.all_seen ? seen : a.all_seen;
        if (from >= seen) continue; /* it sees nothing */
        a.from = from < a.from ? from : a.from;
        a.seen = seen > a.seen ? seen : a.seen;
    }
    if (a.from > a.seen) a.from = a.seen;
    return a;
}

/* The place of (sample, head, query, key) in a tensor like bias. */
static inline int64_t attention_bias_at(const attention_job *w, const gm_tensor *t, int64_t b, int64_t head, int64_t i,
                                        int64_t j)
{
    const int64_t *step = t->stride;
    return (w->row + b) % t->shape[0] * step[0] + head * step[1] + i * step[2] + j * step[3];
}

static inline bool attention_hidden(const attention_job *w, int64_t b, int64_t j)
{
    if (!w->mask) return false;
    const uint8_t *m = gm_tensor_data(w->mask);
    return m[b * w->mask->stride[0] + j * w->mask->stride[1]] == 0;
}

/* ---- memory of the unit that comes next ---- */

/* Rows that will be read or written soon: each tile brings some of their lines into the second-level cache. A head has
 * rows far apart, which no prefetcher finds, and copying them would wait for memory while nothing is multiplied. */
typedef struct attention_soon {
    struct {
        const char *row; /* the first one, where its line begins */
        int64_t     rows, step, bytes;
    } of[8];
    int64_t count, now, at, line; /* tensors; the next line is at `line` bytes of row `at` of tensor `now` */
} attention_soon;

/* Adds `rows` rows of head h of sample b. */
static inline void attention_soon_add(attention_soon *s, const attention_job *w, const attention_view *t, int64_t rows,
                                      int64_t b, int64_t h)
{
    const char   *row = t->data + (b * t->b + h * t->h) * w->bytes;
    const int64_t within = (int64_t)((uintptr_t)row % 64);
    s->of[s->count].row = row - within;
    s->of[s->count].rows = rows;
    s->of[s->count].step = t->s * w->bytes;
    s->of[s->count++].bytes = within + w->size * w->bytes;
}

/* What unit u will write and unit u + 1, if it is among those before `end`, will read; nothing where this is too much
 * for the cache. */
static inline attention_soon attention_soon_of(const attention_job *w, int64_t u, int64_t end, bool forward)
{
    attention_soon s = {.count = 0};
    const int64_t  group = w->heads / w->key_heads, rows = forward ? w->queries + w->keys : w->queries + 2 * w->keys;
    if (ATTENTION_LINES == 0 || w->chunks > 1 || rows * w->size * w->bytes > ATTENTION_SOON / 2) return s;
    for (int64_t i = 0; i < 2 && u + i < end; i++) {
        const int64_t b = (u + i) / w->key_heads, h = (u + i) % w->key_heads;
        if (i == 0 && forward) attention_soon_add(&s, w, &w->o, w->queries, b, h * group);
        if (i == 0 && !forward && w->want_keys) attention_soon_add(&s, w, &w->dk, w->keys, b, h);
        if (i == 0 && !forward && w->want_keys) attention_soon_add(&s, w, &w->dv, w->keys, b, h);
        if (i == 0 && !forward && w->want_queries) attention_soon_add(&s, w, &w->dq, w->queries, b, h * group);
        if (i == 0) continue;
        attention_soon_add(&s, w, &w->k, w->keys, b, h);
        attention_soon_add(&s, w, &w->v, w->keys, b, h);
        attention_soon_add(&s, w, &w->q, w->queries, b, h * group);
        if (!forward) attention_soon_add(&s, w, &w->g, w->queries, b, h * group);
        if (!forward) attention_soon_add(&s, w, &w->o, w->queries, b, h * group);
    }
    return s;
}

/* The next `lines` of them. */
static inline void attention_bring(attention_soon *s, int lines)
{
    for (int i = 0; i < lines && s->now < s->count; i++) {
        __builtin_prefetch(s->of[s->now].row + s->at * s->of[s->now].step + s->line, 0, 2);
        if (++s->at < s->of[s->now].rows) continue;
        s->at = 0;
        s->line += 64;
        if (s->line < s->of[s->now].bytes) continue;
        s->line = 0;
        s->now++;
    }
}

/* ---- dropout (drop.h) ---- */

static inline uint64_t attention_index(const attention_job *w, int64_t b, int64_t head, int64_t i, int64_t j)
{
    const int64_t shape[4] = {w->batch, w->heads, w->queries, w->keys}, at[4] = {b, head, i, j};
    return gm_weight_index(w->box, shape, at);
}

/* Blocks from query to query. */
static inline uint64_t attention_row_blocks(const attention_job *w)
{
    return gm_weight_row(w->box, w->keys) / GM_DROP_EACH;
}

/* The keys of the rounds in vectors, and of lane i the number `each` i. */
CPU_INLINE vu64 attention_draw(const attention_job *w, uint64_t each, vu64 *round_keys)
{
    vu64 lanes = {0};
    for (int i = 0; i < 2 * GM_DROP_ROUNDS; i++) round_keys[i] = (vu64){0} + w->drop.round_keys[i];
    for (int i = 0; i < BLOCK_LANES; i++) lanes[i] = each * (uint64_t)i;
    return lanes;
}

#define DROP_VECTOR (BLOCK_LANES * GM_DROP_EACH) /* numbers of a vector of blocks */

/* The numbers of n keys from `index` on, for each of `rows` queries: that of (r, j) is what is returned at
 * [r * pitch + j]. out: one row more than these; pitch: a multiple of DROP_VECTOR, at least n + 7. Low halves come
 * first, as these CPUs store them. */
static const uint16_t *attention_numbers(const attention_job *w, uint64_t index, int64_t rows, int64_t n, uint16_t *out,
                                         int64_t pitch)
{
    vu64           round_keys[2 * GM_DROP_ROUNDS], lanes = attention_draw(w, 1, round_keys);
    const uint64_t skip = index % GM_DROP_EACH, row = attention_row_blocks(w);
    const int64_t  vectors = ((int64_t)skip + n + DROP_VECTOR - 1) / DROP_VECTOR; /* of a query */
    for (int64_t r = 0, part = 0; r < rows;) {
        philox_lanes c;
        uint16_t    *to[CHAINS];
        for (int k = 0; k < CHAINS; k++) {
            to[k] = out + r * pitch + part * DROP_VECTOR;
            c.w[0][k] = lanes + (index / GM_DROP_EACH + (uint64_t)r * row + (uint64_t)(part * BLOCK_LANES));
            if (r < rows && ++part == vectors) r++, part = 0;
        }
        philox_vectors(round_keys, GM_DROP_ROUNDS, w->step, &c);
        for (int k = 0; k < CHAINS; k++)
            store_words(c.w[0][k], c.w[1][k], c.w[2][k], c.w[3][k], (uint32_t *)(void *)to[k]);
    }
    return out + skip;
}

#define AS 32
#include "as.h"
#include "attention_t.h"
#include "attention_grad_t.h"
#if GEMM_PAIRS
#include "attention_amx.h"
#include "attention_amx.c"
#include "attention_amx_grad.c"
#endif
#undef GEMM_COLUMNS
#define AS 64
#include "as.h"
#include "attention_t.h"
#include "attention_grad_t.h"
#undef GEMM_COLUMNS
#define AS 0
#include "as.h"

static attention_view attention_view_of(const gm_tensor *t)
{
    if (!t) return (attention_view){0};
    return (attention_view){.data = gm_tensor_data(t), .b = t->stride[0], .s = t->stride[1], .h = t->stride[2]};
}

/* Is this attention of bf16 that is multiplied as it is? A bias is added in f32, with all else in f32 (narrow.c). */
static bool attention_takes_pairs(const gm_call *call)
{
    const bool forward = call->op == GM_OP_attention;
    return (forward || call->op == GM_OP_attention_grad) && gemm_takes_pairs(call) && !call->in[forward ? 5 : 8];
}

static attention_job attention_job_of(const gm_device *dev, const gm_call *call)
{
    const gm_tensor *q = call->in[0], *k = call->in[1];
    const gm_attrs  *at = call->attrs;
    const gm_drop    drop = gm_drop_of(at->stream.key, at->p);
    const int64_t    row = q->shape[3] * (int64_t)gm_dtype_size(q->dtype);
    return (attention_job){
        .batch = q->shape[0],
        .queries = q->shape[1],
        .heads = q->shape[2],
        .size = q->shape[3],
        .keys = k->shape[1],
        .key_heads = k->shape[2],
        .shift = k->shape[1] - q->shape[1] + at->behind,
        .window = at->window,
        .causal = at->causal,
        .softcap = at->softcap,
        .accumulate = at->accumulate,
        .pairs = attention_takes_pairs(call),
        .bytes = (int64_t)gm_dtype_size(q->dtype),
        .ahead = row > 64 ? row : 0,
        .scale = at->scale > 0 ? at->scale : 1 / sqrt((double)q->shape[3]),
        .keep = gm_drop_keep(drop.threshold),
        .drop = drop,
        .step = at->stream.step < 0 ? dev->step.rng_step : (uint64_t)at->stream.step,
        .box = &at->box,
        .mask = call->in[3],
        .limits = call->in[call->op == GM_OP_attention ? 4 : 7],
        .first = at->first,
        .bias = call->in[call->op == GM_OP_attention ? 5 : 8],
        .row = at->row,
        .rows = q->shape[0],
        .q = attention_view_of(q),
        .k = attention_view_of(k),
        .v = attention_view_of(call->in[2]),
    };
}

static void attention_lse(attention_job *w, const gm_tensor *lse)
{
    w->lse = gm_tensor_data(lse);
    for (int d = 0; d < 3; d++) w->lse_stride[d] = lse->stride[d];
}

/* Runs the job over units x chunks with scratch of that many elements for each thread. */
static gm_status attention_run(gm_device *dev, attention_job *w, gm_dtype dtype, int64_t elements, gm_job job)
{
    gm_block *block;
    int64_t   units = w->rows * w->key_heads * w->chunks;
    if (units == 0 || w->heads == 0 || w->batch == 0) return GM_OK;
    int parts = gm_parallel_parts(dev->threads, units, 1);
    w->scratch_step = ((size_t)elements * gm_dtype_size(dtype) + 63) & ~(size_t)63;
    GM_TRY(cpu_scratch(dev, w->scratch_step * (size_t)parts, &w->scratch, &block));
    int64_t seen = w->window && w->window < w->keys ? w->window : w->keys;
    double  pairs = (double)w->queries * (double)seen * (double)(w->heads / w->key_heads);
    double  cost = pairs * (double)(w->size + 16) / 8 / (double)w->chunks * (double)w->batch / (double)w->rows;
    gemm_parallel(dev->threads, units, cost < 1e15 ? (int64_t)cost : (int64_t)1e15, job, w);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

/* An output whose last stride is not 1 is computed elsewhere and copied. */
static gm_status attention_output(gm_device *dev, gm_tensor *t, bool accumulate, gm_tensor **to)
{
    *to = NULL;
    if (t->shape[3] > 1 && t->stride[3] != 1) return cpu_compact(dev, t->dtype, t, accumulate, to);
    gm_tensor_retain(*to = t);
    return GM_OK;
}

/* The work of one thread forward, by the job's way, and the numbers of its scratch. */
static gm_job attention_way(const attention_job *w, gm_dtype dtype, int64_t *elements)
{
#if GEMM_PAIRS
    if (w->tiles) {
        *elements = tiled_scratch(w);
        return tiled_part;
    }
#endif
    *elements = dtype == GM_F32 ? attention_scratch_f32(w) : attention_scratch_f64(w);
    return dtype == GM_F32 ? attention_part_f32 : attention_part_f64;
}

/* tiles: NULL, or what multiplies pairs. */
static gm_status attention_by(gm_device *dev, const gm_call *call, const attention_tiles *tiles)
{
    gm_tensor    *o = NULL;
    attention_job w = attention_job_of(dev, call);
    gm_dtype      dtype = gm_dtype_wide(call->in[0]->dtype);
    int64_t       units = w.batch * w.key_heads, threads = gm_threads_count(dev->threads), elements;
    GM_TRY(gm_key_mask_check(call));
    GM_TRY(attention_output(dev, call->out[0], w.accumulate, &o));
    w.o = attention_view_of(o);
    attention_lse(&w, call->out[1]);
    w.chunks = units % threads && units < 8 * threads ? threads : 1;
    w.tiles = tiles;
    gm_job job = attention_way(&w, dtype, &elements);
    return cpu_home(dev, o, call->out[0], attention_run(dev, &w, dtype, elements, job));
}

static gm_status cpu_attention(gm_device *dev, const gm_call *call) { return attention_by(dev, call, NULL); }

/* As attention_way, of the gradient. */
static gm_job attention_grad_way(const attention_job *w, gm_dtype dtype, int64_t *elements)
{
#if GEMM_PAIRS
    if (w->tiles) {
        *elements = tiled_grad_scratch(w);
        return tiled_grad_part;
    }
#endif
    *elements = dtype == GM_F32 ? attention_grad_scratch_f32(w) : attention_grad_scratch_f64(w);
    return dtype == GM_F32 ? attention_grad_part_f32 : attention_grad_part_f64;
}

/* One pass where every thread has a unit of its own; else one over chunks of keys for dk and dv and one over
 * chunks of queries for dq, which costs the scores twice. */
static gm_status attention_grad_passes(gm_device *dev, attention_job *w, gm_dtype dtype)
{
    int64_t units = w->rows * w->key_heads, threads = gm_threads_count(dev->threads), elements;
    w->want_keys = w->want_queries = true;
    w->chunks = 1;
    gm_job job = attention_grad_way(w, dtype, &elements);
    if (units >= threads || units == 0) return attention_run(dev, w, dtype, elements, job);
    w->chunks = (threads + units - 1) / units;
    w->by_key = true;
    w->want_queries = false;
    GM_TRY(attention_run(dev, w, dtype, elements, job));
    w->by_key = false;
    w->want_queries = true;
    w->want_keys = false;
    return attention_run(dev, w, dtype, elements, job);
}

/* The gradient of a bias is added up sample by sample, from zero where it replaces what is there. */
static gm_status attention_bias_begin(gm_device *dev, const gm_call *call, attention_job *w)
{
    gm_attrs at = gm_attrs_default();
    w->dbias = call->out[3];
    if (!w->dbias) return GM_OK;
    w->rows = w->bias->shape[0] < w->batch ? w->bias->shape[0] : w->batch;
    return w->accumulate ? GM_OK : cpu_fill(dev, &(gm_call){GM_OP_fill, 0, 1, NULL, &call->out[3], &at});
}

/* tiles: NULL, or what multiplies pairs. */
static gm_status attention_grad_by(gm_device *dev, const gm_call *call, const attention_tiles *tiles)
{
    gm_tensor    *to[3] = {NULL, NULL, NULL};
    attention_job w = attention_job_of(dev, call);
    gm_status     st;
    for (int i = 0; i < 3; i++) GM_TRY_OR(attention_output(dev, call->out[i], w.accumulate, &to[i]), st, done);
    w.o = attention_view_of(call->in[4]);
    w.g = attention_view_of(call->in[6]);
    w.dq = attention_view_of(to[0]);
    w.dk = attention_view_of(to[1]);
    w.dv = attention_view_of(to[2]);
    w.tiles = tiles;
    attention_lse(&w, call->in[5]);
    GM_TRY_OR(attention_bias_begin(dev, call, &w), st, done);
    st = attention_grad_passes(dev, &w, gm_dtype_wide(call->in[0]->dtype));
done:
    for (int i = 0; i < 3; i++) st = cpu_home(dev, to[i], call->out[i], st);
    return st;
}

static gm_status cpu_attention_grad(gm_device *dev, const gm_call *call) { return attention_grad_by(dev, call, NULL); }
