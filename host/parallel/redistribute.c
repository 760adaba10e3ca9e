/* redistribute.c - runs the plans of redistribute_plan.c on blocks, and makes them differentiable. */
#include "redistribute.h"

#include <string.h>
#include "../autograd/tape.h"
#include "../comm/comm.h"

/* What a step needs to know. */
typedef struct work {
    gm_rank                    *rank;
    gm_device                  *device;
    gm_comm                    *comm;
    const gm_redistribute_step *step;
    int                         ndim;
    int64_t                     before[GM_MAX_DIMS], after[GM_MAX_DIMS]; /* shapes of the block */
} work;

static gm_status new_tensor(const work *w, gm_dtype dtype, const int64_t *shape, gm_tensor **out)
{
    gm_rank_place(w->rank, "redistribute");
    return gm_tensor_new(w->device, dtype, w->ndim, shape, out);
}

/* dst[.., at : at + n, ..] = src[.., from : from + n, ..] along dim; n may be 0. */
static gm_status copy_part(gm_device *dev, int dim, gm_tensor *dst, int64_t at, gm_tensor *src, int64_t from, int64_t n)
{
    gm_tensor *to = NULL, *part = NULL;
    gm_status  st = GM_OK;
    if (n <= 0) return GM_OK;
    GM_TRY_OR(gm_tensor_narrow(dst, dim, at, n, &to), st, done);
    GM_TRY_OR(gm_tensor_narrow(src, dim, from, n, &part), st, done);
    st = gm_run_one(dev, GM_OP_copy, NULL, part, to);
done:
    gm_tensor_release(to);
    gm_tensor_release(part);
    return st;
}

/* A new block of `shape`: n of t along dim from `from` on, at `at`, zeros elsewhere. */
static gm_status place(const work *w, int dim, const int64_t *shape, int64_t at, gm_tensor *t, int64_t from, int64_t n,
                       gm_tensor **out)
{
    gm_tensor *y = NULL;
    gm_status  st;
    GM_TRY(new_tensor(w, t->dtype, shape, &y));
    if (n < shape[dim]) GM_TRY_OR(gm_run_one(w->device, GM_OP_fill, NULL, NULL, y), st, fail);
    GM_TRY_OR(copy_part(w->device, dim, y, at, t, from, n), st, fail);
    *out = y;
    return GM_OK;
fail:
    gm_tensor_release(y);
    return st;
}

/* t contiguous and `size` long along dim: zeros are added or the end is cut off. t itself (retained) if it is so. */
static gm_status fit(const work *w, gm_tensor *t, int dim, int64_t size, gm_tensor **out)
{
    int64_t shape[GM_MAX_DIMS];
    if (t->shape[dim] == size && gm_tensor_is_contiguous(t)) {
        gm_tensor_retain(t);
        *out = t;
        return GM_OK;
    }
    memcpy(shape, t->shape, sizeof shape);
    shape[dim] = size;
    return place(w, dim, shape, 0, t, 0, size < t->shape[dim] ? size : t->shape[dim], out);
}

static int axis_of(const work *w)
{
    int a = 0;
    while (!(w->step->axes & 1u << a)) a++;
    return a;
}

static int64_t coordinate(const work *w) { return w->rank->coordinate[axis_of(w)]; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* replicated -> cut: this rank's part of its block, the last one filled up with zeros */
static gm_status slice(const work *w, gm_tensor *t, gm_tensor **out)
{
    int     d = w->step->dim;
    int64_t from = least(coordinate(w) * w->after[d], t->shape[d]);
    return place(w, d, w->after, 0, t, from, least(w->after[d], t->shape[d] - from), out);
}

/* cut -> partial: the block where it belongs, zeros around it */
static gm_status embed(const work *w, gm_tensor *t, gm_tensor **out)
{
    int     d = w->step->dim;
    int64_t at = least(coordinate(w) * t->shape[d], w->after[d]);
    return place(w, d, w->after, at, t, 0, least(t->shape[d], w->after[d] - at), out);
}

/* A copy of t; t itself (retained) where it is ours alone. */
static gm_status copy_unless_own(const work *w, gm_tensor *t, bool own, gm_tensor **out)
{
    gm_tensor *y = NULL;
    if (own) {
        gm_tensor_retain(t);
        *out = t;
        return GM_OK;
    }
    GM_TRY(new_tensor(w, t->dtype, t->shape, &y));
    gm_status st = gm_run_one(w->device, GM_OP_copy, NULL, t, y);
    if (st == GM_OK) *out = y;
    else gm_tensor_release(y);
    return st;
}

/* replicated -> partial: as it is at coordinate 0 (a copy: no rank's result shares memory with what it came from) */
static gm_status mask(const work *w, gm_tensor *t, bool own, gm_tensor **out)
{
    gm_tensor *y = NULL;
    if (!coordinate(w)) return copy_unless_own(w, t, own, out);
    GM_TRY(new_tensor(w, t->dtype, t->shape, &y));
    gm_status st = gm_run_one(w->device, GM_OP_fill, NULL, NULL, y);
    if (st == GM_OK) *out = y;
    else gm_tensor_release(y);
    return st;
}

/* The collective itself, between buffers that fit it. */
static gm_status communicate(const work *w, gm_group *g, gm_tensor *in, gm_tensor *to)
{
    int d = w->step->dim;
    if (w->step->kind == GM_STEP_GATHER) return gm_comm_all_gather(w->comm, g, in, d, to, NULL);
    if (w->step->kind == GM_STEP_SCATTER) return gm_comm_reduce_scatter(w->comm, g, in, d, GM_SUM, to, NULL);
    return gm_comm_all_to_all(w->comm, g, in, w->step->to_dim, to, d, NULL);
}

/* gather, scatter, exchange: what is to be cut is padded to p blocks, what was cut is trimmed to its parent's. */
static gm_status transfer(const work *w, gm_tensor *t, gm_tensor **out)
{
    const gm_redistribute_step *s = w->step;
    gm_tensor                  *in = NULL, *to = NULL;
    gm_group                   *g = NULL;
    gm_status                   st;
    int                         joined = s->kind == GM_STEP_SCATTER ? -1 : s->dim;
    int     split = s->kind == GM_STEP_GATHER ? -1 : s->kind == GM_STEP_SCATTER ? s->dim : s->to_dim;
    int64_t p, shape[GM_MAX_DIMS];
    GM_TRY(gm_comm_group(w->comm, s->axes, &g));
    p = gm_group_size(g);
    memcpy(shape, w->after, sizeof shape);
    if (joined >= 0) shape[joined] = w->before[joined] * p;
    GM_TRY_OR(fit(w, t, split < 0 ? joined : split, split < 0 ? t->shape[joined] : w->after[split] * p, &in), st, done);
    GM_TRY_OR(new_tensor(w, t->dtype, shape, &to), st, done);
    GM_TRY_OR(communicate(w, g, in, to), st, done);
    st = fit(w, to, joined < 0 ? split : joined, w->after[joined < 0 ? split : joined], out);
done:
    gm_tensor_release(in);
    gm_tensor_release(to);
    return st;
}

/* partial -> replicated */
static gm_status reduce(const work *w, gm_tensor *t, bool own, gm_tensor **out)
{
    gm_tensor *y = NULL;
    gm_group  *g = NULL;
    GM_TRY(gm_comm_group(w->comm, w->step->axes, &g));
    GM_TRY(copy_unless_own(w, t, own, &y));
    gm_status st = gm_comm_all_reduce(w->comm, g, y, GM_SUM, NULL);
    if (st == GM_OK) *out = y;
    else gm_tensor_release(y);
    return st;
}

/* own: t is a block that an earlier step made. */
static gm_status run_step(const work *w, gm_tensor *t, bool own, gm_tensor **out)
{
    switch (w->step->kind) {
    case GM_STEP_SLICE: return slice(w, t, out);
    case GM_STEP_EMBED: return embed(w, t, out);
    case GM_STEP_MASK: return mask(w, t, own, out);
    case GM_STEP_REDUCE: return reduce(w, t, own, out);
    case GM_STEP_GATHER:
    case GM_STEP_EXCHANGE:
    case GM_STEP_SCATTER: break;
    }
    return transfer(w, t, out);
}

static gm_status check_block(const gm_rank *r, const gm_tensor *block, const gm_layout *layout, int ndim,
                             const int64_t *shape, const int64_t *local)
{
    char have[96], whole[96], text[160];
    bool fits = block->ndim == ndim && !memcmp(block->shape, local, (size_t)ndim * sizeof *local);
    if (fits) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "redistribute: %s is no block of a tensor %s laid out %s",
                   gm_tensor_describe(block, have, sizeof have), gm_shape_describe(ndim, shape, whole, sizeof whole),
                   gm_layout_describe(&r->mesh, layout, ndim, text, sizeof text));
}

gm_status gm_redistribute_block(gm_rank *r, gm_tensor *block, const gm_layout *from, const gm_layout *to, int ndim,
                                const int64_t *shape, gm_tensor **out)
{
    const gm_redistribute_step *steps; /* hold: no step makes a plan or sets a mesh */
    work                        w = {.rank = r, .device = block->storage->device, .ndim = ndim};
    gm_tensor                  *held = block, *next;
    gm_status                   st = GM_OK;
    bool                        sent = false;
    int                         n;
    /* first: a rank that is alone gets its comm now, and with it a mesh, which empties the memory of plans */
    if (!gm_layout_equal(from, to)) GM_TRY(gm_rank_comm(r, &w.comm));
    GM_TRY(gm_redistribute_plan_of(r, from, to, ndim, shape, gm_dtype_size(block->dtype), &steps, &n));
    gm_layout_local(&r->mesh, from, ndim, shape, w.after);
    GM_TRY(check_block(r, block, from, ndim, shape, w.after));
    gm_tensor_retain(held);
    for (int i = 0; i < n; i++) {
        memcpy(w.before, w.after, sizeof w.before);
        gm_layout_local(&r->mesh, &steps[i].after, ndim, shape, w.after);
        w.step = &steps[i];
        next = NULL;
        GM_TRY_OR(run_step(&w, held, held != block, &next), st, fail);
        sent |= steps[i].bytes > 0;
        gm_tensor_release(held);
        held = next;
    }
    *out = held;
    return GM_OK;
fail:
    gm_tensor_release(held);
    return sent ? gm_comm_once(st) : st;
}

/* What the gradient of x is partial over: where it came so and x may have it so. */
static uint32_t gradient_partial(const gm_layout *x, uint32_t g) { return g & ~gm_layout_cut_axes(x) & ~x->partial; }

/* y's gradient has y's cuts, is replicated where y is partial, and perhaps partial where y is replicated. */
static void redistribute_rule(gm_backward *b)
{
    gm_work         *w = gm_backward_work(b);
    const int64_t   *shape;
    const gm_layout *x = gm_backward_input_layout(b, 0, &shape), *y = gm_backward_output_layout(b, 0, NULL);
    gm_layout        from = *y, to = *x;
    gm_tensor       *dx = NULL, *g = gm_backward_grad(b, 0);
    from.partial = gm_backward_partial(b);
    to.partial = gradient_partial(x, from.partial);
    GM_STEP(w, gm_redistribute_block(w->rank, g, &from, &to, gm_backward_input(b, 0)->ndim, shape, &dx));
    gm_backward_set_partial(b, 0, to.partial);
    gm_backward_give(b, 0, gm_work_hold(w, dx));
}

gm_status gm_redistribute(gm_rank *r, gm_value *x, const gm_layout *to, gm_value **y)
{
    gm_tensor *block = NULL;
    gm_value  *v = NULL;
    gm_status  st;
    if (gm_layout_equal(&x->layout, to)) {
        gm_value_retain(x);
        *y = x;
        return GM_OK;
    }
    GM_TRY(gm_redistribute_block(r, x->local, &x->layout, to, x->ndim, x->shape, &block));
    GM_TRY(gm_value_take_block(r, block, to, x->ndim, x->shape, &v));
    gm_record rec = {.name = "redistribute", .rule = redistribute_rule, .n_in = 1, .in = &x, .n_out = 1, .out = &v};
    GM_TRY_OR(gm_tape_record(r, &rec), st, fail);
    *y = v;
    return GM_OK;
fail:
    gm_value_release(v);
    return st;
}

gm_status gm_settle(gm_rank *r, gm_value *x, gm_value **y)
{
    gm_layout sum = x->layout;
    sum.partial = 0;
    return gm_redistribute(r, x, &sum, y);
}

gm_status gm_gather_value(gm_rank *r, gm_value *x, gm_value **y)
{
    gm_layout whole = gm_layout_replicated();
    return gm_redistribute(r, x, &whole, y);
}
