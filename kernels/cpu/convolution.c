/* convolution.c - convolutions of 1, 2 and 3 dimensions, as products whose second operand never lies in memory.
 *
 * A plane is the space of one channel of one image, with its padding and with a row for each phase of the stride: row f
 * has the elements f, f + stride, ... So for each place of the kernel what it reads for neighbouring results is
 * neighbours, whatever the stride, at an offset (a tap) from where the first place reads. Planes are copies of x for a
 * few images at a time, or x itself where it needs neither. The packing of a product's panels (gemm_block_t.h) then
 * copies runs: b(channel and place, result) = planes[tap + start of the result]. The gradient of weights is a product
 * over the results, for which the same runs are turned. A transposed convolution is a convolution of stride 1 for each
 * phase of its results, with the places of the kernel that fall on it. Where a group has few channels (depthwise), what
 * is packed would be read once or twice, and rows of results are summed up directly. Kernels of 3 x 3 with stride 1 in
 * f32 go another way where they have enough channels (winograd.c), but not where tiles of AMX multiply bf16.
 *
 * Space has three dimensions here; those that a tensor lacks are 1 in front. Everything is contiguous: other tensors
 * are copied. Where the processor multiplies bf16, so do these products (convolution_pairs.c). How images are taken
 * together depends on shapes alone. convolution_t.h has the loops, convolution_ops.c the ops. Part of cpu.c. */

#define CONV_PLANES   ((int64_t)4 << 20) /* bytes of the planes of the images that are taken together, about */
#define CONV_PLACES   2048               /* results of these images at least */
#define CONV_FEW      4                  /* channels of a group's result below which nothing is packed */
#define CONV_CHAINS   8                  /* sums that grow at a time where nothing is packed */
#define CONV_SMALL    64                 /* elements of a plane's row that is filled without calls */
#define CONV_CHANNELS 8                  /* channels of a transposed convolution whose weights are turned together */

/* Sizes and attributes of a call. */
typedef struct conv_shape {
    int64_t images, groups;
    int64_t channels, outputs; /* of a group: those of the side with all of space, and those of the side of t */
    int64_t s[3], t[3];        /* the sizes of both sides */
    int64_t kernel[3], stride[3], dilation[3], low[3];
} conv_shape;

/* A run of columns: `n` from column `at` on, which read from `from` on. */
typedef struct conv_run {
    int64_t at, n, from;
} conv_run;

/* One product of all groups, for some images. In elements. */
typedef struct conv_product {
    gm_dtype        dtype;
    int64_t         images, groups, m, k; /* k: channels by places of the kernel */
    const void     *planes;
    int64_t         elements;       /* that may be read from there on */
    int64_t         image, group;   /* planes of the next image, of the next group */
    int64_t         q[3], step[2];  /* the results of an image, and how far apart their planes' rows are */
    const int64_t  *tap;            /* [k] */
    int64_t         far;            /* the largest of them */
    int64_t         across;         /* 0, or: taps so far apart lie a row of planes apart (conv_find_rows) */
    bool            upwards;        /* the later tap in the row before */
    const void     *a;              /* of a convolution (groups m, k); of the gradient of weights g: rows of results */
    int64_t         a_image, a_row; /* of g where nothing is packed */
    const void     *bias;           /* (groups m), or NULL */
    void           *c, *y;          /* y = f(c) */
    int64_t         c_image, c_row;
    gm_function     f;
    bool            accumulate;
    bool            pairs; /* planes hold bf16 in f32, and a is bf16 (convolution_pairs.c) */
    const amx_kind *amx;   /* not NULL, with pairs: in tiles (gemm_amx.c) */
} conv_product;

/* How planes are made: the padding in front, the sizes with all padding, and the kernel, to leave out what it skips. */
typedef struct conv_fill {
    const void *from;
    void       *to;
    int64_t     size[3], length[3], low[3], kernel[3], stride[3], dilation[3];
    int64_t     phases, width; /* of the last dimension */
} conv_fill;

/* One phase of the results of a transposed convolution. */
typedef struct conv_phase {
    int64_t        channels, outputs, places; /* of w, of a group; channels are those that are summed over */
    const int64_t *place, *tap;               /* [n]: the places of the kernel that fall on the phase; [channels n] */
    int64_t        n, from;                   /* from: where the first result reads */
    const void    *w;
    void          *a, *part; /* part: its results alone; NULL where no place of the kernel falls on it */
    int64_t        first[3], q[3], stride[3], size[3];
} conv_phase;

/* Phases that share a job. Their results go to `to`, planes of `made` channels. */
typedef struct conv_phases {
    const conv_phase *phase;
    int64_t           n, made;
    const void       *bias; /* (made), or NULL */
    void             *to;
} conv_phases;

/* Rows of n elements, of images and channels. */
typedef struct conv_rows {
    const void *from;
    void       *to;
    int64_t     n, images, channels;
    gm_function f;
    bool        accumulate;
} conv_rows;

static int64_t conv_volume(const int64_t *size) { return size[0] * size[1] * size[2]; }

/* Does some place of the kernel read element r (padding included) of dimension d for some result? */
static bool conv_reads(const conv_fill *w, int d, int64_t r)
{
    if (w->dilation[d] == 1 && w->kernel[d] >= w->stride[d]) return true;
    for (int64_t k = 0; k < w->kernel[d] && k * w->dilation[d] <= r; k++)
        if ((r - k * w->dilation[d]) % w->stride[d] == 0) return true;
    return false;
}

static bool conv_reads_phase(const conv_fill *w, int64_t f)
{
    for (int64_t k = 0; k < w->kernel[2]; k++)
        if (k * w->dilation[2] % w->phases == f) return true;
    return false;
}

/* Columns j .. j + width as runs; returns how many. Columns go over the results of an image, then the next image. */
static int conv_runs(const conv_product *w, int64_t j, int64_t width, conv_run *run)
{
    int64_t each = conv_volume(w->q), image = j / each, place = j % each;
    int64_t q2 = place % w->q[2], q1 = place / w->q[2] % w->q[1], q0 = place / w->q[2] / w->q[1];
    int     n = 0;
    for (int64_t at = 0; at < width; at += run[n++].n, q2 = 0) {
        int64_t have = w->q[2] - q2 < width - at ? w->q[2] - q2 : width - at;
        run[n] = (conv_run){at, have, image * w->image + q0 * w->step[0] + q1 * w->step[1] + q2};
        if (++q1 < w->q[1]) continue;
        q1 = 0;
        if (++q0 < w->q[0]) continue;
        q0 = 0;
        image++;
    }
    return n;
}

#define AS 32
#include "as.h"
#define GEMM_COLUMNS (2 * LANES)
#include "convolution_t.h"
#undef GEMM_COLUMNS
#define AS 64
#include "as.h"
#define GEMM_COLUMNS (2 * LANES)
#include "convolution_t.h"
#undef GEMM_COLUMNS
#define AS 0
#include "as.h"
#include "convolution_pairs.c"

#define CONV_JOB(dtype, name) ((dtype) == GM_F32 ? name##_f32 : name##_f64)

/* ---- planes ---- */

static int64_t conv_row_of(const conv_fill *w) { return w->phases * w->width; }
static int64_t conv_plane_of(const conv_fill *w) { return w->length[0] * w->length[1] * conv_row_of(w); }

/* Those of a convolution: as far as its kernel reads. */
static conv_fill conv_fill_of(const conv_shape *s)
{
    conv_fill w = {.phases = s->stride[2]};
    for (int d = 0; d < 3; d++) {
        w.size[d] = s->s[d];
        w.low[d] = s->low[d];
        w.kernel[d] = s->kernel[d];
        w.stride[d] = s->stride[d];
        w.dilation[d] = s->dilation[d];
        w.length[d] = (s->t[d] - 1) * s->stride[d] + (s->kernel[d] - 1) * s->dilation[d] + 1;
    }
    w.width = (w.length[2] + w.phases - 1) / w.phases;
    return w;
}

/* Those of a transposed one: x with as many zeros in front and behind as the kernel reaches over. */
static conv_fill conv_fill_transposed(const conv_shape *s)
{
    conv_fill w = {.phases = 1};
    for (int d = 0; d < 3; d++) {
        w.size[d] = s->t[d];
        w.low[d] = (s->kernel[d] - 1) * s->dilation[d] / s->stride[d];
        w.kernel[d] = w.stride[d] = w.dilation[d] = 1;
        w.length[d] = w.low[d] + (s->s[d] - 1 + s->low[d]) / s->stride[d] + 1;
    }
    w.width = w.length[2];
    return w;
}

/* Can the tensor itself serve as its planes? Then they are its own. */
static bool conv_is_plain(conv_fill *w)
{
    for (int d = 0; d < 3; d++)
        if (w->low[d] || w->length[d] > w->size[d]) return false;
    if (w->phases > 1) return false;
    for (int d = 0; d < 3; d++) w->length[d] = w->size[d];
    w->width = w->length[2];
    return true;
}

/* The planes of `images` images from number `first` on, of so many channels. */
static const void *conv_planes(gm_device *dev, gm_dtype dtype, conv_fill *w, const void *x, void *room, int64_t first,
                               int64_t images, int64_t channels)
{
    size_t size = gm_dtype_size(dtype);
    w->from = (const char *)x + (size_t)(first * channels * conv_volume(w->size)) * size;
    w->to = room;
    if (!room) return w->from;
    cpu_parallel(dev, images * channels, conv_plane_of(w) * (int64_t)size * 2, CONV_JOB(dtype, conv_fill_part), w);
    return room;
}

/* Images that are taken together. */
static int64_t conv_together(int64_t images, int64_t bytes, int64_t places)
{
    int64_t n = CONV_PLANES / (bytes + 1), least = (CONV_PLACES + places - 1) / (places > 0 ? places : 1);
    n = n > least ? n : least;
    n = n < images ? n : images;
    return (images + (images + n - 1) / n - 1) / ((images + n - 1) / n);
}

/* ---- products ---- */

/* Rows that follow one another without a gap are one. */
static void conv_join(conv_product *w)
{
    if (w->step[1] == w->q[2]) {
        w->q[2] *= w->q[1];
        w->q[1] = 1;
    }
    if (w->q[1] > 1 || w->step[0] != w->q[2]) return;
    w->q[2] *= w->q[0];
    w->q[0] = 1;
}

/* Bytes of a number of a. */
static int64_t conv_a_size(const conv_product *w) { return w->pairs ? 2 : (int64_t)gm_dtype_size(w->dtype); }

static gemm conv_gemm(const conv_product *w, int64_t group)
{
    int64_t     size = (int64_t)gm_dtype_size(w->dtype), at = group * w->m * w->c_row * size;
    const char *bias = w->bias;
    gemm        g = {.m = w->m,
                     .n = w->images * conv_volume(w->q),
                     .k = w->k,
                     .a = (const char *)w->a + group * w->m * w->k * conv_a_size(w),
                     .a_row = w->k,
                     .a_k = 1,
                     .panel = CONV_JOB(w->dtype, conv_panel),
                     .form = w,
                     .c = (char *)w->c + at,
                     .c_row = w->c_row,
                     .image = conv_volume(w->q),
                     .c_image = w->c_image,
                     .alpha = 1,
                     .row_bias = bias ? bias + group * w->m * size : NULL,
                     .finish = bias || w->f != GM_FN_none || w->y != w->c,
                     .f = w->f,
                     .y = (char *)w->y + at,
                     .y_row = w->c_row};
    return w->pairs ? conv_of_pairs(g, false, w->amx) : g;
}

/* dw (m, k) of a group: over the results of all images. */
static gemm conv_weight_gemm(const conv_product *w, int64_t group)
{
    int64_t size = (int64_t)gm_dtype_size(w->dtype), n = w->images * conv_volume(w->q);
    gemm    g = {.m = w->m,
                 .n = w->k,
                 .k = n,
                 .a = (const char *)w->a + group * w->m * n * conv_a_size(w),
                 .a_row = n,
                 .a_k = 1,
                 .panel = CONV_JOB(w->dtype, conv_turned),
                 .form = w,
                 .c = (char *)w->c + group * w->m * w->k * size,
                 .c_row = w->k,
                 .alpha = 1,
                 .accumulate = w->accumulate};
    return w->pairs ? conv_of_pairs(g, true, w->amx) : g;
}

/* Groups that share the threads. */
typedef struct conv_groups {
    const conv_product *w;
    gemm (*of)(const conv_product *w, int64_t group);
    char  *scratch;
    size_t each;
} conv_groups;

static void conv_groups_part(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_groups *all = context;
    int64_t            size = (int64_t)gm_dtype_size(all->w->dtype);
    for (int64_t group = begin; group < end; group++) {
        conv_product w = *all->w;
        w.planes = (const char *)w.planes + group * w.group * size;
        w.elements -= group * w.group;
        gemm g = all->of(all->w, group);
        g.form = &w;
        gemm_run(NULL, w.dtype, &g, all->scratch + (size_t)thread * all->each);
    }
}

/* Bytes of scratch for a product of g's columns, or of fewer: the last images that are taken together may be fewer, and
 * then b may be what is kept packed. */
static size_t conv_most_scratch(gm_dtype dtype, const gemm *g, int threads)
{
    gemm fewer = *g;
#if GEMM_PAIRS
    if (g->amx) return (size_t)amx_most_scratch(g, threads) * sizeof(float);
#endif
    if (g->n >= g->m && g->m > 1) fewer.n = g->m - 1;
    size_t all = gemm_scratch_bytes(dtype, g, threads), other = gemm_scratch_bytes(dtype, &fewer, threads);
    return all > other ? all : other;
}

/* Bytes of scratch for the products, and of a thread's part. */
static size_t conv_scratch(gm_device *dev, const conv_groups *all, size_t *each)
{
    int  threads = gm_threads_count(dev->threads), mine = all->w->groups > 1 ? 1 : threads;
    gemm g = all->of(all->w, 0);
    *each = conv_most_scratch(all->w->dtype, &g, mine);
    return *each * (size_t)(all->w->groups > 1 ? threads : 1);
}

static void conv_multiply(gm_device *dev, conv_groups *all)
{
    const conv_product *w = all->w;
    gemm                g = all->of(w, 0);
    if (w->groups == 1) gemm_run(dev->threads, w->dtype, &g, all->scratch);
    else gemm_parallel(dev->threads, w->groups, g.m * g.n * (g.k + 8) / 16, conv_groups_part, all);
}

/* Finds whether the places of a kernel lie as rows of results do: the same rows of planes then serve several rows. */
static void conv_find_rows(conv_product *w)
{
    int64_t across = 1;
    if (w->q[1] == 1 && w->q[2] > CONV_SMALL) return; /* places of one row grow beside each other better */
    while (across < w->k && llabs(w->tap[across] - w->tap[0]) != w->step[1]) across++;
    if (across == w->k || w->k % across) return;
    const int64_t down = w->tap[across] - w->tap[0];
    for (int64_t q = 0; q + across < w->k; q++)
        if (w->tap[q + across] - w->tap[q] != down) return;
    w->across = across;
    w->upwards = down < 0;
}

/* A convolution of the images of w; scratch is not read where nothing is packed. */
static void conv_run_product(gm_device *dev, conv_product *w, void *scratch, size_t each)
{
    conv_groups all = {.w = w, .of = conv_gemm, .scratch = scratch, .each = each};
    if (w->m >= CONV_FEW) {
        w->far = w->tap[0];
        for (int64_t q = 1; q < w->k; q++) w->far = w->tap[q] > w->far ? w->tap[q] : w->far;
        conv_multiply(dev, &all);
        return;
    }
    if (CPU_VECTOR == 64) conv_find_rows(w); /* others have too few registers */
    int64_t rows = w->images * w->groups * w->m * w->q[0] * w->q[1];
    cpu_parallel(dev, rows, w->q[2] * (w->k + 1) * (int64_t)gm_dtype_size(w->dtype),
                 CONV_JOB(w->dtype, conv_direct_part), w);
}

#include "convolution_ops.c"
