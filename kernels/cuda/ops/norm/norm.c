/* norm.c - layer_norm, rms_norm and their gradients, whole and in steps: even rows that a team can hold by
 * norm_held.cu, all others by norm.cu and columns.cu. */
#include "../columns/columns_args.h"
#include "../../runtime/cuda.h"
#include "norm_args.h"

#define RESIDENT_THREADS 512 /* of a multiprocessor that the gradient kernel fills: registers allow no more */
#define LEAST_ROWS       4   /* of a team whose sums over rows are written out */

/* A team holds its row, or reads it again for each pass. */
static gm_cuda_grid grid_of(const gm_tensor *x, int64_t rows, int32_t *team)
{
    return gm_rows_grid(rows, x->shape[x->ndim - 1], x->dtype, GM_NORM_PACKS(gm_dtype_size(x->dtype)), team);
}

/* The warps that hold a row of norm_held.cu, `packs` a thread. */
static int held_warps(int64_t width, gm_dtype t, int packs)
{
    int64_t each = packs * 32 * (16 / (int64_t)gm_dtype_size(t));
    return (int)((width + each - 1) / each);
}

/* A grid for norm_held.cu. Where a warp holds a row, a block has up to `most` of them; else a team is a block. There
 * are no more teams than run at once, and each has several rows. *team: as in gm_rows_grid. */
static gm_cuda_grid held_grid(const gm_device *dev, int64_t rows, int warps, int most, int32_t *team)
{
    int64_t teams = (rows + LEAST_ROWS - 1) / LEAST_ROWS;
    int     width = warps > 1 ? warps : teams < most ? (int)teams : most;
    int64_t blocks = warps > 1 ? teams : (teams + width - 1) / (width ? width : 1);
    int64_t resident = (int64_t)gm_cuda_multiprocessors(dev) * (width ? most / width : 1);
    *team = 32 * warps;
    return (gm_cuda_grid){
        .x = blocks < resident ? blocks : resident, .block = 32 * width, .shared = (size_t)(32 * width) * GM_NORM_ROOM};
}

static bool forward_held(const gm_norm_args *a, gm_dtype t)
{
    const gm_row_view *rows[] = {&a->x, &a->residual, &a->w, &a->b, &a->y, &a->sum};
    const gm_row_view *numbers[] = {&a->given_mean, &a->given_rstd, &a->mean, &a->rstd, &a->m2};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!gm_rows_even(rows[i], a->width, t)) return false;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!gm_rows_even(numbers[i], 0, t)) return false;
    return a->width > 0 && a->rows > 0 && held_warps(a->width, t, GM_NORM_HELD) <= GM_NORM_WARPS;
}

static bool backward_held(const gm_norm_grad_args *a, gm_dtype t)
{
    const gm_row_view *rows[] = {&a->g, &a->gsum, &a->x, &a->w, &a->dx};
    const gm_row_view *numbers[] = {&a->mean, &a->rstd, &a->given_h, &a->given_h_hat, &a->h, &a->h_hat};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!gm_rows_even(rows[i], a->width, t)) return false;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!gm_rows_even(numbers[i], 0, t)) return false;
    return a->width > 0 && a->rows > 0 && held_warps(a->width, t, GM_NORM_GRAD_HELD) <= GM_NORM_GRAD_WARPS;
}

static gm_status forward(gm_device *dev, const gm_tensor *x, gm_norm_args *a)
{
    char name[GM_CUDA_NAME];
    a->x = gm_rows_last(x);
    a->rows = gm_rows_count(x, x->ndim - 1);
    a->width = x->shape[x->ndim - 1];
    bool         held = forward_held(a, x->dtype);
    gm_cuda_grid grid = held ? held_grid(dev, a->rows, held_warps(a->width, x->dtype, GM_NORM_HELD), GM_NORM_WARPS,
                                         &a->team)
                             : grid_of(x, a->rows, &a->team);
    return GM_LAUNCH(dev, gm_cuda_name(name, held ? "gm_norm_held" : "gm_norm", x->dtype), grid, *a);
}

gm_status cuda_layer_norm(gm_device *dev, const gm_call *call)
{
    gm_tensor *const *in = call->in, *const *out = call->out;
    gm_norm_args      a = {.residual = gm_rows_last(in[1]),
                           .w = gm_rows_single(in[2]),
                           .b = gm_rows_single(in[3]),
                           .y = gm_rows_last(out[0]),
                           .sum = gm_rows_last(out[1]),
                           .mean = gm_rows_of(out[2], -1),
                           .rstd = gm_rows_of(out[3], -1),
                           .eps = call->attrs->eps,
                           .centered = 1};
    return forward(dev, in[0], &a);
}

gm_status cuda_rms_norm(gm_device *dev, const gm_call *call)
{
    gm_tensor *const *in = call->in, *const *out = call->out;
    gm_norm_args      a = {.residual = gm_rows_last(in[1]),
                           .w = gm_rows_single(in[2]),
                           .y = gm_rows_last(out[0]),
                           .sum = gm_rows_last(out[1]),
                           .rstd = gm_rows_of(out[2], -1),
                           .eps = call->attrs->eps};
    return forward(dev, in[0], &a);
}

gm_status cuda_norm_sums(gm_device *dev, const gm_call *call)
{
    gm_tensor *const *in = call->in, *const *out = call->out;
    if (in[1] && !out[0]) return GM_FAIL(GM_EINVAL, "norm_sums: the sum of x and residual is not asked for");
    gm_norm_args a = {.residual = gm_rows_last(in[1]),
                      .sum = gm_rows_last(out[0]),
                      .mean = gm_rows_of(out[1], -1),
                      .m2 = gm_rows_of(out[2], -1),
                      .centered = out[1] != NULL};
    return forward(dev, in[0], &a);
}

gm_status cuda_norm_apply(gm_device *dev, const gm_call *call)
{
    gm_tensor *const *in = call->in;
    gm_norm_args      a = {.w = gm_rows_single(in[1]),
                           .b = gm_rows_single(in[2]),
                           .given_mean = gm_rows_of(in[3], -1),
                           .given_rstd = gm_rows_of(in[4], -1),
                           .y = gm_rows_last(call->out[0])};
    return forward(dev, in[0], &a);
}

/* Sums over rows in a pass of their own: no team holds a whole row. */
static gm_status columns(gm_device *dev, const gm_norm_grad_args *a, gm_dtype t, const gm_tensor *dw,
                         const gm_tensor *db, bool accumulate)
{
    gm_columns_args c = {.g = a->g, .x = a->x, .mean = a->mean, .rstd = a->rstd, .rows = a->rows, .width = a->width};
    return gm_columns(dev, "gm_columns_norm", t, &c, dw, db, accumulate);
}

/* Fewer blocks, whose teams go on from row to row. */
static void keep_resident(const gm_device *dev, gm_cuda_grid *grid)
{
    int64_t most = (int64_t)gm_cuda_multiprocessors(dev) *
                   (grid->block < RESIDENT_THREADS ? RESIDENT_THREADS / grid->block : 1);
    int64_t blocks = (grid->x + LEAST_ROWS - 1) / LEAST_ROWS;
    grid->x = blocks < most ? blocks : most;
}

/* a: all but what all gradients have in common. dw, db: NULL where not wanted. */
static gm_status backward(gm_device *dev, const gm_tensor *x, gm_norm_grad_args *a, const gm_tensor *dw,
                          const gm_tensor *db, bool accumulate)
{
    char      name[GM_CUDA_NAME];
    gm_status st;
    gm_block *block = NULL;
    a->x = gm_rows_last(x);
    a->rows = gm_rows_count(x, x->ndim - 1);
    a->width = x->shape[x->ndim - 1];
    gm_dtype     t = x->dtype;
    gm_cuda_grid grid = grid_of(x, a->rows, &a->team);
    int64_t      size = (int64_t)gm_dtype_size(t), partial = 0; /* rows of partial sums */
    bool         held = a->width <= a->team * GM_NORM_PACKS(size) * (16 / size), sums = dw || db;
    bool         even = backward_held(a, t);
    if (even) {
        grid = held_grid(dev, a->rows, held_warps(a->width, t, GM_NORM_GRAD_HELD), GM_NORM_GRAD_WARPS, &a->team);
        partial = grid.x;
    } else if (sums && held) {
        keep_resident(dev, &grid);
        partial = grid.x * (grid.block / a->team);
    }
    held = held || even;
    if (sums && held) GM_TRY(gm_columns_scratch(dev, partial, dw, db, &a->dw, &a->db, &block));
    GM_TRY_OR(GM_LAUNCH(dev, gm_cuda_name(name, even ? "gm_norm_grad_held" : "gm_norm_grad", t), grid, *a), st, done);
    if (sums)
        st = held ? gm_columns_sum(dev, partial, dw, db, a->dw, a->db, accumulate)
                  : columns(dev, a, t, dw, db, accumulate);
done:
    if (block) gm_pool_release(dev->pool, block);
    return st;
}

gm_status cuda_layer_norm_grad(gm_device *dev, const gm_call *call)
{
    gm_tensor *const *in = call->in, *const *out = call->out;
    gm_norm_grad_args a = {.g = gm_rows_last(in[0]),
                           .gsum = gm_rows_last(in[1]),
                           .w = gm_rows_single(in[3]),
                           .mean = gm_rows_of(in[4], -1),
                           .rstd = gm_rows_of(in[5], -1),
                           .dx = gm_rows_last(out[0]),
                           .centered = 1};
    return backward(dev, in[2], &a, out[1], out[2], call->attrs->accumulate);
}

gm_status cuda_rms_norm_grad(gm_device *dev, const gm_call *call)
{
    gm_tensor *const *in = call->in, *const *out = call->out;
    gm_norm_grad_args a = {.g = gm_rows_last(in[0]),
                           .gsum = gm_rows_last(in[1]),
                           .w = gm_rows_single(in[3]),
                           .rstd = gm_rows_of(in[4], -1),
                           .dx = gm_rows_last(out[0])};
    return backward(dev, in[2], &a, out[1], NULL, call->attrs->accumulate);
}

gm_status cuda_norm_grad_sums(gm_device *dev, const gm_call *call)
{
    gm_tensor *const *in = call->in, *const *out = call->out;
    gm_norm_grad_args a = {.g = gm_rows_last(in[0]),
                           .w = gm_rows_single(in[2]),
                           .mean = gm_rows_of(in[3], -1),
                           .rstd = gm_rows_of(in[4], -1),
                           .h = gm_rows_of(out[2], -1),
                           .h_hat = gm_rows_of(out[3], -1)};
    return backward(dev, in[1], &a, out[0], out[1], false);
}

gm_status cuda_norm_grad_apply(gm_device *dev, const gm_call *call)
{
    gm_tensor *const *in = call->in;
    gm_norm_grad_args a = {.g = gm_rows_last(in[0]),
                           .gsum = gm_rows_last(in[1]),
                           .w = gm_rows_single(in[3]),
                           .mean = gm_rows_of(in[4], -1),
                           .rstd = gm_rows_of(in[5], -1),
                           .given_h = gm_rows_of(in[6], -1),
                           .given_h_hat = gm_rows_of(in[7], -1),
                           .dx = gm_rows_last(call->out[0])};
    return backward(dev, in[2], &a, NULL, NULL, false);
}
