/* backward.c - runs one node of a tape: the functions that its rule calls. terms.c adds the results to other terms;
 * passes.c runs the tape. See tape.h. */
#include <stdio.h>

#include "anomaly.h"
#include "padding.h"
#include "layout_rules/rules.h"
#include "gradients.h"
#include "tape_nodes.h"

gm_work           *gm_backward_work(gm_backward *b) { return &b->work; }
gm_rank           *gm_backward_rank(gm_backward *b) { return b->rank; }
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

gm_tensor *gm_backward_like(gm_backward *b, int i)
{
    const gm_spec *spec = &b->node->in[i].spec;
    return gm_work_new(&b->work, spec->dtype, spec->ndim, spec->shape);
}

void gm_backward_clear(gm_backward *b, gm_tensor *t)
{
    const place *p = b->node->places ? b->node->places + b->node->n_in : NULL;
    if (p && p->padded) GM_STEP(&b->work, gm_padding_fill(b->rank, &p->layout, t->ndim, p->shape, t, 0));
}

gm_tensor *gm_backward_place(gm_backward *b, int i)
{
    const edge *e = &b->node->in[i];
    gm_node    *from = e->from;
    if (!from || !from->unbinds) return gm_backward_like(b, i);
    if (!from->placed) GM_STEP(&b->work, gm_term_new(b, &from->in[0].spec, &from->placed));
    return gm_work_select(&b->work, from->placed, (int)from->extra[0], e->output);
}

gm_tensor *gm_backward_placed(gm_backward *b)
{
    gm_tensor *t = b->node->placed;
    b->node->placed = NULL;
    return t ? gm_work_hold(&b->work, t) : NULL;
}

gm_tensor *gm_backward_grad_or_zeros(gm_backward *b, int i)
{
    output *o = &b->node->out[i];
    if (!o->grad) {
        GM_STEP(&b->work, gm_term_new(b, &o->spec, &o->grad));
        GM_STEP(&b->work, gm_term_zero(b, o->grad));
    }
    return o->grad;
}

gm_tensor *gm_backward_saved(gm_backward *b, int i)
{
    gm_tensor *t = NULL;
    GM_STEP(&b->work, gm_saved_read(&b->node->saved[i], b->node->name, &t));
    return t;
}

gm_tensor *gm_backward_take(gm_backward *b, int i)
{
    gm_tensor *t = gm_backward_saved(b, i);
    if (!t) return NULL;
    if (b->tape->retains || t->refs > 1 || t->storage->refs > 1) return gm_work_cast(&b->work, t, t->dtype);
    gm_tensor_retain(t);
    gm_saved_clear(&b->node->saved[i]);
    return gm_work_hold(&b->work, t);
}

gm_tensor *gm_backward_activated(gm_backward *b, int i, gm_function *function)
{
    const edge *e = &b->node->in[i];
    gm_node    *from = e->from;
    gm_tensor  *pre = NULL;
    if (b->tape->retains || !from || from->op != GM_OP_linear || e->output || !from->attrs.function) return NULL;
    if (from->out[0].readers != 1 || from->out[0].grad || from->out[0].keeper) return NULL;
    GM_STEP(&b->work, gm_saved_read(&from->saved[GM_SLOT_OUTPUT + 1], from->name, &pre));
    if (!pre || b->work.st != GM_OK) return NULL;
    gm_tensor_retain(pre);
    gm_saved_clear(&from->saved[GM_SLOT_OUTPUT + 1]);
    *function = from->attrs.function;
    return gm_work_hold(&b->work, pre);
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
    gm_saved *s = &b->node->saved[i];
    if (b->half != GM_HALF_INPUT) return;
    if (t) gm_tensor_retain(t);
    gm_saved_clear(s);
    gm_saved_keep_tensor(s, t);
    gm_tensor_release(t);
}

void gm_backward_keep_grad(gm_backward *b, int i, gm_tensor *t)
{
    gm_tensor **grad = &b->node->out[i].grad;
    if (b->half != GM_HALF_INPUT) return;
    if (t) gm_tensor_retain(t);
    gm_tensor_release(*grad);
    *grad = t;
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
        if (!o->grad || gm_rule_counts(b->rank, axes)) continue;
        GM_TRY(gm_term_own(b, &o->grad));
        GM_TRY(gm_term_zero(b, o->grad));
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
        gm_tensor **g = e->leaf ? &e->leaf->param->grad : &e->from->out[e->output].grad;
        if (!*g) continue;
        if (b->rank->poison_padding && !e->leaf) GM_TRY(gm_term_own(b, g));
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
        st = gm_term_give_leaf(b, o->keeper, o->grad, o->partial);
    }
    return st;
}

static gm_status run_rule(gm_backward *b)
{
    GM_TRY(clear_outputs(b));
    GM_TRY(keep_gradients(b));
    GM_TRY(unify(b));
    b->node->rule(b);
    gm_status st = gm_term_add_narrow(b);
    GM_STEP(&b->work, st);
    GM_TRY(gm_work_end(&b->work));
    GM_TRY(clear_inputs(b));
    return check_states(b);
}

/* ---- anomalies ---- */

#define WATCHED 16 /* gradients of a node that are looked at */

/* Where the rule puts the gradient of an input. */
static gm_tensor **given_to(const edge *e) { return e->leaf ? &e->leaf->param->grad : &e->from->out[e->output].grad; }

static bool is_scaled(const gm_tensor *t) { return t->dtype == GM_F16; } /* see anomaly.h */

/* Looks at the gradients that the rule has given, whose padding it clears first. */
static gm_status check_gradients(gm_backward *b, int n_given, const gm_anomaly_part *given)
{
    const gm_node  *n = b->node;
    gm_anomaly_part made[WATCHED];
    char            names[WATCHED][48], what[96];
    int             count = 0;
    for (int i = 0; i < n->n_in && count < WATCHED; i++) {
        const place *p = n->places ? &n->places[i] : NULL;
        if (!gm_backward_wants(b, i)) continue;
        gm_tensor *g = *given_to(&n->in[i]);
        if (!g || is_scaled(g)) continue;
        if (p && p->padded) GM_TRY(gm_padding_fill(b->rank, &p->layout, g->ndim, p->shape, g, 0));
        snprintf(names[count], sizeof names[count], "the gradient of input %d", i + 1);
        made[count] = (gm_anomaly_part){names[count], g, false};
        count++;
    }
    snprintf(what, sizeof what, "the backward pass of %s", n->name);
    return gm_anomaly_check(b->rank, what, n->path, n_given, given, count, made);
}

/* Runs the node, and looks at what its rule was given and has given. */
static gm_status run_watched(gm_backward *b)
{
    gm_node        *n = b->node;
    gm_anomaly_part given[WATCHED];
    gm_tensor      *kept[WATCHED];
    char            names[WATCHED][48];
    int             count = 0;
    for (int i = 0; i < n->n_out && count < WATCHED; i++) {
        if (!n->out[i].grad) continue;
        snprintf(names[count], sizeof names[count], "the gradient of result %d", i + 1);
        kept[count] = n->out[i].grad;
        given[count] = (gm_anomaly_part){names[count], kept[count], false};
        gm_tensor_retain(kept[count++]);
    }
    gm_status st = run_rule(b);
    if (st == GM_OK) st = check_gradients(b, count, given);
    for (int i = 0; i < count; i++) gm_tensor_release(kept[i]);
    return st;
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
    gm_work_begin(&b.work, r, n->name);
    keep_stream(r, n);
    gm_status st = r->detect_anomaly ? run_watched(&b) : run_rule(&b);
    if (st == GM_OK || st == GM_ENOTFINITE || !*n->path) return st;
    return GM_FAIL(st, "backward of %s in %s: %s", n->name, n->path, gm_last_error());
}
