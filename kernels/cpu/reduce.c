/* reduce.c - sums over any set of dimensions, the k largest along one, and scatter, which is backward of extremes.
 *
 * A sum orders and merges the dimensions of x as a walk does (base.c), and adds in double. If the outermost dimensions
 * that are kept have enough elements, threads share them out. Otherwise each thread sums a part of the outermost
 * reduced dimension into accumulators of its own, which are then added in order of threads.
 *
 * Where the last dimension is short and reduced, the last of the outermost becomes the row: so many sums at a time are
 * added up beside each other, or, of rows that fill half a vector, one after the other. Where it is short and stays,
 * rows that follow each other are one. */

/* Dimensions of x, outermost first; those before `lead` stay. y_stride is 0 and sum_stride 0 where reduced. */
typedef struct sum_job {
    int      ndim, lead;
    int64_t  shape[GM_MAX_DIMS], x_stride[GM_MAX_DIMS], y_stride[GM_MAX_DIMS], sum_stride[GM_MAX_DIMS];
    int64_t  outer, inner; /* elements of y: outer (the dimensions before lead) times inner */
    int64_t  length;       /* 0, or: the last dimension has so many elements, of which `shape` are taken at a time */
    int64_t  size;         /* bytes of an element */
    gm_dtype dtype;
    char    *x, *y;
    int64_t  slice; /* of sums, for each thread: inner, or outer * inner where threads share the reduction, and more: no
                     * two threads write to one line */
    double  *sums;
    void (*row)(const struct sum_job *j, int64_t n, const char *x, double *sum);
    void (*many)(int64_t n, const void *x, int64_t step, double *sum); /* of SUM_ROWS rows; NULL where row serves */
    void (*flat)(int64_t n, int64_t rows, const void *x, double *sum); /* of short rows that are neighbours; or NULL */
    void (*across)(int64_t n, int64_t rows, const char *x, int64_t step, double *sums); /* NULL, or all of a place */
} sum_job;

/* Sums of columns take so many rows at a time, on AVX-512 only those of at most SUM_NARROW elements. They read and
 * write the sums less often, which is a fifth faster on a Zen 3. With AVX-512 long rows were slower so. */
#define SUM_ROWS   8
#define SUM_NARROW 256
#define SUM_FLAT   128  /* of short rows, so many elements are a row */
#define SUM_BESIDE 64   /* sums, at most, that are added up beside each other */
#define SUM_ACROSS 8    /* elements of rows that are summed one after the other */
#define SUM_NEAR   8192 /* elements of sums that are added up beside each other: a first-level cache holds them */

typedef struct top_job {
    cpu_rows x, value, index;
    int64_t  k;
} top_job;

#define AS 32
#include "as.h"
#include "sum_t.h"
#include "reduce_t.h"
#define AS 64
#include "as.h"
#include "sum_t.h"
#include "reduce_t.h"
#define AS 16
#include "as.h"
#include "sum_t.h"
#define AS 0
#include "as.h"

/* Adds dimensions d.. of x into the accumulators; the innermost goes by rows. */
static void sum_dims(const sum_job *j, int d, int64_t first, int64_t count, const char *x, double *sum)
{
    x += first * j->x_stride[d] * j->size;
    sum += first * j->sum_stride[d];
    if (d == j->ndim - 1) {
        j->row(j, count, x, sum);
        return;
    }
    if (j->flat && d == j->ndim - 2 && count * j->shape[d + 1] >= 4 * SUM_FLAT) {
        j->flat(j->shape[d + 1], count, x, sum);
        return;
    }
    int64_t i = 0;
    for (; j->many && d == j->ndim - 2 && i + SUM_ROWS <= count; i += SUM_ROWS)
        j->many(j->shape[d + 1], x + i * j->x_stride[d] * j->size, j->x_stride[d], sum);
    for (; i < count; i++)
        sum_dims(j, d + 1, 0, j->shape[d + 1], x + i * j->x_stride[d] * j->size, sum + i * j->sum_stride[d]);
}

static void store_row(const sum_job *j, int64_t n, const double *sum, char *y, int64_t step)
{
    if (j->dtype == GM_F32)
        for (int64_t i = 0; i < n; i++) ((float *)y)[i * step] = (float)sum[i];
    else
        for (int64_t i = 0; i < n; i++) gm_store(j->dtype, y, i * step, sum[i]);
}

/* Writes accumulated elements, whose order is that of the dimensions from d on that stay; gives the next one. */
static const double *store_sums(const sum_job *j, int d, const double *sum, char *y)
{
    int next;
    while (d < j->ndim && j->sum_stride[d] == 0) d++;
    for (next = d + 1; next < j->ndim && j->sum_stride[next] == 0;) next++;
    if (next >= j->ndim) {
        const int64_t n = d < j->ndim ? j->shape[d] : 1;
        store_row(j, n, sum, y, d < j->ndim ? j->y_stride[d] : 0);
        return sum + n;
    }
    for (int64_t i = 0; i < j->shape[d]; i++) sum = store_sums(j, next, sum, y + i * j->y_stride[d] * j->size);
    return sum;
}

/* Offsets, in elements, of the i-th place of the dimensions before lead. */
static void lead_offsets(const sum_job *j, int64_t i, int64_t *x, int64_t *y)
{
    *x = *y = 0;
    for (int d = j->lead - 1; d >= 0; d--) {
        *x += i % j->shape[d] * j->x_stride[d];
        *y += i % j->shape[d] * j->y_stride[d];
        i /= j->shape[d];
    }
}

/* The strides of sums, for the dimensions that they have. */
static void sum_strides(sum_job *j)
{
    j->inner = 1;
    for (int d = j->ndim - 1; d >= j->lead; d--) {
        j->sum_stride[d] = j->y_stride[d] ? j->inner : 0;
        if (j->y_stride[d]) j->inner *= j->shape[d];
    }
}

/* The last dimension before lead becomes the last of all. */
static void sum_set_beside(sum_job *j)
{
    const int     d = --j->lead, last = j->ndim - 1;
    const int64_t shape = j->shape[d], x_stride = j->x_stride[d], y_stride = j->y_stride[d];
    for (int e = d; e < last; e++) {
        j->shape[e] = j->shape[e + 1];
        j->x_stride[e] = j->x_stride[e + 1];
        j->y_stride[e] = j->y_stride[e + 1];
    }
    j->shape[last] = shape;
    j->x_stride[last] = x_stride;
    j->y_stride[last] = y_stride;
}

/* Of the last dimension, where it is not taken as a whole. */
static int64_t sum_pieces(const sum_job *j)
{
    const int64_t piece = j->shape[j->ndim - 1];
    return (j->length + piece - 1) / piece;
}

/* Are sums better added up beside each other? Then they are. */
static void sum_try_beside(sum_job *j, int64_t numel)
{
    const int     last = j->ndim - 1;
    const int64_t terms = numel / j->outer, most = SUM_NEAR / terms;
    const bool    rows = j->lead == last && j->x_stride[last] == 1;
    if (j->lead == 0 || j->y_stride[last] || (!rows && j->shape[last] >= CPU_SHORT)) return;
    if (most < CPU_SHORT || j->shape[j->lead - 1] < CPU_SHORT) return;
    sum_set_beside(j);
    j->length = j->shape[last];
    j->shape[last] = most < SUM_BESIDE ? most : SUM_BESIDE;
    j->outer = j->outer / j->length * sum_pieces(j);
    sum_strides(j);
}

/* The sums of a place, from element `first` of the last dimension on. */
static void sum_place(const sum_job *j, int64_t place, int64_t first, double *sums)
{
    const int last = j->ndim - 1;
    int64_t   x, y;
    lead_offsets(j, place, &x, &y);
    x += first * j->x_stride[last];
    y += first * j->y_stride[last];
    if (j->across) {
        j->across(j->shape[j->lead], j->inner, j->x + x * j->size, j->x_stride[last], sums);
    } else {
        for (int64_t k = 0; k < j->inner; k++) sums[k] = 0;
        sum_dims(j, j->lead, 0, j->shape[j->lead], j->x + x * j->size, sums);
    }
    store_sums(j, j->lead, sums, j->y + y * j->size);
}

/* Threads share the places that stay outside. */
static void sum_outer_part(void *context, int64_t begin, int64_t end, int thread)
{
    const sum_job *j = context;
    for (int64_t i = begin; i < end; i++) sum_place(j, i, 0, j->sums + thread * j->slice);
}

/* The same with pieces of the last dimension, of which the last one may be shorter. */
static void sum_beside_part(void *context, int64_t begin, int64_t end, int thread)
{
    const sum_job *j = context;
    const int      last = j->ndim - 1;
    const int64_t  pieces = sum_pieces(j), piece = j->shape[last];
    sum_job        end_of = *j; /* the last piece */
    end_of.shape[last] = j->length - (pieces - 1) * piece;
    sum_strides(&end_of);
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i % pieces;
        sum_place(at == pieces - 1 ? &end_of : j, i / pieces, at * piece, j->sums + thread * j->slice);
    }
}

/* Threads share the outermost reduced dimension. */
static void sum_inner_part(void *context, int64_t begin, int64_t end, int thread)
{
    const sum_job *j = context;
    double        *sums = j->sums + thread * j->slice;
    int64_t        x, y;
    for (int64_t i = 0; i < j->outer; i++) {
        lead_offsets(j, i, &x, &y);
        sum_dims(j, j->lead, begin, end - begin, j->x + x * j->size, sums + i * j->inner);
    }
}

/* x with y's strides beside it, y's 0 where reduced, simplified like a walk. */
static void sum_plan(const gm_call *call, cpu_walk *w, sum_job *j)
{
    gm_tensor *x = call->in[0], *y = call->out[0];
    w->tensors = 2;
    w->ndim = x->ndim;
    for (int d = 0, k = 0; d < x->ndim; d++) {
        bool reduced = !call->attrs->dims || call->attrs->dims >> d & 1;
        w->shape[d] = x->shape[d];
        w->stride[0][d] = x->stride[d];
        w->stride[1][d] = reduced ? 0 : y->stride[k];
        k += !reduced || call->attrs->keepdim;
    }
    walk_simplify(w);
    *j = (sum_job){.ndim = w->ndim,
                   .outer = 1,
                   .size = (int64_t)gm_dtype_size(x->dtype),
                   .dtype = x->dtype,
                   .x = gm_tensor_data(x),
                   .y = gm_tensor_data(y)};
    for (int d = 0; d < w->ndim; d++) {
        j->shape[d] = w->shape[d];
        j->x_stride[d] = w->stride[0][d];
        j->y_stride[d] = w->numel > 1 && w->shape[d] > 1 ? w->stride[1][d] : 0;
    }
    while (j->lead < w->ndim - 1 && j->y_stride[j->lead]) j->outer *= j->shape[j->lead++];
    sum_strides(j);
    if (w->numel) sum_try_beside(j, w->numel);
}

/* The functions that add the elements of x. */
static void sum_choose(const gm_tensor *x, sum_job *j)
{
    const int  last = j->ndim - 1;
    const bool stays = j->y_stride[last] != 0, rows = stays && last > 0 && j->x_stride[last] == 1;
    j->row = stays ? BY_ELEMENT(x, add_rows) : BY_ELEMENT(x, reduce_row);
    if (j->length && j->lead == last - 1 && j->x_stride[j->lead] == 1 && j->shape[j->lead] >= SUM_ACROSS)
        j->across = BY_ELEMENT(x, sum_across);
    if (!rows || j->sum_stride[last - 1]) return;
    if (CPU_DIRECT || j->shape[last] <= SUM_NARROW) j->many = BY_ELEMENT(x, add_many);
    if (j->shape[last] < SUM_FLAT / 2 && j->x_stride[last - 1] == j->shape[last]) j->flat = BY_ELEMENT(x, add_flat);
}

static gm_status cpu_sum(gm_device *dev, const gm_call *call)
{
    cpu_walk  w;
    sum_job   j;
    gm_block *block;
    int64_t   threads = gm_threads_count(dev->threads);
    sum_plan(call, &w, &j);
    if (w.numel == 0) { /* nothing to add: what there is of y is 0 */
        gm_attrs zero = {.value = 0};
        return cpu_fill(dev, &(gm_call){GM_OP_fill, 0, 1, NULL, call->out, &zero});
    }
    bool    by_outer = j.outer >= 2 * threads || j.length;
    int64_t size = (int64_t)gm_dtype_size(gm_dtype_wide(j.dtype)); /* sums of bf16 have the bits of those of f32 */
    int64_t items = by_outer ? j.outer : j.shape[j.lead], traffic = w.numel * size / items;
    sum_choose(call->in[0], &j);
    int64_t inner = by_outer ? j.inner : j.outer * j.inner, parts = cpu_parts(dev, items, traffic);
    j.slice = parts > 1 ? (inner + 7) / 8 * 8 : inner;
    GM_TRY(cpu_scratch(dev, (size_t)(parts * j.slice) * sizeof(double), &j.sums, &block));
    memset(j.sums, 0, (size_t)(parts * j.slice) * sizeof(double));
    cpu_parallel(dev, items, traffic, j.length ? sum_beside_part : by_outer ? sum_outer_part : sum_inner_part, &j);
    for (int64_t k = 1; !by_outer && k < parts; k++)
        for (int64_t i = 0; i < inner; i++) j.sums[i] += j.sums[k * j.slice + i];
    for (int64_t i = 0; !by_outer && i < j.outer; i++) {
        int64_t x, y;
        lead_offsets(&j, i, &x, &y);
        store_sums(&j, j.lead, j.sums + i * j.inner, j.y + y * j.size);
    }
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

/* ---- the k largest ---- */

static gm_status top_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = call->in[0];
    top_job    j = {cpu_rows_of(x), cpu_rows_of(call->out[0]), cpu_rows_of(call->out[1]), call->attrs->k};
    cpu_parallel(dev, j.x.rows, j.x.width * j.x.size, BY_TYPE(x, top_part), &j);
    return GM_OK;
}

static gm_status cpu_top_k(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, call->in[0]->ndim, -1, top_rows);
}

/* ---- scatter ---- */

typedef struct scatter_job {
    cpu_rows index, g, dx;
    int64_t  stride;
} scatter_job;

/* dx without dimension dim: lines of it start at its elements. */
static gm_tensor without_dim(const gm_tensor *t, int dim)
{
    gm_tensor r = *t;
    for (int d = dim; d + 1 < t->ndim; d++) {
        r.shape[d] = t->shape[d + 1];
        r.stride[d] = t->stride[d + 1];
    }
    r.ndim--;
    return r;
}

static void scatter_part(void *context, int64_t begin, int64_t end, int thread)
{
    const scatter_job *j = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        char *to = (char *)cpu_row_at(&j->dx, i) + load_index(&j->index, i) * j->stride;
        if (j->dx.size == 4) *(float *)to += *(const float *)cpu_row_at(&j->g, i);
        else *(double *)to += *(const double *)cpu_row_at(&j->g, i);
    }
}

/* Each line of dx gets one element, so threads do not meet. */
static gm_status cpu_scatter(gm_device *dev, const gm_call *call)
{
    gm_tensor  *index = call->in[0], *g = call->in[1], *dx = call->out[0];
    int         dim = (int)(call->attrs->dim < 0 ? call->attrs->dim + dx->ndim : call->attrs->dim);
    bool        keeps = index->ndim == dx->ndim;
    gm_tensor   lines = without_dim(dx, dim), at = keeps ? without_dim(index, dim) : *index;
    gm_tensor   from = keeps ? without_dim(g, dim) : *g;
    scatter_job j = {cpu_scalars_of(&at), cpu_scalars_of(&from), cpu_scalars_of(&lines), 0};
    j.stride = dx->stride[dim] * j.dx.size;
    for (int64_t i = 0; i < j.index.rows; i++) {
        int64_t k = load_index(&j.index, i);
        if (k < 0 || k >= dx->shape[dim])
            return GM_FAIL(GM_EINVAL,
                           "scatter: index %" PRId64 " at position %" PRId64 " (from 0) is outside %" PRId64
                           " elements",
                           k, i, dx->shape[dim]);
    }
    cpu_parallel(dev, j.index.rows, 32, scatter_part, &j);
    return GM_OK;
}
