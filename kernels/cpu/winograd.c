/* winograd.c - convolutions of 3 x 3 with stride 1 in f32, by minimal filtering F(2 x 2, 3 x 3).
 *
 * A tile of 2 x 2 results needs 36 products for each pair of channels when it is computed directly, and 16 here
 * (Winograd 1980; Lavin and Gray 2016): y = A' ((G w G') . (B' x B)) A, where x is the tile of 4 x 4 that these results
 * read. The sum over channels of the 16 products is 16 products of matrices, (outputs, channels) by (channels, tiles).
 * The three transforms are sums; those of weights halve, which is exact. The gradient of x is the same with kernels
 * turned by 180 degrees. The gradient of weights is G' (sum over tiles of (A g A') . (B' x B)) G.
 *
 * Rounding: errors are at most some 2 to 4 times those of the direct way, because tiles are summed before products are.
 * Measured, of normal numbers: 2.6e-7 of a result at 64 channels, 5.0e-7 at 256 (root of the mean square). What is not
 * finite in x reaches all four results of a tile that reads it. Only f32 takes this way: f64 is there to tell errors
 * from rounding. Which images are taken together depends on shapes alone, and sums go over channels (or tiles) in one
 * order, so the bits do not depend on the number of threads.
 *
 * All tensors are contiguous. v is (16, channels, row), m is (16, outputs, row), where column i of a row is tile i of
 * the images that are taken together; u is (16, outputs, channels), or of a transposed convolution (16, channels of x,
 * channels that are made). winograd_t.h has the loops. Part of cpu.c, before convolution_ops.c. */

#define WINO_BLOCK 64                 /* tiles of a row that are transformed one behind the other */
#define WINO_BYTES ((int64_t)2 << 20) /* of v and m together, about */
#define WINO_TILES 256                /* tiles that are taken together at least */
#define WINO_LEAST 64                 /* tiles below which the transform of the weights costs too much */
#define WINO_FEW   24                 /* channels below which the transforms of the images cost too much */
#define WINO_APART 48                 /* elements between the 16 parts, so that they do not lie in the same sets */

typedef struct wino {
    int64_t     channels, outputs; /* summed over, made */
    int64_t     s[2], t[2], low[2], tiles[2];
    int64_t     row, v_plane, m_plane, u_plane, columns; /* columns: of w, (rows, columns, 3, 3) */
    bool        turned, accumulate;
    const void *x, *w, *bias;
    void       *v, *m, *u, *c, *y; /* y = f(c) */
    gm_function f;
} wino;

#define AS 32
#include "as.h"
#include "winograd_t.h"
#define AS 0
#include "as.h"

/* Products of the 16 parts: of(w, part). */
typedef struct wino_products {
    const wino *w;
    gemm (*of)(const wino *w, int part);
    char  *scratch;
    size_t each;
} wino_products;

/* m = u v. Of a transposed convolution u lies as w does, and is read along its columns. */
static gemm wino_forward_gemm(const wino *w, int part)
{
    return (gemm){.m = w->outputs,
                  .n = w->row,
                  .k = w->channels,
                  .a = (const float *)w->u + part * w->u_plane,
                  .a_row = w->turned ? 1 : w->channels,
                  .a_k = w->turned ? w->outputs : 1,
                  .b = (const float *)w->v + part * w->v_plane,
                  .b_k = w->row,
                  .b_column = 1,
                  .c = (float *)w->m + part * w->m_plane,
                  .c_row = w->row,
                  .alpha = 1};
}

/* u = m v', or is added to. */
static gemm wino_weight_gemm(const wino *w, int part)
{
    return (gemm){.m = w->outputs,
                  .n = w->channels,
                  .k = w->row,
                  .a = (const float *)w->m + part * w->m_plane,
                  .a_row = w->row,
                  .a_k = 1,
                  .b = (const float *)w->v + part * w->v_plane,
                  .b_k = 1,
                  .b_column = w->row,
                  .c = (float *)w->u + part * w->u_plane,
                  .c_row = w->channels,
                  .alpha = 1,
                  .accumulate = w->accumulate};
}

static void wino_products_part(void *context, int64_t begin, int64_t end, int thread)
{
    const wino_products *p = context;
    for (int64_t part = begin; part < end; part++) {
        gemm g = p->of(p->w, (int)part);
        gemm_run(NULL, GM_F32, &g, p->scratch + (size_t)thread * p->each);
    }
}

/* With more threads than products all threads share each of them. */
static bool wino_apart(gm_device *dev) { return gm_threads_count(dev->threads) <= 16; }

static size_t wino_scratch(gm_device *dev, wino_products *p)
{
    int  threads = gm_threads_count(dev->threads);
    gemm g = p->of(p->w, 0);
    p->each = conv_most_scratch(GM_F32, &g, wino_apart(dev) ? 1 : threads);
    return wino_apart(dev) ? p->each * (size_t)threads : p->each;
}

static void wino_multiply(gm_device *dev, wino_products *p)
{
    gemm g = p->of(p->w, 0);
    if (wino_apart(dev)) {
        gemm_parallel(dev->threads, 16, g.m * g.n * (g.k + 8) / 16, wino_products_part, p);
        return;
    }
    for (int part = 0; part < 16; part++) {
        g = p->of(p->w, part);
        gemm_run(dev->threads, GM_F32, &g, p->scratch);
    }
}

/* Is this way open, and the faster one? turned: for the transposed one, whose result is the side of s. Tiles that reach
 * over the edge of small images make 16 products where 9 places would do. */
static bool wino_fits(gm_dtype dtype, const conv_shape *s, bool turned)
{
    const int64_t *size = turned ? s->s : s->t;
    int64_t        tiles = (size[1] + 1) / 2 * ((size[2] + 1) / 2);
    int64_t        least = s->channels < s->outputs ? s->channels : s->outputs;
    bool           plain = dtype == GM_F32 && s->groups == 1 && s->s[0] == 1 && s->t[0] == 1 && s->kernel[0] == 1;
    for (int d = 1; d < 3; d++) plain = plain && s->kernel[d] == 3 && s->stride[d] == 1 && s->dilation[d] == 1;
    return plain && least >= WINO_FEW && s->images * tiles >= WINO_LEAST && 5 * size[1] * size[2] >= 12 * tiles;
}

/* Sizes, for results of `t` that read from `s`. Returns how many images are taken together. */
static int64_t wino_sizes(wino *w, int64_t images, const int64_t *s, const int64_t *t)
{
    for (int d = 0; d < 2; d++) {
        w->s[d] = s[d + 1];
        w->t[d] = t[d + 1];
        w->tiles[d] = (w->t[d] + 1) / 2;
    }
    int64_t tiles = w->tiles[0] * w->tiles[1], most = WINO_BYTES / (64 * (w->channels + w->outputs));
    int64_t n = ((most > WINO_TILES ? most : WINO_TILES) + tiles - 1) / tiles;
    n = n < images ? n : images;
    n = (images + (images + n - 1) / n - 1) / ((images + n - 1) / n);
    w->u_plane = w->channels * w->outputs + WINO_APART;
    w->row = n * tiles;
    w->v_plane = w->channels * w->row + WINO_APART;
    w->m_plane = w->outputs * w->row + WINO_APART;
    return n;
}

/* Room for u, v, m and the products. */
static gm_status wino_take(conv_call *c, wino *w, wino_products *p)
{
    void *room[4];
    GM_TRY(conv_take(
        c, 4,
        (size_t[]){(size_t)w->u_plane * 64, (size_t)w->v_plane * 64, (size_t)w->m_plane * 64, wino_scratch(c->dev, p)},
        room));
    w->u = room[0];
    w->v = room[1];
    w->m = room[2];
    p->scratch = room[3];
    return GM_OK;
}

/* The sizes for the images from number `first` on; the last ones may be fewer. */
static int64_t wino_images(wino *w, int64_t images, int64_t first, int64_t together)
{
    int64_t n = images - first < together ? images - first : together;
    w->row = n * w->tiles[0] * w->tiles[1];
    return n;
}

/* w: channels, outputs, low, turned, columns, and the tensors. */
static gm_status wino_run(conv_call *c, wino *w, int64_t images, const int64_t *s, const int64_t *t)
{
    int64_t       together = wino_sizes(w, images, s, t), x_plane = w->s[0] * w->s[1], y_plane = w->t[0] * w->t[1];
    wino_products p = {.w = w, .of = wino_forward_gemm};
    const float  *x = w->x;
    float        *pre = w->c, *y = w->y;
    GM_TRY(wino_take(c, w, &p));
    cpu_parallel(c->dev, w->channels * w->outputs / w->columns, w->columns * 160, wino_weights_part_f32, w);
    for (int64_t i = 0; i < images; i += together) {
        int64_t n = wino_images(w, images, i, together);
        w->x = x + i * w->channels * x_plane;
        w->c = pre + i * w->outputs * y_plane;
        w->y = y + i * w->outputs * y_plane;
        cpu_parallel(c->dev, n * w->channels, x_plane * 24, wino_input_part_f32, w);
        wino_multiply(c->dev, &p);
        cpu_parallel(c->dev, n * w->outputs, y_plane * 24, wino_output_part_f32, w);
    }
    return GM_OK;
}

/* turned: the transposed one, whose x is the side of t. */
static gm_status wino_convolution(conv_call *c, const gm_attrs *at, const conv_shape *s, bool turned)
{
    void *y = gm_tensor_data(c->out[0]);
    wino  w = {.channels = turned ? s->outputs : s->channels,
               .outputs = turned ? s->channels : s->outputs,
               .columns = s->channels,
               .turned = turned,
               .x = gm_tensor_data(c->in[0]),
               .w = gm_tensor_data(c->in[1]),
               .bias = conv_data(c->in[2]),
               .y = y,
               .c = c->out[1] ? gm_tensor_data(c->out[1]) : y,
               .f = at->function};
    for (int d = 0; d < 2; d++) w.low[d] = turned ? 2 - s->low[d + 1] : s->low[d + 1];
    return wino_run(c, &w, s->images, turned ? s->t : s->s, turned ? s->s : s->t);
}

/* dw, from g and x. */
static gm_status wino_weights(conv_call *c, const gm_attrs *at, const conv_shape *s)
{
    wino w = {.channels = s->channels, .outputs = s->outputs, .columns = s->channels, .low = {s->low[1], s->low[2]}};
    wino_products p = {.w = &w, .of = wino_weight_gemm};
    int64_t       together = wino_sizes(&w, s->images, s->s, s->t), x_plane = w.s[0] * w.s[1];
    int64_t       g_plane = w.t[0] * w.t[1];
    GM_TRY(wino_take(c, &w, &p));
    for (int64_t i = 0; i < s->images; i += together) {
        int64_t n = wino_images(&w, s->images, i, together);
        w.x = (const float *)gm_tensor_data(c->in[1]) + i * w.channels * x_plane;
        w.y = (float *)gm_tensor_data(c->in[0]) + i * w.outputs * g_plane;
        w.accumulate = i > 0;
        cpu_parallel(c->dev, n * w.channels, x_plane * 24, wino_input_part_f32, &w);
        cpu_parallel(c->dev, n * w.outputs, g_plane * 24, wino_gradient_part_f32, &w);
        wino_multiply(c->dev, &p);
    }
    w.c = gm_tensor_data(c->out[0]);
    w.accumulate = at->accumulate;
    cpu_parallel(c->dev, w.outputs, w.columns * 160, wino_weight_grad_part_f32, &w);
    return GM_OK;
}
