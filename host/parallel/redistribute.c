/* redistribute.c - runs the plans of redistribute_plan.c on blocks, and records their backward. */
#include "redistribute.h"

#include <string.h>
#include "../autograd/tape.h"
#include "../comm/comm.h"

/* What a step needs to know. */
typedef struct stage {
    gm_work                    *work;
    gm_comm                    *comm;
    const gm_redistribute_step *step;
    int                         ndim;
    int64_t                     before[GM_MAX_DIMS], after[GM_MAX_DIMS]; /* shapes of the block */
} stage;

/* A new block of `shape`: n of t along dim from `from` on, at `at`, zeros elsewhere. */
static gm_tensor *place(const stage *s, int dim, const int64_t *shape, int64_t at, gm_tensor *t, int64_t from,
                        int64_t n)
{
    gm_work   *w = s->work;
    gm_tensor *y = w->st == GM_OK ? gm_work_new(w, t->dtype, s->ndim, shape) : NULL;
    if (n < shape[dim]) gm_work_fill(w, y, 0);
    if (n > 0) gm_work_copy(w, gm_work_narrow(w, t, dim, from, n), gm_work_narrow(w, y, dim, at, n));
    return y;
}

/* t contiguous and `size` long along dim: zeros are added or the end is cut off. t itself if it is so. */
static gm_tensor *fit(const stage *s, gm_tensor *t, int dim, int64_t size)
{
    int64_t shape[GM_MAX_DIMS];
    if (s->work->st != GM_OK || (t->shape[dim] == size && gm_tensor_is_contiguous(t))) return t;
    memcpy(shape, t->shape, sizeof shape);
    shape[dim] = size;
    return place(s, dim, shape, 0, t, 0, size < t->shape[dim] ? size : t->shape[dim]);
}

static int64_t coordinate(const stage *s)
{
    int a = 0;
    while (!(s->step->axes & 1u << a)) a++;
    return s->work->rank->coordinate[a];
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* replicated -> cut: this rank's part of its block, the last one filled up with zeros */
static gm_tensor *slice(const stage *s, gm_tensor *t)
{
    int     d = s->step->dim;
    int64_t from = least(coordinate(s) * s->after[d], t->shape[d]);
    return place(s, d, s->after, 0, t, from, least(s->after[d], t->shape[d] - from));
}

/* cut -> partial: the block where it belongs, zeros around it */
static gm_tensor *embed(const stage *s, gm_tensor *t)
{
    int     d = s->step->dim;
    int64_t at = least(coordinate(s) * t->shape[d], s->after[d]);
    return place(s, d, s->after, at, t, 0, least(t->shape[d], s->after[d] - at));
}

/* A copy of t; t itself where it is ours alone. */
static gm_tensor *copy_unless_own(const stage *s, gm_tensor *t, bool own)
{
    return own ? t : gm_work_cast(s->work, t, t->dtype);
}

/* replicated -> partial: as it is at coordinate 0 (a copy: no rank's result shares memory with what it came from) */
static gm_tensor *mask(const stage *s, gm_tensor *t, bool own)
{
    if (!coordinate(s)) return copy_unless_own(s, t, own);
    return gm_work_full(s->work, t->dtype, s->ndim, t->shape, 0);
}

/* The collective itself, between buffers that fit it. */
static gm_status communicate(const stage *s, gm_group *g, gm_tensor *in, gm_tensor *to)
{
    int d = s->step->dim;
    if (s->step->kind == GM_STEP_GATHER) return gm_comm_all_gather(s->comm, g, in, d, to, NULL);
    if (s->step->kind == GM_STEP_SCATTER) return gm_comm_reduce_scatter(s->comm, g, in, d, GM_SUM, to, NULL);
    return gm_comm_all_to_all(s->comm, g, in, s->step->to_dim, to, d, NULL);
}

/* gather, scatter, exchange: what is to be cut is padded to p blocks, what was cut is trimmed to its parent's. */
static gm_tensor *transfer(const stage *s, gm_group *g, gm_tensor *t)
{
    gm_work *w = s->work;
    int      kind = s->step->kind, dim = s->step->dim, joined = kind == GM_STEP_SCATTER ? -1 : dim;
    int      split = kind == GM_STEP_GATHER ? -1 : kind == GM_STEP_SCATTER ? dim : s->step->to_dim;
    int64_t  p = gm_group_size(g), shape[GM_MAX_DIMS];
    memcpy(shape, s->after, sizeof shape);
    if (joined >= 0) shape[joined] = s->before[joined] * p;
    gm_tensor *in = fit(s, t, split < 0 ? joined : split, split < 0 ? t->shape[joined] : s->after[split] * p);
    gm_tensor *to = gm_work_new(w, t->dtype, s->ndim, shape);
    GM_STEP(w, communicate(s, g, in, to));
    return fit(s, to, joined < 0 ? split : joined, s->after[joined < 0 ? split : joined]);
}

/* own: t is a block that an earlier step made. */
static gm_tensor *run_step(const stage *s, gm_tensor *t, bool own)
{
    gm_work  *w = s->work;
    gm_group *g = NULL;
    if (w->st != GM_OK) return NULL;
    if (s->step->kind == GM_STEP_SLICE) return slice(s, t);
    if (s->step->kind == GM_STEP_EMBED) return embed(s, t);
    if (s->step->kind == GM_STEP_MASK) return mask(s, t, own);
    GM_STEP(w, gm_comm_group(s->comm, s->step->axes, &g));
    if (w->st != GM_OK) return NULL;
    if (s->step->kind != GM_STEP_REDUCE) return transfer(s, g, t);
    t = copy_unless_own(s, t, own);
    GM_STEP(w, gm_comm_all_reduce(s->comm, g, t, GM_SUM, NULL)); /* partial -> replicated */
    return t;
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
    gm_work                     w;
    stage                       s = {.work = &w, .ndim = ndim};
    int                         n;
    /* first: a rank that is alone gets its comm now, and with it a mesh, which empties the memory of plans */
    if (!gm_layout_equal(from, to)) GM_TRY(gm_rank_comm(r, &s.comm));
    GM_TRY(gm_redistribute_plan_of(r, from, to, ndim, shape, gm_dtype_size(block->dtype), &steps, &n));
    gm_layout_local(&r->mesh, from, ndim, shape, s.after);
    GM_TRY(check_block(r, block, from, ndim, shape, s.after));
    gm_work_begin(&w, r, "redistribute");
    gm_tensor *held = block;
    for (int i = 0; i < n && w.st == GM_OK; i++) {
        memcpy(s.before, s.after, sizeof s.before);
        gm_layout_local(&r->mesh, &steps[i].after, ndim, shape, s.after);
        s.step = &steps[i];
        held = gm_work_keep(&w, run_step(&s, held, held != block));
        gm_work_drop(&w, 0);
        held = gm_work_hold(&w, held);
        w.sent |= w.st == GM_OK && steps[i].bytes > 0;
    }
    *out = gm_work_keep(&w, held);
    return gm_work_end(&w);
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
