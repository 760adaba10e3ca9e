/* terms.c - adds the gradients that rules give to those given before: in the buffer of a leaf, or in the gradient of a
 * node's output. Terms are blocks that are replicated or partial over axes; two terms of different state are converted
 * to one state first. See tape.h. */
#include "padding.h"
#include "sparse.h"
#include "layout_rules/rules.h"
#include "tape_nodes.h"

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

gm_status gm_term_new(gm_backward *b, const gm_spec *spec, gm_tensor **out)
{
    gm_tensor *t = NULL;
    GM_TRY(gm_tensor_new(b->rank->device, spec->dtype, spec->ndim, spec->shape, &t));
    GM_TRY(gm_padding_poison_new(b->rank, t));
    *out = t;
    return GM_OK;
}

static gm_status clone(gm_backward *b, gm_tensor *t, gm_tensor **out)
{
    gm_spec spec = gm_tape_spec(t);
    GM_TRY(gm_term_new(b, &spec, out));
    gm_status st = add_into(b->rank->device, *out, t, false);
    if (st != GM_OK) gm_tensor_release(*out);
    return st;
}

gm_status gm_term_own(gm_backward *b, gm_tensor **held)
{
    gm_tensor *copy = NULL;
    if (exclusive(*held)) return GM_OK;
    GM_TRY(clone(b, *held, &copy));
    gm_tensor_release(*held);
    *held = copy;
    return GM_OK;
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

gm_status gm_term_zero(gm_backward *b, gm_tensor *t) { return gm_run_one(b->rank->device, GM_OP_fill, NULL, NULL, t); }

/* A term joins a sum: *sum becomes the axes that both are then partial over. What is replicated over an axis that
 * the other is partial over counts at coordinate 0 alone. */
static void join(const gm_rank *r, uint32_t *sum, uint32_t term, bool *sum_counts, bool *term_counts)
{
    *sum_counts = gm_rule_counts(r, term & ~*sum);
    *term_counts = gm_rule_counts(r, *sum & ~term);
    *sum |= term;
}

/* A place for a term that counts on other ranks only. */
static gm_status scratch(gm_backward *b, const gm_spec *spec, gm_tensor **out)
{
    *out = gm_work_new(&b->work, spec->dtype, spec->ndim, spec->shape);
    return b->work.st;
}

/* In place of a wide gradient, *target, a tensor of the input's dtype; add_narrow brings it there. */
static gm_status narrow_target(gm_backward *b, const edge *e, gm_tensor **target, bool *accumulate)
{
    int i = b->n_narrow;
    if (i == (int)(sizeof b->narrow / sizeof *b->narrow))
        return GM_FAIL(GM_EINVAL, "%s: too many wide gradients of inputs of 16 bits", b->node->name);
    GM_TRY(gm_term_new(b, &e->spec, &b->narrow[i].term)); /* a rule may drop what its work holds */
    b->narrow[i].sum = *target;
    b->narrow[i].accumulate = *accumulate;
    b->n_narrow++;
    *target = b->narrow[i].term;
    *accumulate = false;
    return GM_OK;
}

gm_status gm_term_add_narrow(gm_backward *b)
{
    gm_status st = b->work.st;
    for (int i = 0; i < b->n_narrow; i++) {
        if (st == GM_OK) st = add_into(b->rank->device, b->narrow[i].sum, b->narrow[i].term, b->narrow[i].accumulate);
        gm_tensor_release(b->narrow[i].term);
    }
    b->n_narrow = 0;
    return st;
}

static gm_status leaf_target(gm_backward *b, const edge *e, gm_tensor **out, bool *accumulate)
{
    gm_value *leaf = e->leaf;
    uint32_t  term = partial_of(b, e);
    bool      held = leaf->param->grad_set, counts = true;
    GM_TRY(gm_value_grad_buffer(leaf, out));
    leaf->param->grad_set = true;
    *accumulate = held;
    if (!held) leaf->param->grad_partial = term;
    if (leaf->param->grad_partial == term) return GM_OK;
    join(b->rank, &leaf->param->grad_partial, term, &held, &counts);
    *accumulate = held;
    if (counts) return GM_OK;
    if (!held) GM_TRY(gm_term_zero(b, *out));
    *accumulate = false;
    return scratch(b, &e->spec, out);
}

static gm_status output_target(gm_backward *b, const edge *e, gm_tensor **out, bool *accumulate)
{
    output  *to = &e->from->out[e->output];
    uint32_t term = partial_of(b, e);
    bool     held = to->grad != NULL, counts = true;
    *accumulate = held;
    if (held) GM_TRY(gm_term_own(b, &to->grad));
    else GM_TRY(gm_term_new(b, &e->spec, &to->grad));
    if (!held) to->partial = term;
    *out = to->grad;
    if (to->partial == term) return GM_OK;
    join(b->rank, &to->partial, term, &held, &counts);
    *accumulate = held;
    if (counts) return GM_OK;
    if (!held) GM_TRY(gm_term_zero(b, *out));
    *accumulate = false;
    return scratch(b, &e->spec, out);
}

gm_tensor *gm_backward_wide_target(gm_backward *b, int i, bool *accumulate)
{
    const edge *e = &b->node->in[i];
    gm_tensor  *to = NULL;
    *accumulate = false;
    if (!gm_backward_wants(b, i))
        GM_STEP(&b->work, GM_FAIL(GM_EINVAL, "%s: its rule computes the gradient of input %d, which is not asked for",
                                  b->node->name, i + 1));
    GM_STEP(&b->work, (e->leaf ? leaf_target : output_target)(b, e, &to, accumulate));
    return to;
}

gm_tensor *gm_backward_target(gm_backward *b, int i, bool *accumulate)
{
    const edge *e = &b->node->in[i];
    gm_tensor  *to = gm_backward_wide_target(b, i, accumulate);
    if (to && to->dtype != e->spec.dtype) GM_STEP(&b->work, narrow_target(b, e, &to, accumulate));
    return to;
}

gm_status gm_term_give_leaf(gm_backward *b, gm_value *leaf, gm_tensor *g, uint32_t term)
{
    bool rests = b->rank->rests.gradients && !leaf->param->own; /* then its buffer comes from the tier */
    if (!leaf->param->sparse && !leaf->param->grad && exclusive(g) && !leaf->param->wide_grad && !rests) {
        leaf->param->grad = g;
        leaf->param->grad_set = true;
        leaf->param->grad_partial = term;
        return GM_OK;
    }
    gm_tensor *buffer = NULL;
    bool       held = leaf->param->grad_set, counts = true;
    if (!held) leaf->param->grad_partial = term;
    if (leaf->param->grad_partial != term) join(b->rank, &leaf->param->grad_partial, term, &held, &counts);
    gm_status st = gm_value_grad_buffer(leaf, &buffer);
    if (st == GM_OK && counts) st = add_into(b->rank->device, buffer, g, held);
    else if (st == GM_OK && !held) st = gm_term_zero(b, buffer);
    if (st == GM_OK) leaf->param->grad_set = true;
    gm_tensor_release(g);
    return st;
}

bool gm_backward_is_sparse(gm_backward *b, int i)
{
    const edge *e = &b->node->in[i];
    return e->leaf && e->leaf->param->sparse && gm_backward_wants(b, i);
}

void gm_backward_give_rows(gm_backward *b, int i, gm_tensor *row, gm_tensor *g, gm_tensor *weight, int64_t padding)
{
    const edge   *e = &b->node->in[i];
    gm_parameter *p = e->leaf->param;
    uint32_t      term = partial_of(b, e);
    bool          held = p->row != NULL, counts = true;
    if (!held) p->grad_partial = term;
    if (p->grad_partial != term) join(b->rank, &p->grad_partial, term, &held, &counts);
    if (p->row && !held) gm_work_fill(&b->work, p->row, -1);
    if (!counts) gm_work_fill(&b->work, row, -1);
    gm_sparse_add(&b->work, e->leaf, row, g, weight, padding);
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
    st = gm_term_own(b, held);
    if (st == GM_OK) st = add_into(b->rank->device, *held, g, true);
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
    GM_TRY(gm_term_own(b, &to->grad));
    return gm_term_zero(b, to->grad);
}

void gm_backward_give(gm_backward *b, int i, gm_tensor *g)
{
    const edge *e = &b->node->in[i];
    uint32_t    term = partial_of(b, e);
    if (!gm_work_yield(&b->work, g)) return;
    if (!gm_backward_wants(b, i)) gm_tensor_release(g);
    else if (e->leaf) b->work.st = gm_term_give_leaf(b, e->leaf, g, term);
    else b->work.st = give_output(b, &e->from->out[e->output], g, term);
}

void gm_backward_give_whole(gm_backward *b, gm_tensor *whole)
{
    gm_node *n = b->node;
    gm_backward_set_partial(b, 0, partial_of(b, &n->in[0])); /* as the slices say, while they are there */
    for (int i = 0; i < n->n_out; i++) {
        gm_tensor_release(n->out[i].grad);
        n->out[i].grad = NULL;
    }
    gm_backward_give(b, 0, whole);
}

gm_status gm_tape_add_term(gm_rank *r, gm_tape *t, gm_value *v, gm_tensor *term, uint32_t partial)
{
    gm_backward b = {.rank = r, .tape = t};
    if (!v->node) return gm_term_give_leaf(&b, v, term, partial);
    return give_output(&b, &v->node->out[v->output], term, partial);
}
