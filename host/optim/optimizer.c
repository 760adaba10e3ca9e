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

static int master_of(const gm_optimizer *o) { return gm_optimizer_master(o); }

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
    o->rank = r;
    o->op = op;
    o->n = n;
    o->n_attrs = n_attrs;
    o->attrs = calloc((size_t)n_attrs + 1, sizeof *o->attrs);
    if (!o->attrs || gm_units_new(o) != GM_OK) {
        o->n = 0;
        gm_optimizer_free(o);
        return GM_FAIL(GM_ENOMEM, "no memory for an optimizer of %d parameters", n);
    }
    for (int k = 0; k < n_attrs; k++) {
        o->attrs[k] = attrs[k];
        o->attrs[k].stream.key = gm_stream_key(r->seed, GM_PURPOSE_NOISE, gm_hash_text(GM_HASH_START, "optimizer"));
    }
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
    gm_units_free(o);
    gm_on_host_free(o->host);
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

/* master = p; on the host p comes down for it. */
static gm_status copy_master(const gm_optimizer *o, gm_tensor *p, gm_tensor *master)
{
    gm_attrs   a = gm_attrs_default();
    gm_trip    trip = {0};
    gm_tensor *here = p;
    gm_status  st = GM_OK;
    gm_device *dev = master->storage->device;
    a.dtype = master->dtype;
    if (dev != o->rank->device) {
        st = gm_trip_add(o->host, &trip, p, GM_TRIP_DOWN, &here);
        if (st == GM_OK) st = gm_trip_fetch(o->host, &trip);
        if (st == GM_OK) st = gm_trip_arrive(o->host, &trip);
    }
    if (st == GM_OK) st = gm_run_one(dev, GM_OP_copy, &a, here, master);
    gm_status ended = dev != o->rank->device ? gm_trip_end(o->host, &trip) : GM_OK;
    return st == GM_OK ? ended : st;
}

/* A moment, all of whose elements are `value`, or the master, which is the parameter. */
static gm_status fill_state(const gm_optimizer *o, const item *it, bool master, double value, gm_tensor *state)
{
    gm_attrs   a = gm_attrs_default();
    gm_layout  layout;
    gm_tensor *p = NULL, *part = NULL, *resting;
    gm_device *dev = state->storage->device;
    gm_status  st = GM_OK;
    a.value = master ? 0 : value;
    if (!master || gm_is_shared_out(it->parameter)) st = gm_run_one(dev, GM_OP_fill, &a, NULL, state);
    if (!master || st != GM_OK) return st;
    GM_TRY_OR(gm_value_resting(it->parameter, &layout, &resting), st, done);
    GM_TRY_OR(part_of(it, resting, &p), st, done);
    GM_TRY_OR(part_of(it, state, &part), st, done);
    st = copy_master(o, p, part);
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
    gm_tier *tier = gm_offload_tier(o->offload);
    return gm_tier_new_tensor(tier, gm_tier_device(tier), spec->dtype, spec->ndim, spec->shape, out);
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
    if (spec.dtype != GM_U8 || value == 0) st = fill_state(o, it, master, spec.dtype == GM_U8 ? 0 : value, *out);
    else {
        GM_TRY_OR(gm_states_wide(it->parameter, gm_item_like(it), (*out)->storage->device, &wide), st, done);
        GM_TRY_OR(fill_state(o, it, false, value, wide), st, done);
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

/* ---- steps ---- */

/* Every group that is due, those of the device first: they are queued, and then the host waits for nothing of them. */
static gm_status step_all(gm_optimizer *o, bool measure, gm_tensor *control)
{
    bool go = true;
    for (int i = 0; i < o->n && !measure; i++)
        if (!o->items[i].done && gm_item_is_sparse(&o->items[i])) GM_TRY(gm_touched_step(o, i, control));
    for (int i = 0; i < o->n; i++)
        if (!(measure ? o->items[i].measured : o->items[i].done) && !gm_item_on_host(o, &o->items[i]))
            GM_TRY(gm_units_step(o, i, measure, control));
    if (!o->host) return GM_OK;
    GM_TRY(gm_on_host_decided(o->host, control, &go));
    for (int i = 0; i < o->n && go; i++)
        if (!(measure ? o->items[i].measured : o->items[i].done)) GM_TRY(gm_units_step(o, i, measure, control));
    return GM_OK;
}

static gm_status new_trust(gm_optimizer *o)
{
    if (o->trust) return GM_OK;
    GM_TRY(gm_optimizer_outside_graph(o->rank));
    gm_rank_place(o->rank, "optimizer state");
    if (o->host) GM_TRY(gm_tensor_new(o->host->device, GM_F64, 2, (int64_t[]){o->n, 2}, &o->host->trust));
    return gm_tensor_new(o->rank->device, GM_F64, 2, (int64_t[]){o->n, 2}, &o->trust);
}

/* The squares of all parameters with a gradient and a trust ratio, each global tensor's. */
static gm_status measure_all(gm_optimizer *o, gm_tensor *control)
{
    gm_attrs zero = gm_attrs_default();
    uint32_t axes = gm_trust_axes(o);
    GM_TRY(new_trust(o));
    GM_TRY(gm_run_one(o->rank->device, GM_OP_fill, &zero, NULL, o->trust));
    if (o->host) GM_TRY(gm_run_one(o->host->device, GM_OP_fill, &zero, NULL, o->host->trust));
    for (int i = 0; i < o->n; i++) {
        item *it = &o->items[i];
        it->measured = it->done || gm_item_is_sparse(it) || !it->set.trust || !gm_trust_counts(o, i, axes);
    }
    GM_TRY(step_all(o, true, control));
    if (o->host) GM_TRY(gm_on_host_add(o->host, o->host->trust, o->trust));
    GM_TRY(gm_trust_sum(o->rank, axes, o->trust));
    return o->host ? gm_on_host_read(o->host, o->trust, o->host->trust) : GM_OK;
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
        if (gm_item_is_used(o, &o->items[i]))
            GM_TRY(make_states(o, &o->items[i])); /* without memory nothing has changed */
    }
    for (int k = 0; k < o->n_attrs; k++) moments_there |= moments_of(o->op, &o->attrs[k]);
    GM_TRY(gm_optimizer_miss(o, control, moments_there != 0)); /* else step numbers have no use */
    if (o->attrs[0].trust) GM_TRY(measure_all(o, control));
    GM_TRY(step_all(o, false, control));
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
        for (int k = 0; k < MAX_STATES; k++) {
            const gm_tensor *t = o->items[i].state[k];
            if (t && !gm_tier_holds(t->storage) && t->storage->device == o->rank->device) bytes += t->storage->bytes;
        }
    return bytes;
}
