/* optimizer.c - see optimizer.h. */
#include "optimizer.h"

#include <stdlib.h>
#include <string.h>
#include "../../kernels/philox.h"
#include "../../kernels/step_control.h"
#include "../autograd/padding.h"
#include "../gradients/parts.h"

#define MAX_STATES 3 /* moments, and the master */

typedef struct item {
    gm_value         *parameter;
    gm_tensor        *state[MAX_STATES]; /* as the outputs of the op after p; the master is the last of them */
    gm_tensor        *missed;            /* updates made without it, see below; NULL: 0 */
    gm_optimizer_item set;
    bool              done; /* in the current step */
} item;

struct gm_optimizer {
    gm_rank    *rank;
    gm_op       op;
    gm_attrs    attrs;
    int64_t     steps, skipped; /* steps: with those that the control tensor left out */
    bool        has_momentum;   /* set_momentum has been called, with this momentum: */
    double      momentum;
    int         n;
    gm_tensor **in, **out; /* argument lists, room for all */
    int         n_views;   /* of parts, for the call that is prepared */
    gm_tensor **view;
    gm_offload *offload; /* where states rest; NULL: all are in memory */
    item        items[];
};

static const char *const moments[GM_OP_COUNT][MAX_STATES] = {
#define GM_OPTIMIZER(name, moments, momentum, attributes, flops, ...) [GM_OP_##name] = {__VA_ARGS__},
#include "../../kernels/optimizers.def"
#undef GM_OPTIMIZER
};

/* Tensors of a parameter in a call: p, moments, master; NULL where there is none. */
static int width_of(const gm_optimizer *o) { return gm_op_gives(o->op)->n; }
static int master_of(const gm_optimizer *o) { return width_of(o) - 2; } /* its place among the states */

/* Some moments are there with momentum only: those of SGD. */
static bool needs_momentum(const gm_optimizer *o) { return master_of(o) && gm_op_gives(o->op)->slot[1].optional; }
static bool has_moments(const gm_optimizer *o)
{
    return master_of(o) && (!needs_momentum(o) || o->attrs.momentum != 0);
}

static bool has_state(const gm_optimizer *o, const item *it, int k)
{
    if (k == master_of(o)) return gm_dtype_is_narrow(it->parameter->local->dtype) && !o->attrs.stochastic;
    return k < master_of(o) && has_moments(o);
}

gm_status gm_optimizer_new(gm_rank *r, gm_op op, int n, gm_value *const *parameters, const gm_attrs *attrs,
                           const gm_optimizer_item *items, gm_optimizer **out)
{
    for (int i = 0; i < n; i++)
        if (parameters[i]->node || !parameters[i]->requires_grad)
            return GM_FAIL(GM_EINVAL, "optimizer: tensor %d is not a parameter (a leaf that requires a gradient)",
                           i + 1);
    gm_optimizer *o = calloc(1, sizeof *o + (size_t)n * sizeof *o->items);
    if (!o) return GM_FAIL(GM_ENOMEM, "no memory for an optimizer of %d parameters", n);
    o->in = calloc((size_t)n + 3, sizeof *o->in);
    o->out = calloc((MAX_STATES + 1) * (size_t)n + 1, sizeof *o->out);
    o->view = calloc((MAX_STATES + 2) * (size_t)n + 1, sizeof *o->view);
    if (!o->in || !o->out || !o->view) {
        gm_optimizer_free(o);
        return GM_FAIL(GM_ENOMEM, "no memory for an optimizer of %d parameters", n);
    }
    o->rank = r;
    o->op = op;
    o->attrs = *attrs;
    o->attrs.stream.key = gm_stream_key(r->seed, GM_PURPOSE_NOISE, gm_hash_text(GM_HASH_START, "optimizer"));
    o->n = n;
    for (int i = 0; i < n; i++) {
        o->items[i].set = items ? items[i] : (gm_optimizer_item){1, attrs->weight_decay};
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
    gm_offload_free(o->offload);
    free(o->in);
    free(o->out);
    free(o->view);
    free(o);
}

static gm_status outside_graph(const gm_rank *r)
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

static bool is_shared_out(const item *it)
{
    const gm_parameter *p = it->parameter->param;
    return p && (p->own || p->stored);
}

/* What of t is updated: t is the parameter's block or a gradient of all of it, or laid out as the states. *out is a
 * reference. */
static gm_status part_of(const item *it, gm_tensor *t, gm_tensor **out)
{
    bool whole = t == it->parameter->local || t == it->parameter->param->grad;
    if (is_shared_out(it)) {
        const gm_value *v = it->parameter;
        gm_owned_rows   rows = gm_owned_rows_of(v, &v->param->owned, v->rank->rank);
        return gm_tensor_narrow(t, rows.dim, whole ? rows.start : 0, rows.length, out);
    }
    *out = t;
    gm_tensor_retain(t);
    return GM_OK;
}

/* The same as an argument of the call that is prepared; NULL stays NULL. */
static gm_status add_part(gm_optimizer *o, const item *it, gm_tensor *t, gm_tensor **argument)
{
    *argument = NULL;
    if (!t) return GM_OK;
    GM_TRY(part_of(it, t, argument));
    o->view[o->n_views++] = *argument;
    return GM_OK;
}

static void drop_parts(gm_optimizer *o)
{
    while (o->n_views) gm_tensor_release(o->view[--o->n_views]);
}

/* A moment, which is zeros, or the master, which is the parameter. */
static gm_status fill_state(const item *it, bool master, gm_tensor *state)
{
    gm_attrs   a = gm_attrs_default();
    gm_layout  layout;
    gm_tensor *p = NULL, *part = NULL, *resting;
    gm_device *dev = it->parameter->rank->device;
    gm_status  st = GM_OK;
    if (!master || is_shared_out(it)) st = gm_run_one(dev, GM_OP_fill, &a, NULL, state);
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

static const gm_tensor *like_of(const item *it)
{
    const gm_parameter *p = it->parameter->param;
    return !is_shared_out(it) ? it->parameter->local : p->stored ? p->stored : p->own;
}

static gm_status new_state(gm_rank *r, const item *it, bool master, gm_tensor **out)
{
    const gm_tensor *like = like_of(it);
    GM_TRY(outside_graph(r));
    gm_rank_place(r, "optimizer state");
    GM_TRY(gm_tensor_new(r->device, gm_dtype_wide(like->dtype), like->ndim, like->shape, out));
    gm_status st = fill_state(it, master, *out);
    if (st != GM_OK) {
        gm_tensor_release(*out);
        *out = NULL;
    }
    return st;
}

static gm_status make_states(gm_optimizer *o, item *it)
{
    for (int k = 0; k < MAX_STATES; k++) {
        if (it->state[k] || !has_state(o, it, k)) continue;
        GM_TRY(new_state(o->rank, it, k == master_of(o), &it->state[k]));
        gm_status st = gm_offload_take(o->offload, (int)(it - o->items), it->state[k]);
        if (st == GM_OK) continue;
        gm_tensor_release(it->state[k]);
        it->state[k] = NULL;
        return st;
    }
    return GM_OK;
}

static gm_tensor *gradient_of(const item *it)
{
    gm_layout layout;
    return gm_value_final_grad(it->parameter, &layout);
}

/* Copies of a parameter would part if each were updated by its own rank's terms. */
static gm_status check_gradient(const gm_optimizer *o, int i)
{
    char            axes[128];
    gm_layout       layout;
    const gm_value *v = o->items[i].parameter;
    if (!gm_value_final_grad(v, &layout) || !layout.partial) return GM_OK;
    return GM_FAIL(GM_EINVAL,
                   "optimizer: the gradient of parameter %d is still to be summed over %s; reduce gradients before "
                   "the step (the engine does, unless gradient_handler says which handlers shall)",
                   i + 1, gm_mesh_describe(&o->rank->mesh, layout.partial, axes, sizeof axes));
}

/* ---- updates that were made without a parameter ----
 *
 * The step number of a parameter (Adam's t) counts the updates that were made with a gradient of it. Nearly always
 * these are all updates, so what is kept is how many were missed: an f64 (1) on the device, because the device alone
 * knows at once whether there is an update. Parameters that have missed the same updates share one, so that they stay
 * in one call of the kernel, and one small op a step counts for all of them. */

/* missed += the update that is decided on (control NULL: it is made) */
static gm_status count_missed(gm_device *dev, gm_tensor *control, gm_tensor *missed)
{
    gm_attrs   a = gm_attrs_default();
    gm_tensor *go = NULL;
    gm_status  st = control ? gm_tensor_narrow(control, 0, GM_CONTROL_GO, 1, &go)
                            : gm_tensor_new(dev, GM_F64, 1, (int64_t[]){1}, &go);
    a.value = 1;
    if (st == GM_OK && !control) st = gm_run_one(dev, GM_OP_fill, &a, NULL, go);
    if (st == GM_OK) st = gm_run_one(dev, GM_OP_axpy, NULL, go, missed);
    gm_tensor_release(go);
    return st;
}

/* A count of its own, as `from` (NULL: 0). */
static gm_status new_missed(gm_rank *r, gm_tensor *from, double value, gm_tensor **out)
{
    gm_attrs a = gm_attrs_default();
    a.value = value;
    GM_TRY(outside_graph(r));
    gm_rank_place(r, "optimizer state");
    GM_TRY(gm_tensor_new(r->device, GM_F64, 1, (int64_t[]){1}, out));
    gm_status st = gm_run_one(r->device, from ? GM_OP_copy : GM_OP_fill, &a, from, *out);
    if (st != GM_OK) gm_tensor_release(*out);
    return st;
}

static void share_missed(item *it, gm_tensor *missed)
{
    if (missed) gm_tensor_retain(missed);
    gm_tensor_release(it->missed);
    it->missed = missed;
}

/* Parameters without a gradient that have missed what item `first` has; they part from those that have one. */
static gm_status miss_group(gm_optimizer *o, int first, gm_tensor *control)
{
    gm_tensor *old = o->items[first].missed, *missed = old;
    bool       all = old != NULL;
    for (int i = 0; i < o->n; i++)
        if (o->items[i].missed == old && gradient_of(&o->items[i])) all = false;
    if (all) gm_tensor_retain(missed);
    else GM_TRY(new_missed(o->rank, old, 0, &missed));
    gm_status st = count_missed(o->rank->device, control, missed);
    for (int i = first; i < o->n && st == GM_OK; i++) {
        item *it = &o->items[i];
        if (it->missed != old || gradient_of(it) || it->done) continue;
        it->done = true;
        share_missed(it, missed);
    }
    gm_tensor_release(missed);
    return st;
}

/* Parameters without a gradient are done with. What has no moments has no use for numbers of steps. */
static gm_status miss_update(gm_optimizer *o, gm_tensor *control)
{
    bool counts = has_moments(o);
    for (int i = 0; i < o->n; i++) {
        item *it = &o->items[i];
        if (it->done || gradient_of(it)) continue;
        if (counts) GM_TRY(miss_group(o, i, control));
        it->done = true;
    }
    return GM_OK;
}

gm_status gm_optimizer_missed(gm_optimizer *o, int i, double *out)
{
    *out = 0;
    if (!o->items[i].missed || !o->rank->device->backend->has_data) return GM_OK;
    return gm_host_load(o->items[i].missed, 0, out);
}

gm_status gm_optimizer_set_missed(gm_optimizer *o, const double *missed)
{
    for (int i = 0; i < o->n; i++) {
        gm_tensor *t = NULL;
        int        like = 0;
        while (like < i && missed[like] != missed[i]) like++;
        if (like < i) {
            share_missed(&o->items[i], o->items[like].missed);
            continue;
        }
        if (missed[i] != 0) GM_TRY(new_missed(o->rank, NULL, missed[i], &t));
        share_missed(&o->items[i], t);
        gm_tensor_release(t);
    }
    return GM_OK;
}

/* ---- states that rest elsewhere ---- */

gm_status gm_optimizer_offload(gm_optimizer *o, const gm_offload_settings *settings)
{
    uint64_t *room = calloc((size_t)o->n + 1, sizeof *room);
    gm_status st = room ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for the offload of %d parameters", o->n);
    if (o->offload) st = GM_FAIL(GM_EINVAL, "optimizer: its states are offloaded already");
    for (int i = 0; i < o->n && st == GM_OK; i++) {
        const item      *it = &o->items[i];
        const gm_tensor *like = like_of(it);
        uint64_t         bytes = (uint64_t)gm_tensor_numel(like) * gm_dtype_size(gm_dtype_wide(like->dtype));
        for (int k = 0; k < MAX_STATES; k++) {
            if (it->state[k]) st = GM_FAIL(GM_EINVAL, "optimizer: states are offloaded before the first step");
            if (has_state(o, it, k)) room[i] += gm_tier_room(settings->tier.kind, bytes);
        }
    }
    if (st == GM_OK) st = gm_offload_new(o->rank->device, settings, o->n, room, &o->offload);
    free(room);
    return st;
}

bool gm_optimizer_offloaded(const gm_optimizer *o, gm_tier_stats *out)
{
    return o->offload && (*out = gm_offload_stats(o->offload), true);
}

/* ---- steps ---- */

/* The arguments of one parameter. */
static gm_status add_item(gm_optimizer *o, int i, int *n_in, int *n_out)
{
    item      *it = &o->items[i];
    gm_layout  layout;
    gm_tensor *p;
    GM_TRY(check_gradient(o, i));
    GM_TRY(gm_value_resting(it->parameter, &layout, &p));
    if (p == it->parameter->local) GM_TRY(gm_padding_renew(it->parameter));
    GM_TRY(add_part(o, it, gradient_of(it), &o->in[(*n_in)++]));
    GM_TRY(add_part(o, it, p, &o->out[(*n_out)++]));
    for (int k = 0; k < width_of(o) - 1; k++) GM_TRY(add_part(o, it, it->state[k], &o->out[(*n_out)++]));
    return gm_value_resting_changes(it->parameter);
}

/* Has it to be updated still, with the same settings, missed updates and dtype as f? */
static bool goes_with(const item *it, const item *f)
{
    return !it->done && !memcmp(&it->set, &f->set, sizeof it->set) && it->missed == f->missed &&
           it->parameter->local->dtype == f->parameter->local->dtype;
}

/* Where the unit ends that begins at item i: parameters of one kernel call. Without offload it is the whole group. */
static int end_of_unit(const gm_optimizer *o, int i, const item *f)
{
    int      n = 0;
    uint64_t bytes = 0;
    while (i < o->n && (!goes_with(&o->items[i], f) || gm_offload_fits(o->offload, i, &n, &bytes))) i++;
    return i;
}

/* The states of the unit that begins at item i begin to come, while another one is updated. */
static gm_status fetch_ahead(gm_optimizer *o, int i, const item *f)
{
    for (int end = o->offload ? end_of_unit(o, i, f) : i; i < end; i++)
        for (int k = 0; goes_with(&o->items[i], f) && k < MAX_STATES; k++)
            if (o->items[i].state[k]) GM_TRY(gm_offload_begin(o->offload, o->items[i].state[k]));
    return GM_OK;
}

static gm_status step_unit(gm_optimizer *o, int begin, int end, const item *f, gm_tensor *control, const gm_attrs *a)
{
    int       n_in = 0, n_out = 0;
    gm_status st;
    GM_TRY(fetch_ahead(o, begin, f)); /* of the first unit nothing is under way yet */
    o->in[n_in++] = control;
    o->in[n_in++] = f->missed;
    for (int i = begin; i < end; i++) {
        if (!goes_with(&o->items[i], f)) continue;
        o->items[i].done = true;
        GM_TRY_OR(add_item(o, i, &n_in, &n_out), st, done);
    }
    gm_call c = {.op = o->op, .n_in = n_in, .n_out = n_out, .in = o->in, .out = o->out, .attrs = a};
    GM_TRY_OR(fetch_ahead(o, end, f), st, done);
    st = gm_run(o->rank->device, &c);
done:
    drop_parts(o);
    return st;
}

/* Every parameter that shares item `first`'s settings, missed updates and dtype. */
static gm_status step_group(gm_optimizer *o, int first, gm_tensor *control)
{
    item     f = o->items[first];
    gm_attrs a = o->attrs;
    a.weight_decay = f.set.weight_decay;
    a.lr_scale = f.set.lr_scale;
    a.stochastic = o->attrs.stochastic && gm_dtype_is_narrow(f.parameter->local->dtype);
    for (int begin = first, end; begin < o->n; begin = end) {
        end = end_of_unit(o, begin, &f);
        GM_TRY(step_unit(o, begin, end, &f, control, &a));
    }
    return GM_OK;
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
    gm_optimizer_prepare(o, lr);
    o->rank->device->step.clip = clip;
    o->rank->device->step.loss_scale = loss_scale;
    for (int i = 0; i < o->n; i++) {
        o->items[i].done = false;
        if (gradient_of(&o->items[i])) GM_TRY(make_states(o, &o->items[i])); /* without memory nothing has changed */
    }
    GM_TRY(miss_update(o, control));
    for (int i = 0; i < o->n; i++)
        if (!o->items[i].done) GM_TRY(step_group(o, i, control));
    o->steps++;
    return GM_OK;
}

int64_t gm_optimizer_steps(const gm_optimizer *o) { return o->steps - o->skipped; }
void    gm_optimizer_set_steps(gm_optimizer *o, int64_t steps) { o->steps = steps + o->skipped; }
void    gm_optimizer_set_skipped(gm_optimizer *o, int64_t skipped) { o->skipped = skipped; }
int     gm_optimizer_parameters(const gm_optimizer *o) { return o->n; }

const gm_value *gm_optimizer_parameter(const gm_optimizer *o, int i) { return o->items[i].parameter; }

const gm_layout *gm_optimizer_layout(const gm_optimizer *o, int i)
{
    const gm_value *v = o->items[i].parameter;
    return is_shared_out(&o->items[i]) ? &v->param->owned : &v->layout;
}

gm_status gm_optimizer_set_momentum(gm_optimizer *o, double momentum)
{
    if (!(momentum >= 0 && momentum < 1))
        return GM_FAIL(GM_EINVAL, "optimizer: momentum %g is not in [0, 1)", momentum);
    if (needs_momentum(o) && (o->attrs.momentum == 0) != (momentum == 0))
        return GM_FAIL(GM_EINVAL, "optimizer: %s cannot gain or lose its momentum on the way", gm_op_name(o->op));
    o->momentum = momentum;
    o->has_momentum = true;
    return GM_OK;
}

gm_status gm_optimizer_state(gm_optimizer *o, int i, int k, const char **name, gm_tensor **out)
{
    *out = NULL;
    GM_TRY(make_states(o, &o->items[i]));
    for (int s = 0; s < MAX_STATES; s++) {
        if (!o->items[i].state[s] || k-- > 0) continue;
        *name = s == master_of(o) ? "master" : moments[o->op][s];
        *out = o->items[i].state[s];
        break;
    }
    return GM_OK;
}

size_t gm_optimizer_bytes(const gm_optimizer *o)
{
    size_t bytes = 0;
    for (int i = 0; i < o->n; i++)
        for (int k = 0; k < MAX_STATES; k++)
            if (o->items[i].state[k]) bytes += gm_offload_held(o->offload, i, o->items[i].state[k]);
    return o->offload ? bytes + (size_t)gm_offload_stats(o->offload).ring : bytes;
}
