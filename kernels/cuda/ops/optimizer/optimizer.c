/* optimizer.c - sum_squares and the optimizers: one launch for all tensors of a call (optimizer.cu); step_control. */
#include "optimizer_args.h"

#include <stdlib.h>
#include "optimizer_table.h"

static void add_role(gm_entry *e, int role, const gm_tensor *t)
{
    if (!t) return;
    e->data[role] = gm_tensor_data(t);
    e->dense = e->dense && gm_tensor_is_contiguous(t);
    e->vectors = e->vectors && e->dense && (uintptr_t)e->data[role] % 16 == 0;
    for (int d = 0; d < t->ndim; d++) e->stride[role][d] = t->stride[d];
}

/* One tensor and its n_out outputs: p, moments, master, trust; n_out is 0 where only g is read. */
static gm_entry entry_of(const gm_tensor *g, int n_out, gm_tensor *const *out, int64_t chunk)
{
    gm_entry e = {
        .n = gm_tensor_numel(g), .chunk = chunk, .dtype = g->dtype, .dense = 1, .vectors = 1, .ndim = g->ndim};
    for (int d = 0; d < g->ndim; d++) e.shape[d] = g->shape[d];
    add_role(&e, GM_ROLE_G, g);
    if (!n_out) return e;
    e.rows = gm_state_rows_of(g->ndim, g->shape);
    const gm_tensor *trust = out[n_out - 1];
    add_role(&e, GM_ROLE_P, out[0]);
    add_role(&e, GM_ROLE_MASTER, out[n_out - 2]);
    for (int k = 0; k < n_out - 3; k++) add_role(&e, GM_ROLE_MOMENT + k, out[1 + k]);
    if (trust) e.trust = gm_tensor_data(trust), e.trust_stride = trust->stride[0];
    return e;
}

/* Entries of all tensors from input `first` on that have elements, on the device; a->count and a->chunks of them. */
static gm_status table(gm_device *dev, const gm_call *call, int first, int n_out, gm_update_args *a)
{
    gm_entry *entries = calloc((size_t)call->n_in + 1, sizeof *entries);
    if (!entries)
        return GM_FAIL(GM_ENOMEM, "%s: no memory for a table of %d tensors", gm_op_name(call->op), call->n_in);
    for (int k = first; k < call->n_in; k++) {
        if (!gm_tensor_numel(call->in[k])) continue;
        gm_entry e = entry_of(call->in[k], n_out, call->out + n_out * (k - first), a->chunks);
        int64_t  units = e.n;
        if (a->states == GM_STATES_BLOCKS) units = GM_STATE_BLOCK * e.rows.blocks;
        a->chunks += (units + GM_UPDATE_CHUNK - 1) / GM_UPDATE_CHUNK;
        entries[a->count++] = e;
    }
    if (a->count) return gm_table_take(dev, entries, a->count, &a->entries);
    free(entries);
    return GM_OK;
}

static gm_cuda_grid grid_of(const gm_update_args *a)
{
    return (gm_cuda_grid){.x = a->chunks, .block = GM_UPDATE_THREADS, .shared = GM_SUM_WORDS * sizeof(double)};
}

static gm_cuda_grid update_grid_of(const gm_update_args *a)
{
    gm_cuda_grid grid = grid_of(a);
    grid.shared += sizeof(gm_update_step);
    return grid;
}

/* Squares of each chunk, then their sum. */
gm_status cuda_sum_squares(gm_device *dev, const gm_call *call)
{
    gm_status      st;
    gm_block      *block;
    void          *part;
    gm_update_args a = {0};
    gm_cuda_grid   one = {.x = 1, .block = GM_JOIN_THREADS, .shared = GM_SUM_WORDS * sizeof(double)};
    GM_TRY(table(dev, call, 0, 0, &a));
    GM_TRY(gm_cuda_scratch(dev, (size_t)(a.chunks + 1) * sizeof(double), &part, &block));
    a.part = part;
    gm_join_args j = {.part = part, .y = gm_tensor_data(call->out[0]), .n = a.chunks};
    GM_TRY_OR(GM_LAUNCH(dev, "gm_sum_squares", grid_of(&a), a), st, done);
    st = GM_LAUNCH(dev, "gm_sum_squares_join", one, j);
done:
    gm_pool_release(dev->pool, block);
    return st;
}

/* Squares of each chunk, then their sums for each tensor. */
static gm_status measure(gm_device *dev, const char *kernel, gm_update_args *a)
{
    gm_block    *block;
    void        *part;
    gm_status    st;
    gm_cuda_grid joins = {.x = a->count, .block = 32};
    GM_TRY(gm_cuda_scratch(dev, (size_t)(2 * a->chunks + 1) * sizeof(double), &part, &block));
    a->part = part;
    GM_TRY_OR(GM_LAUNCH(dev, kernel, update_grid_of(a), *a), st, done);
    st = GM_LAUNCH(dev, "gm_measure_join", joins, *a);
done:
    gm_pool_release(dev->pool, block);
    return st;
}

/* Where the one tensor of a call is in the global one. */
static void place_words(gm_update_args *a, const gm_call *call)
{
    const gm_box *box = &call->attrs->box;
    if (!(a->boxed = box->ndim > 0)) return;
    gm_shape_strides(box->ndim, box->shape, a->whole);
    for (int d = 0; d < box->ndim; d++) a->first += (uint64_t)(box->offset[d] * a->whole[d]);
}

/* momentum: or beta1, as optimizers.def says. */
static gm_status update(gm_device *dev, const gm_call *call, double momentum, unsigned there, unsigned squares,
                        const char *kernel)
{
    const gm_attrs *at = call->attrs;
    int             n_out = call->n_in > 2 ? call->n_out / (call->n_in - 2) : 0; /* of each gradient */
    gm_update_args  a = {
         .lr_scale = at->lr_scale,
         .lr_decay = at->lr_decay,
         .weight_decay = at->weight_decay,
         .momentum = momentum,
         .dampening = at->dampening,
         .beta2 = at->beta2,
         .eps = at->eps,
         .trust = {at->trust, at->trust_coefficient, at->eps, at->weight_decay, at->trust_min, at->trust_max},
         .key = at->stream.key,
         .nesterov = at->nesterov,
         .decoupled = at->decoupled,
         .maximize = at->maximize,
         .amsgrad = at->amsgrad,
         .stochastic = at->stochastic,
         .corrects = call->op == GM_OP_adam && at->bias_correction,
         .early_eps = at->early_eps,
         .there = there,
         .squares = squares,
         .states = at->states};
    place_words(&a, call);
    if (call->in[0]) a.control = gm_tensor_data(call->in[0]), a.control_stride = call->in[0]->stride[0];
    if (call->in[1]) a.missed = gm_tensor_data(call->in[1]);
    GM_TRY(gm_cuda_step(dev, &a.step));
    GM_TRY(table(dev, call, 2, n_out, &a));
    if (at->measure) return a.count ? measure(dev, kernel, &a) : GM_OK;
    return GM_LAUNCH(dev, kernel, update_grid_of(&a), a);
}

#define GM_OPTIMIZER(name, moments, there, positive, momentum, ...)                     \
    gm_status cuda_##name(gm_device *dev, const gm_call *call)                          \
    {                                                                                   \
        const gm_attrs *at = call->attrs;                                               \
        return update(dev, call, at->momentum, (unsigned)(there), (unsigned)(positive), \
                      at->states ? "gm_states_" #name : "gm_update_" #name);            \
    }
#include "../../../optimizers.def"
#undef GM_OPTIMIZER

/* What kernels of this step have refused halts the updates too: gradients that a bad index left out are wrong. */
gm_status cuda_step_control(gm_device *dev, const gm_call *call)
{
    const gm_attrs *at = call->attrs;
    gm_cuda        *cu = gm_cuda_of(dev);
    gm_control_args a = {
        .count = call->n_in - 2,
        .loss = gm_tensor_data(call->in[0]),
        .norm = call->in[1] ? gm_tensor_data(call->in[1]) : NULL,
        .refusal = (const gm_refusal *)(uintptr_t)cu->refusal,
        .control = gm_tensor_data(call->out[0]),
        .loss_stride = call->in[0]->stride[0],
        .stride = call->out[0]->stride[0],
        .rule = {at->max_norm, at->growth, at->backoff, (double)at->growth_interval, (int)at->not_finite}};
    gm_cuda_grid one = {.x = 1, .block = 32};
    for (int k = 0; k < a.count; k++) {
        const gm_tensor *t = call->in[2 + k];
        a.squares[k] = (gm_control_numbers){gm_tensor_data(t), gm_tensor_numel(t), t->ndim ? t->stride[0] : 1};
    }
    return GM_LAUNCH(dev, "gm_step_control", one, a);
}
