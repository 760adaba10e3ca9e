/* backward.c - running one node of a tape: what rules are given and give, sums of terms in different states. See
 * tape.h; passes.c runs the tape. */
#include "padding.h"
#include "layout_rules/rules.h"
#include "gradients.h"
#include "tape_nodes.h"

struct gm_backward {
    gm_rank   *rank;
    gm_tape   *tape;
    gm_node   *node;
    gm_half    half;       /* what the rule is asked for */
    uint32_t   partial;    /* of the gradients of the outputs */
    gm_tensor *scratch[4]; /* targets for terms that do not count on this rank */
    int        n_scratch;
    struct {
        gm_tensor *term, *sum; /* term: a target of 16 bits; sum: borrowed, of f32 */
        bool       accumulate;
    } narrow[2]; /* terms that join a wide gradient when the rule has run */
    int n_narrow;
};

/* dst += src, or dst = src; dst may be wider. */
static gm_status add_into(gm_device *dev, gm_tensor *dst, gm_tensor *src, bool accumulate)
{
    gm_attrs   a = gm_attrs_default();
    gm_tensor *wide = NULL;
    a.dtype = dst->dtype;
    if (!accumulate) return gm_run_one(dev, GM_OP_copy, &a, src, dst);
    if (src->dtype == dst->dtype) return gm_run_one(dev, GM_OP_axpy, NULL, src, dst);
    GM_TRY(gm_tensor_new(dev, dst->dtype, src->ndim, src->shape, &wide));
    gm_status st = gm_run_one(dev, GM_OP_copy, &a, src, wide);
    if (st == GM_OK) st = gm_run_one(dev, GM_OP_axpy, NULL, wide, dst);
    gm_tensor_release(wide);
    return st;
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
    const gm_node *n = b->node;
    uint32_t       axes = 0;
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
    gm_tensor *t = NULL;
    GM_TRY(gm_tensor_new(gm_backward_device(b), spec->dtype, spec->ndim, spec->shape, &t));
    GM_TRY(gm_padding_poison_new(b->rank, t));
    *out = t;
    return GM_OK;
}

gm_status gm_backward_clear(gm_backward *b, gm_tensor *t)
{
    const place *p = b->node->places ? b->node->places + b->node->n_in : NULL;
    return p && p->padded ? gm_padding_fill(b->rank, &p->layout, t->ndim, p->shape, t, 0) : GM_OK;
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

static gm_status saved_of(const gm_node *n, int i, gm_tensor **out)
{
    const gm_tape_slot *s = &n->saved[i];
    *out = s->kind == GM_SLOT_LEAF ? s->leaf->local : s->tensor;
    if (*out && (*out)->storage->version != s->version)
        return GM_FAIL(GM_EINVAL,
                       "%s: a tensor that the gradient of this op needs was changed in place after it was "
                       "used; clone() it before changing it",
                       n->name);
    return GM_OK;
}

gm_status gm_backward_saved(gm_backward *b, int i, gm_tensor **out) { return saved_of(b->node, i, out); }

static void empty_slot(gm_tape_slot *s)
{
    gm_tensor_release(s->tensor);
    gm_value_release(s->leaf);
    *s = (gm_tape_slot){.kind = GM_SLOT_EMPTY};
}

gm_status gm_backward_activated(gm_backward *b, int i, gm_tensor **pre, gm_function *function)
{
    const edge *e = &b->node->in[i];
    gm_node    *from = e->from;
    *pre = NULL;
    if (b->tape->retains || !from || from->op != GM_OP_linear || e->output || !from->attrs.function) return GM_OK;
    if (from->out[0].readers != 1 || from->out[0].grad || from->out[0].keeper) return GM_OK;
    GM_TRY(saved_of(from, GM_SLOT_OUTPUT + 1, pre));
    if (!*pre) return GM_OK;
    gm_tensor_retain(*pre);
    empty_slot(&from->saved[GM_SLOT_OUTPUT + 1]);
    *function = from->attrs.function;
    return GM_OK;
}

bool gm_backward_wants(gm_backward *b, int i)
{
    const edge *e = &b->node->in[i];
    return gm_edge_wants(e) && (b->half == GM_HALF_BOTH || e->input == (b->half == GM_HALF_INPUT));
}

bool gm_backward_later(gm_backward *b, int i)
{
    const edge *e = &b->node->in[i];
    return b->half == GM_HALF_INPUT && gm_edge_wants(e) && !e->input;
}

bool gm_backward_splits(gm_backward *b) { return b->node->splits; }

void gm_backward_keep(gm_backward *b, int i, gm_tensor *t)
{
    gm_tape_slot *s = &b->node->saved[i];
    if (b->half != GM_HALF_INPUT) return;
    if (t) gm_tensor_retain(t);
    empty_slot(s);
    if (t) *s = (gm_tape_slot){.kind = GM_SLOT_TENSOR, .tensor = t, .version = t->storage->version};
}

void gm_backward_keep_grad(gm_backward *b, int i, gm_tensor *t)
{
    gm_tensor **grad = &b->node->out[i].grad;
    if (b->half != GM_HALF_INPUT) return;
    if (t) gm_tensor_retain(t);
    gm_tensor_release(*grad);
    *grad = t;
}

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

/* In place of a wide gradient, *target, a tensor of the input's dtype; add_narrow brings it there. */
static gm_status narrow_target(gm_backward *b, const edge *e, gm_tensor **target, bool *accumulate)
{
    int i = b->n_narrow;
    if (i == (int)(sizeof b->narrow / sizeof *b->narrow))
        return GM_FAIL(GM_EINVAL, "%s: too many wide gradients of inputs of 16 bits", b->node->name);
    GM_TRY(gm_backward_new(b, &e->spec, &b->narrow[i].term));
    b->narrow[i].sum = *target;
    b->narrow[i].accumulate = *accumulate;
    b->n_narrow++;
    *target = b->narrow[i].term;
    *accumulate = false;
    return GM_OK;
}

static gm_status add_narrow(gm_backward *b, gm_status st)
{
    for (int i = 0; i < b->n_narrow; i++) {
        if (st == GM_OK)
            st = add_into(gm_backward_device(b), b->narrow[i].sum, b->narrow[i].term, b->narrow[i].accumulate);
        gm_tensor_release(b->narrow[i].term);
    }
    return st;
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
    const edge *e = &b->node->in[i];
    GM_TRY(gm_backward_wide_target(b, i, out, accumulate));
    return (*out)->dtype == e->spec.dtype ? GM_OK : narrow_target(b, e, out, accumulate);
}

gm_status gm_backward_wide_target(gm_backward *b, int i, gm_tensor **out, bool *accumulate)
{
    edge *e = &b->node->in[i];
    if (!gm_backward_wants(b, i))
        return GM_FAIL(GM_EINVAL, "%s: its rule computes the gradient of input %d, which is not asked for",
                       b->node->name, i + 1);
    if (e->leaf) return leaf_target(b, e, out, accumulate);
    output  *to = &e->from->out[e->output];
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
    if (!leaf->grad && exclusive(g) && !leaf->wide_grad) {
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

static gm_status give_output(gm_backward *b, output *to, gm_tensor *g, uint32_t term)
{
    bool held = true, counts = true;
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

gm_status gm_backward_give(gm_backward *b, int i, gm_tensor *g)
{
    const edge *e = &b->node->in[i];
    uint32_t    term = partial_of(b, e);
    if (!gm_backward_wants(b, i)) {
        gm_tensor_release(g);
        return GM_OK;
    }
    if (e->leaf) return give_leaf(b, e->leaf, g, term);
    return give_output(b, &e->from->out[e->output], g, term);
}

gm_status gm_tape_add_term(gm_rank *r, gm_tape *t, gm_value *v, gm_tensor *term, uint32_t partial)
{
    gm_backward b = {.rank = r, .tape = t};
    if (!v->node) return give_leaf(&b, v, term, partial);
    return give_output(&b, &v->node->out[v->output], term, partial);
}

/* Axes that a value of this layout says nothing to: it is a copy over them, its gradient may be a sum. */
static uint32_t copied_over(const gm_layout *l) { return ~(gm_layout_cut_axes(l) | l->partial); }

/* Brings the gradients of the outputs to one state, on the axes that they are copied over. */
static gm_status unify(gm_backward *b)
{
    gm_node *n = b->node;
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

/* What the rule reads is zero in the padding, whatever was added up there: in place, for who shares these bytes shares
 * their padding. The second half finds what the first has kept. */
static gm_status clear_outputs(gm_backward *b)
{
    const gm_node *n = b->node;
    if (n->halved) return GM_OK;
    for (int i = 0; n->places && i < n->n_out; i++) {
        const place *p = &n->places[n->n_in + i];
        gm_tensor   *g = n->out[i].grad;
        if (g && p->padded) GM_TRY(gm_padding_fill(b->rank, &p->layout, g->ndim, p->shape, g, 0));
    }
    return GM_OK;
}

/* The rule has run: the gradients of leaves are zero in the padding; those of other nodes will be when these run. */
static gm_status clear_inputs(gm_backward *b)
{
    const gm_node *n = b->node;
    for (int i = 0; n->places && i < n->n_in; i++) {
        const place *p = &n->places[i];
        const edge  *e = &n->in[i];
        if (!p->padded || !gm_backward_wants(b, i)) continue;
        gm_tensor **g = e->leaf ? &e->leaf->grad : &e->from->out[e->output].grad;
        if (!*g) continue;
        if (b->rank->poison_padding && !e->leaf) GM_TRY(own(b, g));
        GM_TRY(gm_padding_poison(b->rank, &p->layout, (*g)->ndim, p->shape, *g));
        if (e->leaf) GM_TRY(gm_padding_fill(b->rank, &p->layout, (*g)->ndim, p->shape, *g, 0));
    }
    return GM_OK;
}

/* Gradients that pass through values which keep them: added to what they have. */
static gm_status keep_gradients(gm_backward *b)
{
    gm_status st = GM_OK;
    for (int i = 0; i < b->node->n_out && b->half != GM_HALF_WEIGHT && st == GM_OK; i++) {
        output *o = &b->node->out[i];
        if (!o->keeper || !o->grad) continue;
        gm_tensor_retain(o->grad);
        st = give_leaf(b, o->keeper, o->grad, o->partial);
    }
    return st;
}

static gm_status run_rule(gm_backward *b)
{
    GM_TRY(clear_outputs(b));
    GM_TRY(keep_gradients(b));
    GM_TRY(unify(b));
    gm_status st = add_narrow(b, b->node->rule(b));
    for (int i = 0; i < b->n_scratch; i++) gm_tensor_release(b->scratch[i]);
    if (st == GM_OK) st = clear_inputs(b);
    return st == GM_OK ? check_states(b) : st;
}

/* Random numbers of this step are read from the step block (a recorded CUDA graph runs with many steps); a graph that
 * is kept until a later step needs those that its forward drew. */
static void keep_stream(const gm_rank *r, gm_node *n)
{
    gm_stream *stream = &n->attrs.stream;
    if (stream->step < 0 && n->rng_step != r->device->step.rng_step) stream->step = (int64_t)n->rng_step;
}

gm_status gm_tape_run_node(gm_rank *r, gm_tape *t, gm_node *n, gm_half half)
{
    gm_backward b = {.rank = r, .tape = t, .node = n, .half = half};
    GM_TRY(gm_rank_set_path(r, n->path)); /* what it sends and allocates is that module's */
    gm_rank_place(r, n->name);
    keep_stream(r, n);
    gm_status st = run_rule(&b);
    if (st == GM_OK || !*n->path) return st;
    return GM_FAIL(st, "backward of %s in %s: %s", n->name, n->path, gm_last_error());
}
