/* ring.c - see ring.h: what is computed on the blocks, and the op on the tape. Messages are in ring_travel.c, and the
 * work on a block of keys in ring_meet.c. */
#include "ring.h"

#include <math.h>
#include <string.h>
#include "../../autograd/apply_blocks.h"
#include "../../autograd/padding.h"
#include "../redistribute.h"
#include "../../autograd/layout_rules/family.h"
#include "ring_meet.h"
#include "rows.h"

enum { Q, K, V, MASK, LIMITS, N_IN, BIAS = N_IN, N_OP }; /* the op has a bias too, which does not go round */
enum {
    SAVED_Q,
    SAVED_K,
    SAVED_V,
    SAVED_MASK,
    SAVED_LIMITS,
    SAVED_O,
    SAVED_LSE,
    N_SAVED
}; /* queries as they were worked on */

/* ---- the queries of this place ---- */

static int64_t worked_on(const gm_ring *w)
{
    const gm_ring_place *here = &w->plan.place[w->plan.here];
    return here->work[0].count + here->work[1].count;
}

static gm_status new_queries(gm_ring *w, int64_t rows, gm_tensor **out)
{
    return gm_ring_new(w, 4, (int64_t[]){rows, w->batch, w->heads, w->size}, out);
}

static int64_t queries_here(const gm_ring *w) { return w->plan.place[w->plan.here].queries.count; }

/* Rows of a block (batch, room, heads, size) that lie here as they are worked on, (batch, rows, heads, size): a view,
 * or with zigzag under way from now on (gm_ring_moved). */
static gm_status bring(gm_ring *w, gm_tensor *block, gm_tensor **out)
{
    gm_tensor *rows = NULL, *turned = NULL, *home = NULL, *work = NULL;
    gm_status  st;
    GM_TRY(gm_tensor_narrow(block, 1, 0, queries_here(w), &rows));
    if (!w->plan.zigzag) {
        *out = rows;
        return GM_OK;
    }
    GM_TRY_OR(new_queries(w, queries_here(w), &home), st, done);
    GM_TRY_OR(new_queries(w, worked_on(w), &work), st, done);
    GM_TRY_OR(gm_ring_turn(rows, &turned), st, done);
    GM_TRY_OR(gm_ring_copy(w, turned, home), st, done);
    GM_TRY_OR(gm_ring_move(w, false, home, work), st, done);
    st = gm_ring_turn(work, out);
done:
    gm_tensor_release(rows);
    gm_tensor_release(turned);
    gm_tensor_release(home);
    gm_tensor_release(work);
    return st;
}

/* Where what is computed for the queries goes: rows of the block itself, whose others become zero, or a new tensor. */
static gm_status result_of(gm_ring *w, gm_tensor *block, gm_tensor **out)
{
    gm_tensor *work = NULL;
    GM_TRY(gm_ring_zero(w, block));
    if (!w->plan.zigzag) return gm_tensor_narrow(block, 1, 0, queries_here(w), out);
    GM_TRY(new_queries(w, worked_on(w), &work));
    gm_status st = gm_ring_zero(w, work);
    if (st == GM_OK) st = gm_ring_turn(work, out);
    gm_tensor_release(work);
    return st;
}

/* It is all there: with zigzag it goes where it lies. */
static gm_status take_home(gm_ring *w, gm_tensor *result, gm_tensor *block)
{
    gm_tensor *rows = NULL, *turned = NULL, *home = NULL, *work = NULL;
    gm_status  st;
    if (!w->plan.zigzag) return GM_OK;
    GM_TRY_OR(gm_ring_turn(result, &work), st, done);
    GM_TRY_OR(new_queries(w, queries_here(w), &home), st, done);
    GM_TRY_OR(gm_ring_move(w, true, home, work), st, done);
    GM_TRY_OR(gm_ring_moved(w), st, done);
    GM_TRY_OR(gm_tensor_narrow(block, 1, 0, queries_here(w), &rows), st, done);
    GM_TRY_OR(gm_ring_turn(home, &turned), st, done);
    st = gm_ring_copy(w, turned, rows);
done:
    gm_tensor_release(rows);
    gm_tensor_release(turned);
    gm_tensor_release(home);
    gm_tensor_release(work);
    return st;
}

static gm_status open_ring(gm_rank *r, const gm_layout *q, const int64_t *shape, int64_t keys, const gm_tensor *block,
                           int64_t key_heads, const gm_attrs *attrs, bool zigzag, gm_ring *w)
{
    GM_TRY(gm_ring_open(r, w));
    w->dtype = block->dtype;
    w->batch = block->shape[0];
    w->heads = block->shape[2];
    w->size = block->shape[3];
    w->key_heads = key_heads;
    return gm_ring_plan_new(r, q, shape[1], keys, attrs, zigzag, &w->plan);
}

/* ---- backward ---- */

static gm_status backward_steps(gm_ring *w, const gm_ring_queries *x)
{
    for (int t = 0; t < w->plan.p; t++) {
        gm_tensor *k = NULL, *v = NULL, *dk = NULL, *dv = NULL;
        gm_status  st = gm_ring_gradient_await(w, t);
        if (st == GM_OK) st = gm_ring_keys_step(w, t, &k, &v);
        if (st == GM_OK) st = gm_ring_gradient_step(w, t, &dk, &dv);
        if (st == GM_OK && k) st = gm_ring_attend(w, x, t, k, v, dk, dv);
        if (st == GM_OK) st = gm_ring_gradient_leave(w, t);
        gm_tensor_release(k);
        gm_tensor_release(v);
        gm_tensor_release(dk);
        gm_tensor_release(dv);
        GM_TRY(st);
    }
    return GM_OK;
}

static gm_status backward(gm_ring *w, gm_ring_queries *x, gm_tensor *k, gm_tensor *v, gm_tensor *g, gm_tensor **grad)
{
    GM_TRY(gm_ring_keys_pack(w, k, v, true));
    GM_TRY(result_of(w, grad[Q], &x->dq));
    GM_TRY(bring(w, g, &x->g));
    GM_TRY(gm_ring_moved(w));
    GM_TRY(backward_steps(w, x));
    GM_TRY(gm_ring_gradient_home(w, grad[K], grad[V]));
    return take_home(w, x->dq, grad[Q]);
}

/* extra[0]: zigzag? */
static void ring_rule(gm_backward *b)
{
    gm_work         *work = gm_backward_work(b);
    const int64_t   *shape, *keys;
    const gm_layout *layout = gm_backward_input_layout(b, Q, &shape);
    gm_tensor       *grad[3], *g = gm_backward_grad(b, 0);
    gm_ring_queries  x = {.attrs = *gm_backward_attrs(b)};
    gm_ring          w = {0};
    gm_backward_input_layout(b, K, &keys);
    x.q = gm_backward_saved(b, SAVED_Q);
    x.mask = gm_backward_saved(b, SAVED_MASK);
    x.limits = gm_backward_saved(b, SAVED_LIMITS);
    x.o = gm_backward_saved(b, SAVED_O);
    x.lse = gm_backward_saved(b, SAVED_LSE);
    GM_STEP(work, open_ring(work->rank, layout, shape, keys[1], g, gm_backward_input(b, K)->shape[2], &x.attrs,
                            gm_backward_extra(b)[0], &w));
    gm_tensor *k = gm_backward_saved(b, SAVED_K), *v = gm_backward_saved(b, SAVED_V);
    for (int i = Q; i <= V; i++) grad[i] = gm_backward_like(b, i);
    g = gm_work_contiguous(work, g);
    GM_STEP(work, backward(&w, &x, k, v, g, grad));
    work->sent = w.sent;
    gm_tensor_release(x.dq); /* views: what is given is seen to be exclusive */
    gm_tensor_release(x.g);
    for (int i = Q; i <= V; i++) gm_backward_give(b, i, grad[i]);
    gm_ring_close(&w);
}

/* ---- forward ---- */

static gm_status forward_steps(gm_ring *w, const gm_ring_queries *x)
{
    for (int t = 0; t < w->plan.p; t++) {
        gm_tensor *k = NULL, *v = NULL;
        gm_status  st = gm_ring_keys_step(w, t, &k, &v);
        if (st == GM_OK && k) st = gm_ring_attend(w, x, t, k, v, NULL, NULL);
        gm_tensor_release(k);
        gm_tensor_release(v);
        GM_TRY(st);
    }
    return gm_ring_keys_end(w);
}

static gm_status nothing_seen(gm_ring *w, gm_tensor **lse)
{
    gm_attrs a = gm_attrs_default();
    a.value = -INFINITY;
    GM_TRY(gm_tensor_new(w->dev, gm_dtype_wide(w->dtype), 3, (int64_t[]){w->batch, w->heads, worked_on(w)}, lse));
    return gm_run_one(w->dev, GM_OP_fill, &a, NULL, *lse);
}

/* x: q, o and lse receive new tensors. */
static gm_status forward(gm_ring *w, gm_value *const *in, gm_ring_queries *x, gm_value *o)
{
    GM_TRY(gm_ring_keys_pack(w, in[K]->local, in[V]->local, false));
    GM_TRY(nothing_seen(w, &x->lse));
    GM_TRY(result_of(w, o->local, &x->o));
    GM_TRY(bring(w, in[Q]->local, &x->q));
    GM_TRY(gm_ring_moved(w));
    GM_TRY(forward_steps(w, x));
    return take_home(w, x->o, o->local);
}

/* A value of what a node keeps; takes nothing. */
static gm_status kept(gm_rank *r, gm_tensor *t, gm_value **out)
{
    gm_tensor_retain(t);
    return gm_value_take(r, t, out);
}

static gm_status record(gm_rank *r, gm_value *const *in, const gm_ring_queries *x, bool zigzag, gm_value *o)
{
    gm_value *saved[N_SAVED] = {NULL, in[K], in[V], in[MASK], in[LIMITS], NULL, NULL};
    gm_record rec = {.name = "attention",
                     .rule = ring_rule,
                     .op = GM_OP_attention,
                     .attrs = &x->attrs,
                     .n_in = N_IN,
                     .in = in,
                     .n_out = 1,
                     .out = &o,
                     .n_saved = N_SAVED,
                     .saved = saved,
                     .extra = {zigzag}};
    if (!gm_tape_wanted(r, N_IN, in)) return GM_OK;
    gm_status st = kept(r, x->q, &saved[SAVED_Q]);
    if (st == GM_OK) st = kept(r, x->o, &saved[SAVED_O]);
    if (st == GM_OK) st = kept(r, x->lse, &saved[SAVED_LSE]);
    if (st == GM_OK) st = gm_tape_record(r, &rec);
    gm_value_release(saved[SAVED_Q]);
    gm_value_release(saved[SAVED_O]);
    gm_value_release(saved[SAVED_LSE]);
    return st;
}

/* in: fitted; mask and limits are whole. */
static gm_status sharded(gm_rank *r, gm_value *const *in, const gm_attrs *attrs, const gm_layout *layout, bool zigzag,
                         gm_value **out)
{
    gm_value       *o = NULL;
    gm_ring_queries x = {
        .mask = in[MASK] ? in[MASK]->local : NULL, .limits = in[LIMITS] ? in[LIMITS]->local : NULL, .attrs = *attrs};
    gm_ring   w = {0};
    gm_status st;
    GM_TRY_OR(
        open_ring(r, layout, in[Q]->shape, in[K]->shape[1], in[Q]->local, in[K]->local->shape[2], attrs, zigzag, &w),
        st, done);
    GM_TRY_OR(gm_value_new_block(r, "attention", w.dtype, layout, 4, in[Q]->shape, &o), st, done);
    GM_TRY_OR(forward(&w, in, &x, o), st, done);
    GM_TRY_OR(gm_padding_finish(o), st, done);
    GM_TRY_OR(record(r, in, &x, zigzag, o), st, done);
    *out = o;
    o = NULL;
done:
    if (w.sent) st = gm_comm_once(st);
    gm_tensor_release(x.q);
    gm_tensor_release(x.o);
    gm_tensor_release(x.lse);
    gm_value_release(o);
    gm_ring_close(&w);
    return st;
}

/* ---- the op ---- */

/* The sequences of queries and keys are cut by the same axes, or those of nobody are. */
static gm_status check_sequences(const gm_rule_call *c)
{
    const gm_layout *q = &c->in[Q]->layout;
    for (int i = K; i <= V; i++)
        if (c->in[i]->layout.n_cuts[1] != q->n_cuts[1] || !gm_layout_dims_agree(&c->in[i]->layout, 1, q, 1))
            return gm_rule_refuse(c, "the sequences of queries, keys and values are cut in different ways");
    if (c->in[BIAS])
        return gm_rule_refuse(c,
                              "a bias needs whole sequences: parallel.sequence.mode = \"ulysses\" cuts heads instead");
    if (c->attrs->causal && c->in[K]->shape[1] != c->in[Q]->shape[1])
        return gm_rule_refuse(c, "a causal attention over a sequence that is cut needs as many keys as queries");
    return GM_OK;
}

/* Layout of o; what is asked of the inputs; box: this rank's batch and heads in the probabilities (b, h, s, t). */
static gm_status judge(gm_rank *r, const gm_value_call *call, gm_attrs *attrs, gm_layout *layout, gm_fit *fit)
{
    gm_value *const *in = call->in;
    gm_spec          global[2];
    GM_TRY(gm_judge_call(call, global));
    gm_rule_call c = gm_rule_begin(r, "attention", call->op, N_IN, in, attrs, 1, global, layout, fit);
    GM_TRY(check_sequences(&c));
    GM_TRY(gm_rule_attention_dims(&c));
    GM_TRY(gm_rule_join(&c, Q, 1, 1));
    GM_TRY(gm_rule_slices(&c));
    if (attrs->p == 0) return GM_OK;
    gm_layout o = *layout, probabilities;
    o.n_cuts[1] = 0;
    o.unit[1] = 0;
    probabilities = gm_layout_permute(&o, 4, (int[]){0, 2, 1, 3});
    int64_t shape[4] = {in[Q]->shape[0], in[Q]->shape[2], in[Q]->shape[1], in[K]->shape[1]};
    return gm_rule_box(r, attrs, &probabilities, 4, shape);
}

/* A mask that is cut along the keys, or limits that are cut along the queries, become whole there. */
static gm_status whole_sequence(gm_rank *r, gm_value *v, gm_value **out)
{
    gm_layout to = v->layout;
    to.n_cuts[1] = 0;
    to.unit[1] = 0;
    return gm_redistribute(r, v, &to, out);
}

static bool balanced(const gm_rank *r, const gm_value *q, const gm_attrs *attrs)
{
    int64_t local[GM_MAX_DIMS];
    gm_layout_local(&r->mesh, &q->layout, q->ndim, q->shape, local);
    if (!attrs->causal || attrs->balance == GM_RING_CONTIGUOUS) return false;
    if (attrs->balance == GM_RING_ZIGZAG) return true;
    if (attrs->window && attrs->window <= local[1]) return false; /* each query sees as many keys: it is even */
    return local[1] >= GM_RING_BALANCED_ROWS;
}

/* Mask and limits are whole. */
static gm_status ring(gm_rank *r, const gm_value_call *c, gm_value **o)
{
    gm_value *fitted[N_IN];
    gm_attrs  a = *c->attrs;
    gm_layout layout;
    gm_fit    fit[N_IN];
    GM_TRY(judge(r, c, &a, &layout, fit));
    GM_TRY(gm_fit_all(r, N_IN, c->in, fit, fitted));
    gm_status st = sharded(r, fitted, &a, &layout, balanced(r, c->in[Q], &a), o);
    gm_release_all(N_IN, fitted);
    return st;
}

static bool is_cut(const gm_value *v) { return v->ndim == 4 && v->layout.n_cuts[1]; }

gm_status gm_sharded_attention(gm_rank *r, const gm_value_call *c, gm_value **out)
{
    gm_value     *in[N_OP], *made[2] = {NULL, NULL}; /* mask and limits, gathered */
    gm_value_call call = *c;
    gm_status     st = GM_OK;
    for (int i = 0; i < N_OP; i++) in[i] = c->in[i];
    call.in = in;
    for (int i = 0; i < 2 && st == GM_OK; i++) {
        gm_value *v = in[MASK + i];
        if (!v || v->ndim != 2 + i || !v->layout.n_cuts[1]) continue;
        st = whole_sequence(r, v, &made[i]);
        in[MASK + i] = made[i];
    }
    bool cut = is_cut(in[Q]) || is_cut(in[K]) || is_cut(in[V]), gathered = made[0] || made[1];
    if (st == GM_OK) st = cut ? ring(r, &call, out) : gm_apply_blocks(r, &call, out);
    for (int i = 0; i < 2; i++)
        if (made[i]) gm_value_release(made[i]);
    return gathered ? gm_comm_once(st) : st; /* the others have had their part of what was gathered */
}
