/* loss.c - cross_entropy, its gradient, and both at once (loss.cu). */
#include "../../runtime/cuda.h"
#include "loss_args.h"

#define RESCALE_THREADS 512
#define RESCALE_BLOCKS  2         /* on each multiprocessor */
#define HELD_LEAST      (8 << 10) /* bytes of a row that a block keeps: shorter ones stay in the caches anyway */
#define OF_BLOCK        ((size_t)1 << 10) /* shared memory that a GPU takes for itself, for each block */

static gm_status fill(gm_device *dev, const gm_call *call, gm_loss_args *a)
{
    const gm_tensor *x = call->in[0], *target = call->in[1];
    a->x = gm_rows_last(x);
    a->target = gm_rows_of(target, -1);
    a->rows = gm_rows_count(x, x->ndim - 1);
    a->width = x->shape[x->ndim - 1];
    a->ignore = call->attrs->ignore_index;
    a->smoothing = call->attrs->label_smoothing;
    a->narrow = target->dtype == GM_I32;
    a->op = (int32_t)call->op;
    return gm_cuda_refusal(dev, &a->refusal);
}

static bool is_even(const gm_loss_args *a, gm_dtype t)
{
    return gm_rows_even(&a->x, a->width, t) && gm_rows_even(&a->dx, a->width, t);
}

/* kernel: its name for any rows; even: for even ones. smooth: the loss of even rows is without smoothing. */
static gm_status launch(gm_device *dev, const gm_call *call, const char *kernel, const char *even, bool smooth,
                        gm_loss_args *a)
{
    char         name[GM_CUDA_NAME];
    gm_dtype     t = call->in[0]->dtype;
    gm_cuda_grid grid = gm_rows_grid(a->rows, a->width, t, GM_LOSS_PACKS, &a->team);
    if ((!smooth || !(a->smoothing > 0)) && is_even(a, t)) kernel = even;
    return GM_LAUNCH(dev, gm_cuda_name(name, kernel, t), grid, *a);
}

gm_status cuda_cross_entropy(gm_device *dev, const gm_call *call)
{
    gm_loss_args a = {.loss = gm_rows_of(call->out[0], -1),
                      .largest = gm_rows_of(call->out[1], -1),
                      .sum = gm_rows_of(call->out[2], -1)};
    GM_TRY(fill(dev, call, &a));
    return launch(dev, call, "gm_cross_entropy", "gm_cross_entropy_even", true, &a);
}

gm_status cuda_cross_entropy_grad(gm_device *dev, const gm_call *call)
{
    gm_loss_args a = {.largest = gm_rows_of(call->in[2], -1),
                      .sum = gm_rows_of(call->in[3], -1),
                      .g = gm_rows_of(call->in[4], -1),
                      .dx = gm_rows_last(call->out[0])};
    GM_TRY(fill(dev, call, &a));
    return launch(dev, call, "gm_cross_entropy_grad", "gm_cross_entropy_grad_even", false, &a);
}

/* Of the teams that a block may have: the one of which the last turn over a row's packs leaves the fewest idle. */
static int held_team(int64_t packs)
{
    int64_t best = GM_LOSS_HELD_MOST;
    for (int64_t team = GM_LOSS_HELD_MOST; team >= GM_LOSS_HELD_LEAST; team -= 32)
        if ((packs + team - 1) / team * team < (packs + best - 1) / best * best) best = team;
    return (int)best;
}

/* Blocks that keep a row each in shared memory; none where rows are not for them. */
static gm_cuda_grid held_grid(gm_device *dev, const gm_loss_args *a, gm_dtype t)
{
    size_t  row = (size_t)a->width * gm_dtype_size(t), bytes = row + GM_LOSS_HELD_ROOM;
    size_t  all = gm_cuda_shared_most(dev) + OF_BLOCK;
    bool    two = 2 * (bytes + OF_BLOCK) <= all;
    int64_t most = gm_cuda_multiprocessors(dev) * (two ? 2 : 1);
    bool    fits = t != GM_F64 && !(a->smoothing > 0) && is_even(a, t) && bytes + OF_BLOCK <= all;
    if (!fits || row < HELD_LEAST) return (gm_cuda_grid){.x = 0};
    return (gm_cuda_grid){.x = a->rows < most ? a->rows : most, .block = held_team((int64_t)row / 16), .shared = bytes};
}

gm_status cuda_cross_entropy_both(gm_device *dev, const gm_call *call)
{
    char         name[GM_CUDA_NAME];
    gm_dtype     t = call->in[0]->dtype;
    gm_loss_args a = {
        .g = gm_rows_of(call->in[2], -1), .loss = gm_rows_of(call->out[0], -1), .dx = gm_rows_last(call->out[1])};
    GM_TRY(fill(dev, call, &a));
    a.op = GM_OP_cross_entropy; /* what users have called, for messages */
    gm_cuda_grid held = held_grid(dev, &a, t);
    if (held.x) return GM_LAUNCH(dev, gm_cuda_name(name, "gm_cross_entropy_held", t), held, a);
    return launch(dev, call, "gm_cross_entropy_both", "gm_cross_entropy_both_even", true, &a);
}

gm_status cuda_rescale_rows(gm_device *dev, const gm_call *call)
{
    char         name[GM_CUDA_NAME];
    gm_tensor   *x = call->out[0];
    gm_loss_args a = {.scale = gm_rows_of(call->in[0], -1),
                      .g = gm_rows_of(call->in[1], -1),
                      .dx = gm_rows_last(x),
                      .rows = gm_rows_count(x, x->ndim - 1),
                      .width = x->shape[x->ndim - 1]};
    int64_t      most = (int64_t)gm_cuda_multiprocessors(dev) * RESCALE_BLOCKS;
    gm_cuda_grid grid = {.x = a.rows < most ? a.rows : most, .block = RESCALE_THREADS};
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_rescale_rows", x->dtype), grid, a);
}
