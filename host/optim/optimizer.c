/* optimizer.c - see optimizer.h. */
#include "items.h"

#include <stdlib.h>
#include <string.h>
#include "../../kernels/philox.h"
#include "../../kernels/states.h"
#include "../../kernels/step_control.h"
#include "../../kernels/trust.h"
#include "../autograd/padding.h"
#include "../gradients/parts.h"
#include "states.h"
#include "trust.h"

static const char *const moments[GM_OP_COUNT][MAX_STATES] = {
#define GM_OPTIMIZER(name, moments, there, positive, momentum, attributes, flops, ...) [GM_OP_##name] = {__VA_ARGS__},
#include "../../kernels/optimizers.def"
#undef GM_OPTIMIZER
};

/* The moments that a parameter has with these attributes: bit k for moment k. */
static unsigned moments_of(gm_op op, const gm_attrs *at)
{
    switch (op) {
#define GM_OPTIMIZER(name, moments, there, ...) \
    case GM_OP_##name:                          \
        return (unsigned)(there);
#include "../../kernels/optimizers.def"
#undef GM_OPTIMIZER
    default: return 0;
    }
}

/* Tensors of a parameter in a call: p, moments, master, trust; NULL where there is none. */
static int width_of(const gm_optimizer *o) { return gm_op_gives(o->op)->n; }
static int master_of(const gm_optimizer *o) { return width_of(o) - 3; } /* its place among the states */

bool gm_item_has_state(const gm_optimizer *o, const item *it, int k)
{
    const gm_attrs *a = gm_item_attrs(o, it);
    if (k == master_of(o)) return gm_dtype_is_narrow(it->parameter->local->dtype) && !a->stochastic;
    return k < master_of(o) && moments_of(o->op, a) >> k & 1;
}

/* In what state k of a parameter is kept: GM_STATES_*. */
int64_t gm_item_kept_in(const gm_optimizer *o, const item *it, int k)
{
    return k == master_of(o) ? GM_STATES_F32 : it->set.states;
}

gm_status gm_optimizer_new(gm_rank *r, gm_op op, int n, gm_value *const *parameters, int n_attrs, const gm_attrs *attrs,
                           const gm_optimizer_item *items, gm_optimizer **out)
{
    for (int i = 0; i < n; i++)
        if (parameters[i]->node || !parameters[i]->requires_grad)
            return GM_FAIL(GM_EINVAL, "optimizer: tensor %d is not a parameter (a leaf that requires a gradient)",
                           i + 1);
    gm_optimizer *o = calloc(1, sizeof *o + (size_t)n * sizeof *o->items);
    if (!o) return GM_FAIL(GM_ENOMEM, "no memory for an optimizer of %d parameters", n);
    o->in = calloc((size_t)n + 3, sizeof *o->in);
    o->out = calloc((MAX_STATES + 2) * (size_t)n + 1, sizeof *o->out);
    o->view = calloc((MAX_STATES + 3) * (size_t)n + 1, sizeof *o->view);
    o->attrs = calloc((size_t)n_attrs + 1, sizeof *o->attrs);
    if (!o->in || !o->out || !o->view || !o->attrs) {
        gm_optimizer_free(o);
        return GM_FAIL(GM_ENOMEM, "no memory for an optimizer of %d parameters", n);
    }
    o->rank = r;
    o->op = op;
    o->n_attrs = n_attrs;
    for (int k = 0; k < n_attrs; k++) {
        o->attrs[k] = attrs[k];
        o->attrs[k].stream.key = gm_stream_key(r->seed, GM_PURPOSE_NOISE, gm_hash_text(GM_HASH_START, "optimizer"));
    }
    o->n = n;
    for (int i = 0; i < n; i++) {
        o->items[i].set = items ? items[i] : (gm_optimizer_item){1, attrs->weight_decay, 1, 0, 0, (uint64_t)i};
        o->items[i].parameter = parameters[i];
        gm_value_retain(parameters[i]);
    }
    *out = o;
    return GM_OK;
}

void gm_optimizer_free(gm_optimizer *o)
{
    if (!o) return;
    for (int i = 0; i < o->n; i++) {
        gm_value_release(o->items[i].parameter);
        for (int k = 0; k < MAX_STATES; k++) gm_tensor_release(o->items[i].state[k]);
        gm_tensor_release(o->items[i].missed);
    }
    gm_tensor_release(o->trust);
    gm_offload_free(o->offload);
    free(o->in);
    free(o->out);
    free(o->view);
    free(o->attrs);
    free(o);
}

gm_status gm_optimizer_outside_graph(const gm_rank *r)
{
    if (!r->device->capture) return GM_OK;
    return GM_FAIL(GM_EINVAL,
                   "the state of a parameter is made in its first step, or its first without a gradient, which cannot "
                   "be part of a graph");
}

/* ---- the part of a parameter that this rank updates ----
 *
 * All of its block, or where sums of gradients (gm_parameter.own) or numbers (stored) are shared out the rows that it
 * owns. States are laid out as these parts, so their blocks may reach beyond the tensor's end; rows there are not
 * updated, and stay zero. */

/* What of t is updated: t is the parameter's block or a gradient of all of it, or laid out as the states. *out is a
 * reference. */
static gm_status part_of(const item *it, gm_tensor *t, gm_tensor **out) { return gm_owned_part(it->parameter, t, out); }

/* The same as an argument of the call that is prepared; NULL stays NULL. A moment in blocks has no other elements. */
static gm_status add_part(gm_optimizer *o, const item *it, gm_tensor *t, gm_tensor **argument)
{
    *argument = NULL;
    if (!t) return GM_OK;
    if (t->dtype == GM_U8) gm_tensor_retain(*argument = t);
    else GM_TRY(part_of(it, t, argument));
    o->view[o->n_views++] = *argument;
    return GM_OK;
}

static void drop_parts(gm_optimizer *o)
{
    while (o->n_views) gm_tensor_release(o->view[--o->n_views]);
}

/* A moment, all of whose elements are `value`, or the master, which is the parameter. */
static gm_status fill_state(const item *it, bool master, double value, gm_tensor *state)
{
    gm_attrs   a = gm_attrs_default();
    gm_layout  layout;
    gm_tensor *p = NULL, *part = NULL, *resting;
    gm_device *dev = it->parameter->rank->device;
    gm_status  st = GM_OK;
    a.value = master ? 0 : value;
    if (!master || gm_is_shared_out(it->parameter)) st = gm_run_one(dev, GM_OP_fill, &a, NULL, state);
    if (!master || st != GM_OK) return st;
    a.dtype = state->dtype;
    GM_TRY_OR(gm_value_resting(it->parameter, &layout, &resting), st, done);
    GM_TRY_OR(part_of(it, resting, &p), st, done);
    GM_TRY_OR(part_of(it, state, &part), st, done);
    st = gm_run_one(dev, GM_OP_copy, &a, p, part);
done:
    gm_tensor_release(p);
    gm_tensor_release(part);
    return st;
}

const gm_tensor *gm_item_like(const item *it)
{
    const gm_parameter *p = it->parameter->param;
    return !gm_is_shared_out(it->parameter) ? it->parameter->local : p->stored ? p->stored : p->own;
}

/* The tensor of a state, without numbers so far. It may rest in a tier. */
static gm_status new_kept(const gm_optimizer *o, const item *it, const gm_spec *spec, gm_tensor **out)
{
    gm_device *dev = o->rank->device;
    gm_rank_place(o->rank, "optimizer state");
    if (!gm_offload_takes(o->offload, (int)(it - o->items)))
        return gm_tensor_new(dev, spec->dtype, spec->ndim, spec->shape, out);
    return gm_tier_new_tensor(gm_offload_tier(o->offload), dev, spec->dtype, spec->ndim, spec->shape, out);
}

/* What is kept of a moment, all of whose elements are `value`, or the master. */
static gm_status new_state(const gm_optimizer *o, const item *it, int k, gm_tensor **out)
{
    gm_status  st;
    gm_tensor *wide = NULL;
    bool       master = k == master_of(o);
    double     value = gm_item_attrs(o, it)->value;
    GM_TRY(gm_optimizer_outside_graph(o->rank));
    gm_spec spec = gm_states_spec(it->parameter, gm_item_like(it), gm_item_kept_in(o, it, k));
    GM_TRY(new_kept(o, it, &spec, out));
    if (spec.dtype != GM_U8 || value == 0) st = fill_state(it, master, spec.dtype == GM_U8 ? 0 : value, *out);
    else {
        GM_TRY_OR(gm_states_wide(it->parameter, gm_item_like(it), &wide), st, done);
        GM_TRY_OR(fill_state(it, false, value, wide), st, done);
        st = gm_states_encode(it->parameter, wide, gm_states_positive(o->op, k), *out);
    }
done:
    gm_tensor_release(wide);
    if (st != GM_OK) {
        gm_tensor_release(*out);
        *out = NULL;
    }
    return st;
}

static gm_status make_states(gm_optimizer *o, item *it)
{
    for (int k = 0; k < MAX_STATES; k++) {
        if (it->state[k] || !gm_item_has_state(o, it, k)) continue;
        GM_TRY(new_state(o, it, k, &it->state[k]));
    }
    return GM_OK;
}

/* Copies of a parameter would part if each were updated by its own rank's terms. */
static gm_status check_gradient(const gm_optimizer *o, int i)
{
    char            axes[128];
    gm_layout       layout;
    const gm_value *v = o->items[i].parameter;
    if (o->takes_updates || !gm_value_final_grad(v, &layout) || !layout.partial) return GM_OK;
    return GM_FAIL(GM_EINVAL,
                   "optimizer: the gradient of parameter %d is still to be summed over %s; reduce gradients before "
                   "the step (the engine does, unless gradient_handler says which handlers shall)",
                   i + 1, gm_mesh_describe(&o->rank->mesh, layout.partial, axes, sizeof axes));
}

/* ---- steps ---- */

/* A parameter of 16 bits can have a gradient of f32. Then the kernel updates the master as a parameter of f32 without a
 * master, and the parameter is rounded from it. */
static bool has_wide_gradient(const gm_optimizer *o, const item *it)
{
    const gm_tensor *g = gm_item_gradient(o, it);
    return g && g->dtype != it->parameter->local->dtype;
}

/* A gradient of f32 as one of 16 bits, for a parameter that has no master. */
static gm_status add_rounded(gm_optimizer *o, const item *it, gm_tensor **argument)
{
    gm_attrs   a = gm_attrs_default();
    gm_tensor *g, *narrow = NULL;
    a.dtype = it->parameter->local->dtype;
    GM_TRY(part_of(it, gm_item_gradient(o, it), &g));
    gm_rank_place(o->rank, "gradient");
    gm_status st = gm_tensor_new(o->rank->device, a.dtype, g->ndim, g->shape, &narrow);
    if (st == GM_OK) st = gm_run_one(o->rank->device, GM_OP_copy, &a, g, narrow);
    if (st == GM_OK) o->view[o->n_views++] = *argument = narrow;
    else gm_tensor_release(narrow);
    gm_tensor_release(g);
    return st;
}

/* The squares of a parameter, NULL where it has no trust ratio. */
static gm_status add_trust(gm_optimizer *o, int i, gm_tensor **argument)
{
    int64_t n = 2, stride = 1;
    *argument = NULL;
    if (!o->attrs[0].trust || !o->items[i].set.trust) return GM_OK;
    GM_TRY(gm_tensor_view(o->trust, 1, &n, &stride, 2 * (int64_t)i, argument));
    o->view[o->n_views++] = *argument;
    return GM_OK;
}

/* The arguments of one parameter. */
static gm_status add_item(gm_optimizer *o, int i, int *n_in, int *n_out)
{
    item      *it = &o->items[i];
    bool       wide = has_wide_gradient(o, it), by_master = wide && gm_item_has_state(o, it, master_of(o));
    gm_layout  layout;
    gm_tensor *p;
    GM_TRY(check_gradient(o, i));
    GM_TRY(gm_value_resting(it->parameter, &layout, &p));
    if (p == it->parameter->local) GM_TRY(gm_padding_renew(it->parameter));
    gm_tensor **in = &o->in[(*n_in)++], **out = o->out + *n_out, *master = it->state[master_of(o)];
    GM_TRY(wide && !by_master ? add_rounded(o, it, in) : add_part(o, it, gm_item_gradient(o, it), in));
    GM_TRY(add_part(o, it, by_master ? master : p, out));
    for (int k = 0; k < master_of(o); k++) GM_TRY(add_part(o, it, it->state[k], ++out));
    GM_TRY(add_part(o, it, by_master ? NULL : master, ++out));
    GM_TRY(add_trust(o, i, ++out));
    *n_out += width_of(o);
    return GM_OK;
}

/* After an update with a gradient of f32: the parameter becomes its master, rounded. */
static gm_status round_item(gm_optimizer *o, const item *it)
{
    gm_attrs   a = gm_attrs_default();
    gm_layout  layout;
    gm_tensor *p = NULL, *master = NULL, *resting;
    gm_status  st;
    if (!has_wide_gradient(o, it) || !gm_item_has_state(o, it, master_of(o))) return GM_OK;
    a.dtype = it->parameter->local->dtype;
    GM_TRY(gm_value_resting(it->parameter, &layout, &resting));
    GM_TRY_OR(part_of(it, resting, &p), st, done);
    GM_TRY_OR(part_of(it, it->state[master_of(o)], &master), st, done);
    st = gm_run_one(o->rank->device, GM_OP_copy, &a, master, p);
done:
    gm_tensor_release(p);
    gm_tensor_release(master);
    return st;
}

static bool is_due(const item *it, bool measure) { return measure ? !it->measured : !it->done; }

static bool same_settings(const gm_optimizer_item *a, const gm_optimizer_item *b)
{
    return a->lr_scale == b->lr_scale && a->weight_decay == b->weight_decay && a->trust == b->trust &&
           a->attrs == b->attrs && a->states == b->states;
}

/* Has it to be updated still (measure: its squares to be taken), in one call with f? */
static bool goes_with(const gm_optimizer *o, const item *it, const item *f, bool measure)
{
    return is_due(it, measure) && same_settings(&it->set, &f->set) && it->missed == f->missed &&
           it->parameter->local->dtype == f->parameter->local->dtype &&
           has_wide_gradient(o, it) == has_wide_gradient(o, f);
}

/* Where the unit ends that begins at item i: parameters of one kernel call. It is the whole group if all is in
 * memory and nothing is rounded by chance. */
static int end_of_unit(const gm_optimizer *o, int i, const item *f, bool measure)
{
    bool     one = gm_item_draws(o, f);
    uint64_t bytes = 0, most = one ? 0 : gm_tier_unit(o->rank->rests.tier);
    for (int n = 0; i < o->n; i++) {
        if ((!one && !o->rank->rests.tier) || !goes_with(o, &o->items[i], f, measure)) continue;
        bytes += gm_item_ring_needs(o, &o->items[i]);
        if (n++ && (one || bytes > most)) break;
    }
    return i;
}

/* What the unit that begins at item i needs begins to come, while another one is updated. */
static gm_status fetch_ahead(gm_optimizer *o, int i, const item *f, bool measure)
{
    for (int end = o->rank->rests.tier ? end_of_unit(o, i, f, measure) : i; i < end; i++)
        if (goes_with(o, &o->items[i], f, measure)) GM_TRY(gm_item_begin(o, &o->items[i]));
    return GM_OK;
}

static gm_status step_unit(gm_optimizer *o, int begin, int end, const item *f, gm_tensor *control, const gm_attrs *a)
{
    int       n_in = 0, n_out = 0;
    gm_attrs  own = *a;
    gm_status st;
    GM_TRY(fetch_ahead(o, begin, f, a->measure)); /* of the first unit nothing is under way yet */
    o->in[n_in++] = control;
    o->in[n_in++] = f->missed;
    for (int i = begin; i < end; i++) {
        item *it = &o->items[i];
        if (!goes_with(o, it, f, a->measure)) continue;
        *(a->measure ? &it->measured : &it->done) = true;
        it->called = !a->measure;
        if (gm_item_draws(o, it)) gm_item_place_words(it, &own);
        GM_TRY_OR(add_item(o, i, &n_in, &n_out), st, done);
        if (!a->measure) GM_TRY_OR(gm_value_resting_changes(it->parameter), st, done);
    }
    gm_call c = {.op = o->op, .n_in = n_in, .n_out = n_out, .in = o->in, .out = o->out, .attrs = &own};
    GM_TRY_OR(fetch_ahead(o, end, f, a->measure), st, done);
    st = gm_run(o->rank->device, &c);
    for (int i = begin; i < end && st == GM_OK; i++)
        if (o->items[i].called) st = round_item(o, &o->items[i]);
done:
    for (int i = begin; i < end; i++) o->items[i].called = false;
    drop_parts(o);
    return st;
}

/* Every parameter that shares item `first`'s settings, missed updates and dtype. measure: for their squares, else for
 * their updates. */
static gm_status step_group(gm_optimizer *o, int first, bool measure, gm_tensor *control)
{
    item     f = o->items[first];
    gm_attrs a = *gm_item_attrs(o, &f);
    a.weight_decay = f.set.weight_decay;
    a.lr_scale = f.set.lr_scale;
    if (!f.set.trust) a.trust = GM_TRUST_NONE;
    a.measure = measure;
    a.states = f.set.states;
    a.stochastic = a.stochastic && gm_dtype_is_narrow(f.parameter->local->dtype);
    for (int begin = first, end; begin < o->n; begin = end) {
        end = end_of_unit(o, begin, &f, measure);
        GM_TRY(step_unit(o, begin, end, &f, control, &a));
    }
    return GM_OK;
}

/* The squares of all parameters with a gradient and a trust ratio, each global tensor's. */
static gm_status measure_all(gm_optimizer *o, gm_tensor *control)
{
    gm_attrs zero = gm_attrs_default();
    uint32_t axes = gm_trust_axes(o);
    if (!o->trust) {
        GM_TRY(gm_optimizer_outside_graph(o->rank));
        gm_rank_place(o->rank, "optimizer state");
        GM_TRY(gm_tensor_new(o->rank->device, GM_F64, 2, (int64_t[]){o->n, 2}, &o->trust));
    }
    GM_TRY(gm_run_one(o->rank->device, GM_OP_fill, &zero, NULL, o->trust));
    for (int i = 0; i < o->n; i++) {
        item *it = &o->items[i];
        it->measured = it->done || !it->set.trust || !gm_trust_counts(o, i, axes);
    }
    for (int i = 0; i < o->n; i++)
        if (!o->items[i].measured) GM_TRY(step_group(o, i, true, control));
    return gm_trust_sum(o->rank, axes, o->trust);
}

void gm_optimizer_prepare(gm_optimizer *o, double lr)
{
    gm_step_block *block = &o->rank->device->step;
    block->step = o->steps + 1;
    block->lr = lr;
    block->clip = block->loss_scale = 1;
    block->has_momentum = o->has_momentum;
    block->momentum = o->momentum;
}

gm_status gm_optimizer_step(gm_optimizer *o, double lr, double clip, double loss_scale, gm_tensor *control)
{
    unsigned moments_there = 0;
    gm_optimizer_prepare(o, lr);
    o->rank->device->step.clip = clip;
    o->rank->device->step.loss_scale = loss_scale;
    for (int i = 0; i < o->n; i++) {
        o->items[i].done = false;
        if (gm_item_gradient(o, &o->items[i]))
            GM_TRY(make_states(o, &o->items[i])); /* without memory nothing has changed */
    }
    for (int k = 0; k < o->n_attrs; k++) moments_there |= moments_of(o->op, &o->attrs[k]);
    GM_TRY(gm_optimizer_miss(o, control, moments_there != 0)); /* else step numbers have no use */
    if (o->attrs[0].trust) GM_TRY(measure_all(o, control));
    for (int i = 0; i < o->n; i++)
        if (!o->items[i].done) GM_TRY(step_group(o, i, false, control));
    o->steps++;
    return GM_OK;
}

void gm_optimizer_take_updates(gm_optimizer *o) { o->takes_updates = true; }
void gm_optimizer_give(gm_optimizer *o, int i, gm_tensor *update) { o->items[i].given = update; }

int64_t gm_optimizer_steps(const gm_optimizer *o) { return o->steps - o->skipped; }
void    gm_optimizer_set_steps(gm_optimizer *o, int64_t steps) { o->steps = steps + o->skipped; }
void    gm_optimizer_set_skipped(gm_optimizer *o, int64_t skipped) { o->skipped = skipped; }
int     gm_optimizer_parameters(const gm_optimizer *o) { return o->n; }

const gm_value *gm_optimizer_parameter(const gm_optimizer *o, int i) { return o->items[i].parameter; }

const gm_layout *gm_optimizer_layout(const gm_optimizer *o, int i) { return gm_owned_layout(o->items[i].parameter); }

gm_status gm_optimizer_set_momentum(gm_optimizer *o, double momentum)
{
    if (!(momentum >= 0 && momentum < 1))
        return GM_FAIL(GM_EINVAL, "optimizer: momentum %g is not in [0, 1)", momentum);
    for (int k = 0; k < o->n_attrs; k++) {
        gm_attrs a = o->attrs[k];
        a.momentum = momentum;
        if (moments_of(o->op, &a) != moments_of(o->op, &o->attrs[k]))
            return GM_FAIL(GM_EINVAL, "optimizer: %s cannot gain or lose its momentum on the way", gm_op_name(o->op));
    }
    o->momentum = momentum;
    o->has_momentum = true;
    return GM_OK;
}

int gm_optimizer_place(const gm_optimizer *o, int i, int k)
{
    int s = 0;
    while (s < MAX_STATES && (!o->items[i].state[s] || k-- > 0)) s++;
    return s;
}

gm_status gm_optimizer_state(gm_optimizer *o, int i, int k, const char **name, gm_tensor **out)
{
    *out = NULL;
    GM_TRY(make_states(o, &o->items[i]));
    int s = gm_optimizer_place(o, i, k);
    if (s == MAX_STATES) return GM_OK;
    *name = s == master_of(o) ? "master" : moments[o->op][s];
    *out = o->items[i].state[s];
    return GM_OK;
}

size_t gm_optimizer_bytes(const gm_optimizer *o)
{
    size_t bytes = o->trust ? o->trust->storage->bytes : 0;
    for (int i = 0; i < o->n; i++)
        for (int k = 0; k < MAX_STATES; k++)
            if (o->items[i].state[k] && !gm_tier_holds(o->items[i].state[k]->storage))
                bytes += o->items[i].state[k]->storage->bytes;
    return bytes;
}
