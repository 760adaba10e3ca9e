/* backward.c - running a tape: what rules are given and give, sums of terms in different states, the seed. See
 * tape.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"
#include "../parallel/reducer.h"
#include "../parallel/rules/rules.h"
#include "tape_nodes.h"

struct gm_backward {
    gm_rank   *rank;
    gm_tape   *tape;
    node      *node;
    uint32_t   partial;    /* of the gradients of the outputs */
    gm_tensor *scratch[4]; /* targets for terms that do not count on this rank */
    int        n_scratch;
};

/* dst += src, or dst = src. */
static gm_status add_into(gm_device *dev, gm_tensor *dst, gm_tensor *src, bool accumulate)
{
    return gm_run_one(dev, accumulate ? GM_OP_axpy : GM_OP_copy, NULL, src, dst);
}

static bool exclusive(const gm_tensor *t)
{
    return t->refs == 1 && t->storage->refs == 1 && gm_tensor_is_contiguous(t);
}

static gm_status clone(gm_backward *b, gm_tensor *t, gm_tensor **out)
{
    gm_spec spec = gm_tape_spec(t);
    GM_TRY(gm_backward_new(b, &spec, out));
    gm_status st = add_into(gm_backward_device(b), *out, t, false);
    if (st != GM_OK) gm_tensor_release(*out);
    return st;
}

/* Makes *held a tensor that may be written: as it is when nobody else sees it, else a copy. */
static gm_status own(gm_backward *b, gm_tensor **held)
{
    gm_tensor *copy = NULL;
    if (exclusive(*held)) return GM_OK;
    GM_TRY(clone(b, *held, &copy));
    gm_tensor_release(*held);
    *held = copy;
    return GM_OK;
}

gm_rank           *gm_backward_rank(gm_backward *b) { return b->rank; }
gm_device         *gm_backward_device(gm_backward *b) { return b->rank->device; }
gm_op              gm_backward_op(gm_backward *b) { return b->node->op; }
const gm_attrs    *gm_backward_attrs(gm_backward *b) { return &b->node->attrs; }
const int64_t     *gm_backward_extra(gm_backward *b) { return b->node->extra; }
const gm_callback *gm_backward_callback(gm_backward *b) { return &b->node->callback; }
int                gm_backward_inputs(gm_backward *b) { return b->node->n_in; }
int                gm_backward_outputs(gm_backward *b) { return b->node->n_out; }
gm_tensor         *gm_backward_grad(gm_backward *b, int i) { return b->node->out[i].grad; }
const gm_spec     *gm_backward_input(gm_backward *b, int i) { return &b->node->in[i].spec; }

uint32_t gm_backward_partial(gm_backward *b) { return b->partial; }

static const gm_layout whole;

const gm_layout *gm_backward_input_layout(gm_backward *b, int i, const int64_t **shape)
{
    const place *p = b->node->places;
    if (shape) *shape = p ? p[i].shape : b->node->in[i].spec.shape;
    return p ? &p[i].layout : &whole;
}

const gm_layout *gm_backward_output_layout(gm_backward *b, int i, const int64_t **shape)
{
    const place *p = b->node->places ? b->node->places + b->node->n_in : NULL;
    if (shape) *shape = p ? p[i].shape : b->node->out[i].spec.shape;
    return p ? &p[i].layout : &whole;
}

void gm_backward_set_partial(gm_backward *b, int i, uint32_t axes)
{
    b->node->in[i].told = true;
    b->node->in[i].partial = axes;
}

/* Axes over which what the rule gives for an input is partial. */
static uint32_t partial_of(const gm_backward *b, const edge *e)
{
    const node *n = b->node;
    uint32_t    axes = 0;
    if (e->told) return e->partial;
    if (!n->places) return 0;
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i].grad)
            axes |= gm_layout_gradient(&n->places[e - n->in].layout, &n->places[n->n_in + i].layout, b->partial);
    return axes;
}

/* Is this the rank that keeps a replicated term when it becomes one of a sum over these axes? */
static bool keeps(const gm_rank *r, uint32_t axes)
{
    for (int a = 0; a < r->mesh.n_axes; a++)
        if (axes & 1u << a && r->coordinate[a]) return false;
    return true;
}

gm_status gm_backward_new(gm_backward *b, const gm_spec *spec, gm_tensor **out)
{
    return gm_tensor_new(gm_backward_device(b), spec->dtype, spec->ndim, spec->shape, out);
}

static gm_status fill_zero(gm_backward *b, gm_tensor *t)
{
    return gm_run_one(gm_backward_device(b), GM_OP_fill, NULL, NULL, t);
}

gm_status gm_backward_grad_or_zeros(gm_backward *b, int i, gm_tensor **out)
{
    output *o = &b->node->out[i];
    if (!o->grad) {
        GM_TRY(gm_backward_new(b, &o->spec, &o->grad));
        GM_TRY(fill_zero(b, o->grad));
    }
    *out = o->grad;
    return GM_OK;
}

gm_status gm_backward_saved(gm_backward *b, int i, gm_tensor **out)
{
    gm_tape_slot *s = &b->node->saved[i];
    *out = s->kind == GM_SLOT_LEAF ? s->leaf->local : s->tensor;
    if (*out && (*out)->storage->version != s->version)
        return GM_FAIL(GM_EINVAL,
                       "%s: a tensor that the gradient of this op needs was changed in place after it was "
                       "used; clone() it before changing it",
                       b->node->name);
    return GM_OK;
}

bool gm_backward_wants(gm_backward *b, int i) { return b->node->in[i].leaf || b->node->in[i].node >= 0; }

/* A term joins a sum: *sum becomes the axes that both are then partial over. What is replicated over an axis that
 * the other is partial over counts at coordinate 0 alone. */
static void join(const gm_rank *r, uint32_t *sum, uint32_t term, bool *sum_counts, bool *term_counts)
{
    *sum_counts = keeps(r, term & ~*sum);
    *term_counts = keeps(r, *sum & ~term);
    *sum |= term;
}

/* A place for a term that counts on other ranks only. */
static gm_status scratch(gm_backward *b, const gm_spec *spec, gm_tensor **out)
{
    if (b->n_scratch == (int)(sizeof b->scratch / sizeof *b->scratch))
        return GM_FAIL(GM_EINVAL, "%s: too many gradients that do not count on this rank", b->node->name);
    GM_TRY(gm_backward_new(b, spec, out));
    b->scratch[b->n_scratch++] = *out;
    return GM_OK;
}

static gm_status leaf_target(gm_backward *b, const edge *e, gm_tensor **out, bool *accumulate)
{
    gm_value *leaf = e->leaf;
    uint32_t  term = partial_of(b, e);
    bool      held = leaf->grad_set, counts = true;
    GM_TRY(gm_value_grad_buffer(leaf, out));
    leaf->grad_set = true;
    *accumulate = held;
    if (!held) leaf->grad_partial = term;
    if (leaf->grad_partial == term) return GM_OK;
    join(b->rank, &leaf->grad_partial, term, &held, &counts);
    *accumulate = held;
    if (counts) return GM_OK;
    if (!held) GM_TRY(fill_zero(b, *out));
    *accumulate = false;
    return scratch(b, &e->spec, out);
}

gm_status gm_backward_target(gm_backward *b, int i, gm_tensor **out, bool *accumulate)
{
    edge *e = &b->node->in[i];
    if (e->leaf) return leaf_target(b, e, out, accumulate);
    output  *to = &b->tape->nodes[e->node].out[e->output];
    uint32_t term = partial_of(b, e);
    bool     held = to->grad != NULL, counts = true;
    *accumulate = held;
    if (held) GM_TRY(own(b, &to->grad));
    else GM_TRY(gm_backward_new(b, &e->spec, &to->grad));
    if (!held) to->partial = term;
    *out = to->grad;
    if (to->partial == term) return GM_OK;
    join(b->rank, &to->partial, term, &held, &counts);
    *accumulate = held;
    if (counts) return GM_OK;
    if (!held) GM_TRY(fill_zero(b, *out));
    *accumulate = false;
    return scratch(b, &e->spec, out);
}

static gm_status give_leaf(gm_backward *b, gm_value *leaf, gm_tensor *g, uint32_t term)
{
    if (!leaf->grad && exclusive(g)) {
        leaf->grad = g;
        leaf->grad_set = true;
        leaf->grad_partial = term;
        return GM_OK;
    }
    gm_tensor *buffer = NULL;
    bool       held = leaf->grad_set, counts = true;
    if (!held) leaf->grad_partial = term;
    if (leaf->grad_partial != term) join(b->rank, &leaf->grad_partial, term, &held, &counts);
    gm_status st = gm_value_grad_buffer(leaf, &buffer);
    if (st == GM_OK && counts) st = add_into(gm_backward_device(b), buffer, g, held);
    else if (st == GM_OK && !held) st = fill_zero(b, buffer);
    if (st == GM_OK) leaf->grad_set = true;
    gm_tensor_release(g);
    return st;
}

/* Adds g to what a node's output holds; takes g. */
static gm_status add_held(gm_backward *b, gm_tensor **held, gm_tensor *g)
{
    gm_status st = GM_OK;
    if (!exclusive(*held) && exclusive(g)) { /* add the other way round and save a copy */
        gm_tensor *swap = *held;
        *held = g;
        g = swap;
    }
    st = own(b, held);
    if (st == GM_OK) st = add_into(gm_backward_device(b), *held, g, true);
    gm_tensor_release(g);
    return st;
}

gm_status gm_backward_give(gm_backward *b, int i, gm_tensor *g)
{
    edge    *e = &b->node->in[i];
    uint32_t term = partial_of(b, e);
    if (e->leaf) return give_leaf(b, e->leaf, g, term);
    if (e->node < 0) {
        gm_tensor_release(g);
        return GM_OK;
    }
    output *to = &b->tape->nodes[e->node].out[e->output];
    bool    held = true, counts = true;
    if (!to->grad) {
        to->grad = g;
        to->partial = term;
        return GM_OK;
    }
    if (to->partial != term) join(b->rank, &to->partial, term, &held, &counts);
    if (held && counts) return add_held(b, &to->grad, g);
    if (counts) {
        gm_tensor *old = to->grad;
        to->grad = g;
        g = old;
    }
    gm_tensor_release(g);
    if (held || counts) return GM_OK;
    GM_TRY(own(b, &to->grad));
    return fill_zero(b, to->grad);
}

/* Axes that a value of this layout says nothing to: it is a copy over them, its gradient may be a sum. */
static uint32_t copied_over(const gm_layout *l) { return ~(gm_layout_cut_axes(l) | l->partial); }

/* Brings the gradients of the outputs to one state, on the axes that they are copied over. */
static gm_status unify(gm_backward *b)
{
    node *n = b->node;
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i].grad) b->partial |= n->out[i].partial;
    for (int i = 0; b->partial && i < n->n_out; i++) {
        output  *o = &n->out[i];
        uint32_t axes = b->partial & ~o->partial & copied_over(gm_backward_output_layout(b, i, NULL));
        if (!o->grad || keeps(b->rank, axes)) continue;
        GM_TRY(own(b, &o->grad));
        GM_TRY(fill_zero(b, o->grad));
    }
    return GM_OK;
}

/* A gradient that is a sum over the axes of an input's cuts is not that of its blocks: a rule that came from one to the
 * other has summed it, and said so. No rule of a local op can meet this, whatever the layouts, as long as what cuts an
 * input cuts an output or makes it partial. */
static gm_status check_states(gm_backward *b)
{
    char axes[128], have[256];
    for (int i = 0; b->node->places && i < b->node->n_in; i++) {
        const edge      *e = &b->node->in[i];
        const gm_layout *l = &b->node->places[i].layout;
        uint32_t         lost = (e->told ? e->partial : b->partial) & ~copied_over(l);
        if (!lost || !gm_backward_wants(b, i)) continue;
        return GM_FAIL(GM_ESHAPE,
                       "%s: the gradient of input %d, which is laid out %s, is still a sum over %s; redistribute the "
                       "input before the op, or the output after it",
                       b->node->name, i + 1, gm_layout_describe(&b->rank->mesh, l, e->spec.ndim, have, sizeof have),
                       gm_mesh_describe(&b->rank->mesh, lost, axes, sizeof axes));
    }
    return GM_OK;
}

static gm_status run_rule(gm_backward *b)
{
    GM_TRY(unify(b));
    gm_status st = b->node->rule(b);
    for (int i = 0; i < b->n_scratch; i++) gm_tensor_release(b->scratch[i]);
    return st == GM_OK ? check_states(b) : st;
}

static gm_status run_node(gm_backward *b)
{
    node *n = b->node;
    bool  any = false;
    for (int i = 0; i < n->n_out; i++) any |= n->out[i].grad != NULL;
    if (!any) return GM_OK;                     /* the loss does not depend on it */
    GM_TRY(gm_rank_set_path(b->rank, n->path)); /* what it sends and allocates is that module's */
    gm_rank_place(b->rank, n->name);
    gm_status st = run_rule(b);
    if (st == GM_OK || !*n->path) return st;
    return GM_FAIL(st, "backward of %s in %s: %s", n->name, n->path, gm_last_error());
}

/* 1 for a loss of one element. */
static gm_status one(gm_value *loss, gm_tensor **out)
{
    gm_attrs   a = gm_attrs_default();
    gm_tensor *t = NULL;
    char       have[256];
    for (int d = 0; d < loss->ndim; d++)
        if (loss->shape[d] != 1)
            return GM_FAIL(GM_ESHAPE, "backward: a loss has one element, this is %s; sum() it or pass a seed gradient",
                           gm_value_describe(loss, have, sizeof have));
    a.value = 1;
    gm_rank_place(loss->rank, "backward");
    GM_TRY(gm_tensor_new(loss->rank->device, loss->local->dtype, loss->local->ndim, loss->local->shape, &t));
    gm_status st = gm_run_one(loss->rank->device, GM_OP_fill, &a, NULL, t);
    if (st == GM_OK) *out = t;
    else gm_tensor_release(t);
    return st;
}

static gm_status seed_gradient(gm_tape *t, gm_value *loss, gm_value *seed)
{
    output    *o = &t->nodes[loss->node].out[loss->output];
    gm_value  *fitted = NULL;
    gm_tensor *g = NULL;
    if (seed) {
        GM_TRY(gm_fit_seed(loss, seed, &fitted));
        g = fitted->local;
        gm_tensor_retain(g);
        o->partial = fitted->layout.partial;
        gm_value_release(fitted);
    } else GM_TRY(one(loss, &g));
    gm_status st = gm_clear_padding(loss->rank, &loss->layout, loss->ndim, loss->shape, g, &o->grad);
    gm_tensor_release(g);
    return st;
}

/* Leaves that no earlier node reads have their gradients now. */
static gm_status report_leaves(gm_rank *r, const gm_tape *t, int at)
{
    const node *n = &t->nodes[at];
    for (int i = 0; i < n->n_in; i++) {
        gm_value *leaf = n->in[i].leaf;
        if (!leaf || leaf->first_use != at || leaf->used_on != t->number) continue;
        GM_TRY(gm_reducer_ready(r->reducer, leaf));
        leaf->used_on = 0; /* once, though the node may read it twice */
    }
    return GM_OK;
}

static gm_status run_nodes(gm_rank *r, gm_tape *t)
{
    gm_status st = GM_OK;
    for (int i = t->n - 1; i >= 0 && st == GM_OK; i--) {
        gm_backward b = {.rank = r, .tape = t, .node = &t->nodes[i]};
        st = run_node(&b);
        if (st == GM_OK && r->reducer) st = report_leaves(r, t, i);
        if (st == GM_OK && r->comm && gm_comm_under_way(r->comm)) st = gm_comm_poll(r->comm);
        gm_tape_release_node(&t->nodes[i]);
    }
    return st;
}

gm_status gm_tape_run(gm_rank *r, gm_tape *t, const gm_tape_job *job)
{
    gm_status st = GM_OK;
    char     *path;
    if (job->pass != GM_TAPE_WHOLE) return GM_FAIL(GM_EINVAL, "backward in two passes is not written yet");
    GM_TRY(gm_rank_enter_path(r, "", &path));
    for (int i = 0; i < job->n && st == GM_OK; i++) st = seed_gradient(t, job->outputs[i], job->seeds[i]);
    r->no_grad++;
    if (st == GM_OK) st = run_nodes(r, t);
    r->no_grad--;
    gm_rank_leave_path(r, path);
    return st;
}

void gm_tape_await(gm_tape *t) { (void)t; }

gm_status gm_tape_backward(gm_value *loss, gm_value *seed)
{
    gm_rank    *r = loss->rank;
    gm_tape    *t = r->tape;
    gm_tape_job job = {.n = 1, .outputs = &loss, .seeds = &seed, .final = true};
    if (!loss->requires_grad)
        return GM_FAIL(GM_EINVAL, "backward: the loss does not depend on anything that requires a gradient "
                                  "(or was computed under no_grad)");
    if (!t || loss->tape != t->number)
        return GM_FAIL(GM_EINVAL, "backward: the tape of this loss has been run or dropped; compute the loss again");
    gm_status st = gm_tape_run(r, t, &job);
    gm_tape_drop(r);
    return st;
}
