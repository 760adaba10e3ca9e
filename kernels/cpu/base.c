/* base.c - what every CPU kernel uses: raw memory, scratch, the parallel loop, and walks over strided tensors.
 *
 * A walk takes up to CPU_WALK tensors that broadcast to the shape of the first one, the output. It drops dimensions of
 * size 1, orders the others by the output's strides, and merges dimensions that are contiguous in all tensors. Then it
 * calls a row function along the last dimension; where that is short, some have it in turns (walk_turn). How it cuts
 * the work into pieces depends only on shapes and on the number of threads, so the same call gives the same bits. The
 * trap: strides are in elements, pointers in bytes. */
#include <stdlib.h>
#include <sys/mman.h>
#include "../copy_bytes.h"
#include "../past_caches.h"

/* The width in bytes of the vectors of vector.c: AVX-512, AVX2 or 16. */
#if defined(__AVX512F__) || defined(GM_EMULATED_AVX512)
#define CPU_VECTOR 64
#elif defined(__AVX2__)
#define CPU_VECTOR 32
#else
#define CPU_VECTOR 16
#endif

#define CPU_PAGE   ((size_t)2 << 20) /* a huge page; larger blocks are mapped in such pages */
#define CPU_GRAIN  (256 << 10)       /* bytes of traffic that pay for waking another thread */
#define CPU_STREAM (8 << 20)         /* bytes of an output that no cache will hold: written past the caches */
#define CPU_BURST  4096 /* bytes of an output that are computed in a buffer before they go past the caches */
#define CPU_WALK   4
#define CPU_BLOCK  4096 /* elements of a row handed out at a time */
#define CPU_SHORT  16   /* a row of fewer elements is not worth its call; nor is one of twice as many with buffers */
#define CPU_BESIDE 512  /* elements of a row with turns handed out at a time: later turns find its lines in a cache */
#define CPU_TURNS  1024 /* there are fewer turns: longer rows are worth their calls whatever they hold */
#define CPU_ROW    4096 /* the longest row that kernels keep in a buffer of their own */

/* Vector registers are as code without AVX wants them: their upper halves are zeros. Where they are not, each
 * instruction of SSE behind takes up to 100 ns on an Intel core: those of libm's pow and of LuaJIT are such. Compilers
 * see to that at the ends of functions, but GCC 12 forgets it behind loops with masks. So all kernels end with it, and
 * it stands before loops that call libm. */
static inline void cpu_clean(void)
{
#if defined(__AVX__)
    __builtin_ia32_vzeroupper();
#endif
}

static inline gm_status cpu_clean_after(gm_status st)
{
    cpu_clean();
    return st;
}

static gm_status map_huge(size_t bytes, void **out)
{
    size_t size = (bytes + 4095) & ~(size_t)4095;
    char  *p = mmap(NULL, size + CPU_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return GM_FAIL(GM_ENOMEM, "the system gives no %zu bytes", bytes);
    size_t head = (CPU_PAGE - (uintptr_t)p % CPU_PAGE) % CPU_PAGE, tail = CPU_PAGE - head;
    if (head) munmap(p, head);
    if (tail) munmap(p + head + size, tail);
    madvise(p + head, size, MADV_HUGEPAGE); /* advice: without it small pages serve, only slower */
    *out = p + head;
    return GM_OK;
}

static gm_status cpu_raw_alloc(void *context, size_t bytes, void **out)
{
    (void)context;
    if (bytes >= CPU_PAGE) return map_huge(bytes, out);
    *out = aligned_alloc(64, bytes ? (bytes + 63) & ~(size_t)63 : 64);
    return *out ? GM_OK : GM_FAIL(GM_ENOMEM, "the system gives no %zu bytes", bytes);
}

static void cpu_raw_free(void *context, void *p, size_t bytes)
{
    (void)context;
    if (bytes >= CPU_PAGE) munmap(p, (bytes + 4095) & ~(size_t)4095);
    else free(p);
}

/* Scratch from the device's pool; released with gm_pool_release(dev->pool, *block). */
static inline gm_status cpu_scratch(gm_device *dev, size_t bytes, void *out, gm_block **block)
{
    return gm_pool_alloc_scratch(dev->pool, bytes, (void **)out, block);
}

/* The grain for items of that many bytes of traffic each: small jobs stay on one thread. */
static inline int64_t cpu_grain(int64_t bytes_per_item)
{
    int64_t grain = CPU_GRAIN / (bytes_per_item > 0 ? bytes_per_item : 1);
    return grain > 0 ? grain : 1;
}

/* job over [0, n); an item moves bytes_per_item bytes (count arithmetic as bytes too: 1 a cycle or so). */
static inline void cpu_parallel(gm_device *dev, int64_t n, int64_t bytes_per_item, gm_job job, void *context)
{
    gm_parallel(dev->threads, n, cpu_grain(bytes_per_item), job, context);
}

/* How many parts cpu_parallel makes of the same arguments: slots for partial results. */
static inline int cpu_parts(gm_device *dev, int64_t n, int64_t bytes_per_item)
{
    return gm_parallel_parts(dev->threads, n, cpu_grain(bytes_per_item));
}

/* ---- stores past the caches ---- */

/* Kernels compute outputs far larger than the caches in a small buffer and send it out with gm_stream_out. Measured:
 * from 8 MiB on, also with the reading that follows.
 *
 * Bursts of reading and of writing that take turns are best if one of reading has CPU_BURST bytes, of all inputs
 * together. On a Zen 4, relu of 50 MB in a loop took 2.2 to 4.6 ms with half of it, as if the processor at times ceased
 * to read ahead, and 2.0 to 2.8 ms so; add took a third longer with twice as much. */
static inline bool cpu_streams(int64_t bytes) { return bytes >= CPU_STREAM; }

/* On AVX2, rows send large outputs past the caches themselves and ask ahead for what they read. Reading, arithmetic and
 * writing then overlap. On a Zen 3, relu of 50 MB takes 6.5 ms so and 7.8 in bursts, exp 9.1 and 11.2. */
#define CPU_DIRECT (CPU_VECTOR == 32)
#define CPU_AHEAD  2048 /* bytes */

/* ---- walks ---- */

typedef struct cpu_walk {
    int     tensors, ndim; /* ndim >= 1; the last dimension is the row */
    int64_t shape[GM_MAX_DIMS];
    int64_t stride[CPU_WALK][GM_MAX_DIMS]; /* elements; 0 where a tensor repeats */
    int64_t size[CPU_WALK];                /* bytes of an element */
    char   *data[CPU_WALK];
    int64_t rows, numel;    /* numel = rows * shape[ndim - 1] * turns; 0: nothing to do */
    int64_t turns;          /* 1, or how many elements follow each element of a row: those of a short last dimension */
    int64_t turn[CPU_WALK]; /* elements from turn to turn */
} cpu_walk;

/* n elements of a row: tensor k's are at p[k] + i * stride[k] elements. */
typedef void (*cpu_row)(const void *context, int64_t n, char *const *p, const int64_t *stride);

/* Strides of t seen in the shape of the output: right-aligned, 0 where t has size 1 or no dimension. */
static void walk_strides(const gm_tensor *t, int ndim, int64_t *stride)
{
    for (int d = 0; d < ndim; d++) {
        int k = d - (ndim - t->ndim);
        stride[d] = k < 0 || t->shape[k] == 1 ? 0 : t->stride[k];
    }
}

static void walk_swap(cpu_walk *w, int d, int e)
{
    int64_t s = w->shape[d];
    w->shape[d] = w->shape[e];
    w->shape[e] = s;
    for (int k = 0; k < w->tensors; k++) {
        s = w->stride[k][d];
        w->stride[k][d] = w->stride[k][e];
        w->stride[k][e] = s;
    }
}

static bool walk_can_merge(const cpu_walk *w, int d)
{
    for (int k = 0; k < w->tensors; k++)
        if (w->stride[k][d] != w->stride[k][d + 1] * w->shape[d + 1]) return false;
    return true;
}

static void walk_drop(cpu_walk *w, int d)
{
    for (int e = d; e + 1 < w->ndim; e++) walk_swap(w, e, e + 1);
    w->ndim--;
}

static void walk_simplify(cpu_walk *w)
{
    for (int d = w->ndim - 1; d >= 0; d--)
        if (w->shape[d] == 1) walk_drop(w, d);
    for (int d = 1; d < w->ndim; d++) /* outermost first: by the output's strides, then by the inputs' */
        for (int e = d; e > 0; e--) {
            int k = 0;
            while (k < w->tensors - 1 && w->stride[k][e - 1] == w->stride[k][e]) k++;
            if (w->stride[k][e - 1] >= w->stride[k][e]) break;
            walk_swap(w, e - 1, e);
        }
    for (int d = w->ndim - 2; d >= 0; d--)
        if (walk_can_merge(w, d)) {
            w->shape[d + 1] *= w->shape[d];
            walk_drop(w, d);
        }
    if (w->ndim == 0) {
        w->ndim = 1;
        w->shape[0] = 1;
        for (int k = 0; k < w->tensors; k++) w->stride[k][0] = 1;
    }
    w->rows = w->turns = 1;
    for (int d = 0; d < w->ndim - 1; d++) w->rows *= w->shape[d];
    w->numel = w->rows * w->shape[w->ndim - 1];
    for (int k = 0; k < w->tensors; k++) w->turn[k] = 1;
}

/* The last dimension becomes turns, and the one before it the row. Row functions must know: they get the first element
 * of each, and compute those of all turns. */
static void walk_take_turns(cpu_walk *w)
{
    const int last = w->ndim - 1;
    w->turns = w->shape[last];
    for (int k = 0; k < w->tensors; k++) w->turn[k] = w->stride[k][last];
    w->rows /= w->shape[last - 1];
    w->ndim--;
}

/* So does a last dimension of fewer elements than `least`, if the one before it is longer. */
static void walk_turn(cpu_walk *w, int64_t least)
{
    const int last = w->ndim - 1;
    if (last == 0 || w->shape[last] >= least || w->shape[last - 1] <= w->shape[last] || !w->numel) return;
    walk_take_turns(w);
}

/* Is each tensor contiguous along the last two dimensions, or one row that all rows repeat, such as a bias? */
static bool walk_repeats(const cpu_walk *w)
{
    const int last = w->ndim - 1;
    for (int k = 0; last > 0 && k < w->tensors; k++) {
        const int64_t step = w->stride[k][last - 1];
        if (w->stride[k][last] != 1 || (step != 0 && step != w->shape[last])) return false;
    }
    return true;
}

/* t[0] is the output and has the shape walked; the others broadcast to it. */
static void cpu_walk_new(cpu_walk *w, int tensors, gm_tensor *const *t)
{
    w->tensors = tensors;
    w->ndim = t[0]->ndim;
    for (int d = 0; d < w->ndim; d++) w->shape[d] = t[0]->shape[d];
    for (int k = 0; k < tensors; k++) {
        w->size[k] = (int64_t)gm_dtype_size(t[k]->dtype);
        w->data[k] = gm_tensor_data(t[k]);
        walk_strides(t[k], w->ndim, w->stride[k]);
    }
    walk_simplify(w);
}

typedef struct walk_job {
    const cpu_walk *w;
    cpu_row         row;
    const void     *context;
    int64_t         blocks, block; /* a row is cut into `blocks` pieces of `block` elements */
} walk_job;

/* Pointers to the first element of row `row`; at[] gets its coordinates. */
static void walk_seek(const cpu_walk *w, int64_t row, int64_t *at, char **p)
{
    for (int k = 0; k < w->tensors; k++) p[k] = w->data[k];
    for (int d = w->ndim - 2; d >= 0; d--) {
        at[d] = row % w->shape[d];
        row /= w->shape[d];
        for (int k = 0; k < w->tensors; k++) p[k] += at[d] * w->stride[k][d] * w->size[k];
    }
}

static void walk_next(const cpu_walk *w, int64_t *at, char **p)
{
    for (int d = w->ndim - 2; d >= 0; d--) {
        for (int k = 0; k < w->tensors; k++) p[k] += w->stride[k][d] * w->size[k];
        if (++at[d] < w->shape[d]) return;
        for (int k = 0; k < w->tensors; k++) p[k] -= at[d] * w->stride[k][d] * w->size[k];
        at[d] = 0;
    }
}

static void walk_part(void *context, int64_t begin, int64_t end, int thread)
{
    const walk_job *j = context;
    const cpu_walk *w = j->w;
    int             last = w->ndim - 1;
    int64_t         at[GM_MAX_DIMS], stride[CPU_WALK], n = w->shape[last], block = begin % j->blocks;
    char           *row[CPU_WALK], *p[CPU_WALK];
    (void)thread;
    for (int k = 0; k < w->tensors; k++) stride[k] = w->stride[k][last];
    walk_seek(w, begin / j->blocks, at, row);
    for (int64_t i = begin; i < end;) {
        int64_t take = j->blocks - block < end - i ? j->blocks - block : end - i; /* blocks of this row */
        int64_t first = block * j->block, count = take * j->block;
        if (count > n - first) count = n - first;
        for (int k = 0; k < w->tensors; k++) p[k] = row[k] + first * stride[k] * w->size[k];
        j->row(j->context, count, p, stride);
        i += take;
        block = 0;
        if (i < end) walk_next(w, at, row);
    }
    gm_stream_end();
}

/* Elements of a row handed out at a time, each with its turns. */
static int64_t walk_block(const cpu_walk *w)
{
    if (w->turns == 1) return CPU_BLOCK;
    return w->turns <= CPU_SHORT ? CPU_BESIDE : CPU_BESIDE * CPU_SHORT / w->turns;
}

/* weight: 1 for plain traffic; more where an element costs arithmetic beyond its bytes. */
static void cpu_walk_run(gm_device *dev, const cpu_walk *w, int weight, cpu_row row, const void *context)
{
    int64_t bytes = 0, n = w->shape[w->ndim - 1];
    if (!w->numel) return;
    for (int k = 0; k < w->tensors; k++) bytes += w->size[k];
    const int64_t block = walk_block(w);
    walk_job      j = {.w = w, .row = row, .context = context, .block = n < block ? n : block};
    j.blocks = (n + j.block - 1) / j.block;
    cpu_parallel(dev, w->rows * j.blocks, bytes * weight * j.block * w->turns, walk_part, &j);
}

/* ---- tensors as rows along their last dimension ---- */

/* Any leading dimensions; the last stride is 1 (cpu_with_rows in copy.c makes it so). */
typedef struct cpu_rows {
    char   *data;
    int64_t rows, width, size; /* size: bytes of an element */
    int64_t step;              /* bytes from row to row, where even */
    bool    even;              /* else each row is found through shape and stride */
    int     ndim;              /* of the leading dimensions */
    int64_t shape[GM_MAX_DIMS], stride[GM_MAX_DIMS];
} cpu_rows;

/* Rows of x along its last dimension; a tensor of dimension 0 is one row of one. */
static cpu_rows cpu_rows_of(const gm_tensor *x)
{
    cpu_rows r = {.data = gm_tensor_data(x), .rows = 1, .size = (int64_t)gm_dtype_size(x->dtype), .even = true};
    r.width = x->ndim ? x->shape[x->ndim - 1] : 1;
    r.ndim = x->ndim ? x->ndim - 1 : 0;
    for (int d = r.ndim - 1; d >= 0; d--) {
        r.shape[d] = x->shape[d];
        r.stride[d] = x->stride[d] * r.size;
        if (x->shape[d] == 1) continue;
        if (r.rows == 1) r.step = r.stride[d];
        else if (r.stride[d] != r.step * r.rows) r.even = false;
        r.rows *= x->shape[d];
    }
    return r;
}

static inline void *cpu_row_at(const cpu_rows *r, int64_t i)
{
    if (r->even) return r->data + i * r->step;
    char *p = r->data;
    for (int d = r->ndim - 1; d >= 0; d--) {
        p += i % r->shape[d] * r->stride[d];
        i /= r->shape[d];
    }
    return p;
}

/* The leading dimensions of one value a row (mean, lse, target): element i, where t has no row dimension. */
static cpu_rows cpu_scalars_of(const gm_tensor *t)
{
    gm_tensor row = *t;
    if (row.ndim < GM_MAX_DIMS) {
        row.shape[row.ndim] = row.stride[row.ndim] = 1;
        row.ndim++;
    }
    return cpu_rows_of(&row);
}

/* Stride of a tensor of one dimension or none (a bias, the weight of a norm). */
static inline int64_t cpu_stride1(const gm_tensor *t) { return t->ndim ? t->stride[t->ndim - 1] : 0; }

static inline gm_tensor *cpu_in(const gm_call *call, int i) { return i < call->n_in ? call->in[i] : NULL; }
static inline gm_tensor *cpu_out(const gm_call *call, int i) { return i < call->n_out ? call->out[i] : NULL; }
