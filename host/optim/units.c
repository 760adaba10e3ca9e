/* units.c - the calls of the optimizer's kernel: which parameters share one, and what it takes (items.h).
 *
 * On the device a group of parameters is one call. What streams through a tier goes in units, and so does what the host
 * updates (on_host.h): there the arguments are twins on the host of the device's tensors, and the next unit is on its
 * way while one is updated. */
#include <stdlib.h>
#include "../../kernels/trust.h"
#include "../autograd/padding.h"
#include "../gradients/parts.h"
#include "items.h"

gm_status gm_units_new(gm_optimizer *o)
{
    size_t n = (size_t)o->n;
    for (int k = 0; k < (o->host ? GM_UNITS : 1); k++) {
        gm_unit *u = &o->units[k];
        if (!u->in) u->in = calloc(n + 3, sizeof *u->in);
        if (!u->out) u->out = calloc((MAX_STATES + 2) * n + 1, sizeof *u->out);
        if (!u->view) u->view = calloc((MAX_STATES + 3) * n + 1, sizeof *u->view);
        if (!u->in || !u->out || !u->view)
            return GM_FAIL(GM_ENOMEM, "no memory for an optimizer of %d parameters", o->n);
    }
    return GM_OK;
}

static void drop_parts(gm_unit *u)
{
    while (u->n_views) gm_tensor_release(u->view[--u->n_views]);
}

void gm_units_free(gm_optimizer *o)
{
    for (int k = 0; k < GM_UNITS; k++) {
        gm_unit *u = &o->units[k];
        if (o->host) (void)gm_trip_end(o->host, &u->trip); /* without: memory that a copy may still use stays taken */
        drop_parts(u);
        free(u->in);
        free(u->out);
        free(u->view);
    }
}

bool gm_item_on_host(const gm_optimizer *o, const item *it)
{
    return o->host && gm_offload_takes(o->offload, (int)(it - o->items));
}

/* ---- the arguments of one parameter ---- */

/* The part of t as an argument of the call; NULL stays NULL. A moment in blocks has no other elements. */
static gm_status add_part(gm_unit *u, const item *it, gm_tensor *t, gm_tensor **argument)
{
    *argument = NULL;
    if (!t) return GM_OK;
    if (t->dtype == GM_U8) gm_tensor_retain(*argument = t);
    else GM_TRY(gm_owned_part(it->parameter, t, argument));
    u->view[u->n_views++] = *argument;
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

/* A parameter of 16 bits can have a gradient of f32. Then the kernel updates the master as a parameter of f32 without a
 * master, and the parameter is rounded from it. */
static bool has_wide_gradient(const gm_optimizer *o, const item *it)
{
    const gm_tensor *g = gm_item_gradient(o, it);
    return g && g->dtype != it->parameter->local->dtype;
}

static gm_tensor *master_of(const gm_optimizer *o, const item *it) { return it->state[gm_optimizer_master(o)]; }

/* A gradient of f32 as one of 16 bits, for a parameter that has no master. */
static gm_status add_rounded(gm_optimizer *o, gm_unit *u, const item *it, gm_tensor **argument)
{
    gm_attrs   a = gm_attrs_default();
    gm_tensor *g, *narrow = NULL;
    a.dtype = it->parameter->local->dtype;
    GM_TRY(gm_owned_part(it->parameter, gm_item_gradient(o, it), &g));
    gm_rank_place(o->rank, "gradient");
    gm_status st = gm_tensor_new(o->rank->device, a.dtype, g->ndim, g->shape, &narrow);
    if (st == GM_OK) st = gm_run_one(o->rank->device, GM_OP_copy, &a, g, narrow);
    if (st == GM_OK) u->view[u->n_views++] = *argument = narrow;
    else gm_tensor_release(narrow);
    gm_tensor_release(g);
    return st;
}

/* The squares of a parameter, NULL where it has no trust ratio. */
static gm_status add_trust(gm_optimizer *o, gm_unit *u, int i, gm_tensor **argument)
{
    int64_t    n = 2, stride = 1;
    gm_tensor *all = gm_item_on_host(o, &o->items[i]) ? o->host->trust : o->trust;
    *argument = NULL;
    if (!o->attrs[0].trust || !o->items[i].set.trust) return GM_OK;
    GM_TRY(gm_tensor_view(all, 1, &n, &stride, 2 * (int64_t)i, argument));
    u->view[u->n_views++] = *argument;
    return GM_OK;
}

/* On the host the gradient and the parameter are twins. p: of the device; by_master: the call updates the master alone,
 * and the parameter becomes that, rounded. A parameter that is its master, rounded, is not read by an update. */
static gm_status take_along(gm_optimizer *o, gm_unit *u, const item *it, gm_tensor *p, bool by_master, gm_tensor **in,
                            gm_tensor **out)
{
    bool       measure = u->attrs.measure, read = measure || !master_of(o, it);
    gm_tensor *part, *twin, *master;
    GM_TRY(gm_trip_add(o->host, &u->trip, *in, GM_TRIP_DOWN, in));
    if (by_master && measure) return GM_OK;
    GM_TRY(add_part(u, it, p, &part));
    GM_TRY(gm_trip_add(o->host, &u->trip, part, (read ? GM_TRIP_DOWN : 0) | (measure ? 0 : GM_TRIP_UP), &twin));
    if (!by_master) *out = twin;
    if (!by_master) return GM_OK;
    GM_TRY(add_part(u, it, master_of(o, it), &master));
    u->trip.twins[u->trip.n - 1].from = master;
    return GM_OK;
}

static gm_status add_item(gm_optimizer *o, gm_unit *u, int i)
{
    item      *it = &o->items[i];
    bool       wide = has_wide_gradient(o, it), by_master = wide && gm_item_has_state(o, it, gm_optimizer_master(o));
    gm_layout  layout;
    gm_tensor *p;
    GM_TRY(check_gradient(o, i));
    GM_TRY(gm_value_resting(it->parameter, &layout, &p));
    if (p == it->parameter->local) GM_TRY(gm_padding_renew(it->parameter));
    gm_tensor **in = &u->in[u->n_in++], **out = u->out + u->n_out, *master = master_of(o, it);
    GM_TRY(wide && !by_master ? add_rounded(o, u, it, in) : add_part(u, it, gm_item_gradient(o, it), in));
    if (by_master || !gm_item_on_host(o, it)) GM_TRY(add_part(u, it, by_master ? master : p, out));
    if (gm_item_on_host(o, it)) GM_TRY(take_along(o, u, it, p, by_master, in, out));
    for (int k = 0; k < gm_optimizer_master(o); k++) GM_TRY(add_part(u, it, it->state[k], ++out));
    GM_TRY(add_part(u, it, by_master ? NULL : master, ++out));
    GM_TRY(add_trust(o, u, i, ++out));
    u->n_out += gm_optimizer_width(o);
    return GM_OK;
}

/* After an update with a gradient of f32: the parameter becomes its master, rounded. */
static gm_status round_item(gm_optimizer *o, const item *it)
{
    gm_attrs   a = gm_attrs_default();
    gm_layout  layout;
    gm_tensor *p = NULL, *master = NULL, *resting;
    gm_status  st;
    if (!has_wide_gradient(o, it) || !master_of(o, it)) return GM_OK;
    a.dtype = it->parameter->local->dtype;
    GM_TRY(gm_value_resting(it->parameter, &layout, &resting));
    GM_TRY_OR(gm_owned_part(it->parameter, resting, &p), st, done);
    GM_TRY_OR(gm_owned_part(it->parameter, master_of(o, it), &master), st, done);
    st = gm_run_one(o->rank->device, GM_OP_copy, &a, master, p);
done:
    gm_tensor_release(p);
    gm_tensor_release(master);
    return st;
}

/* ---- which parameters share a call ---- */

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
           has_wide_gradient(o, it) == has_wide_gradient(o, f) && gm_item_on_host(o, it) == gm_item_on_host(o, f);
}

/* The tier through which the units of f's group pass; NULL: none. */
static gm_tier *tier_of(const gm_optimizer *o, const item *f)
{
    return gm_item_on_host(o, f) ? gm_offload_tier(o->offload) : o->rank->rests.tier;
}

/* Bytes of a unit at most. */
static uint64_t most_of(const gm_optimizer *o, const item *f)
{
    uint64_t ring = gm_tier_unit(tier_of(o, f));
    if (gm_item_draws(o, f)) return 0; /* one parameter, because rounding by chance needs its place */
    if (!gm_item_on_host(o, f)) return ring;
    uint64_t above = gm_tier_unit(o->rank->rests.tier); /* through whose ring gradients and parameters come */
    if (above < ring) ring = above;
    return o->host->unit < ring ? o->host->unit : ring;
}

/* Where the unit ends that begins at item i: parameters of one kernel call. It is the whole group if all is in
 * memory and nothing is rounded by chance. */
static int end_of_unit(const gm_optimizer *o, int i, const item *f, bool measure)
{
    bool     one = gm_item_draws(o, f), all = !one && !tier_of(o, f) && !gm_item_on_host(o, f);
    uint64_t bytes = 0, most = most_of(o, f);
    for (int n = 0; i < o->n; i++) {
        if (all || !goes_with(o, &o->items[i], f, measure)) continue;
        bytes += gm_item_ring_needs(o, &o->items[i]);
        if (gm_item_on_host(o, f)) bytes += gm_item_trip_bytes(o, &o->items[i]);
        if (n++ && (one || bytes > most)) break;
    }
    return i;
}

/* What the unit that begins at item i needs begins to come, while another one is updated. */
static gm_status fetch_ahead(gm_optimizer *o, int i, const item *f, bool measure)
{
    for (int end = tier_of(o, f) ? end_of_unit(o, i, f, measure) : i; i < end; i++)
        if (goes_with(o, &o->items[i], f, measure)) GM_TRY(gm_item_begin(o, &o->items[i]));
    return GM_OK;
}

/* ---- calls ---- */

/* The arguments of a unit, from u->begin to u->end. */
static gm_status prepare(gm_optimizer *o, gm_unit *u, const item *f, gm_tensor *control, gm_tensor *missed)
{
    bool measure = u->attrs.measure;
    GM_TRY(fetch_ahead(o, u->begin, f, measure)); /* of the first unit nothing is under way yet */
    u->n_in = u->n_out = 0;
    u->in[u->n_in++] = control;
    u->in[u->n_in++] = missed;
    for (int i = u->begin; i < u->end; i++) {
        item *it = &o->items[i];
        if (!goes_with(o, it, f, measure)) continue;
        *(measure ? &it->measured : &it->done) = true;
        it->called = !measure;
        if (gm_item_draws(o, it)) gm_item_place_words(it, &u->attrs);
        GM_TRY(add_item(o, u, i));
        if (!measure) GM_TRY(gm_value_resting_changes(it->parameter));
    }
    return GM_OK;
}

static gm_call call_of(const gm_optimizer *o, const gm_unit *u)
{
    return (gm_call){.op = o->op, .n_in = u->n_in, .n_out = u->n_out, .in = u->in, .out = u->out, .attrs = &u->attrs};
}

static void forget(gm_optimizer *o, gm_unit *u)
{
    for (int i = u->begin; i < u->end; i++) o->items[i].called = false;
    u->begin = u->end;
    drop_parts(u);
}

/* A unit on the device. */
static gm_status step_unit(gm_optimizer *o, gm_unit *u, const item *f, gm_tensor *control)
{
    gm_status st = prepare(o, u, f, control, f->missed);
    if (st == GM_OK) st = fetch_ahead(o, u->end, f, u->attrs.measure);
    if (st == GM_OK) {
        gm_call c = call_of(o, u);
        st = gm_run(o->rank->device, &c);
    }
    for (int i = u->begin; i < u->end && st == GM_OK; i++)
        if (o->items[i].called) st = round_item(o, &o->items[i]);
    forget(o, u);
    return st;
}

/* The host's operations are the rank's. */
static void count_as_own(gm_device *host, gm_op op, gm_op_counter before, gm_device *dev)
{
    gm_op_counter *to = &dev->counters[op], now = host->counters[op];
    to->calls += now.calls - before.calls;
    to->flops += now.flops - before.flops;
    to->bytes += now.bytes - before.bytes;
    to->products += now.products - before.products;
}

/* Makes the call of a unit whose tensors have begun to come down. */
static gm_status run_on_host(gm_optimizer *o, gm_unit *u)
{
    gm_device    *host = o->host->device;
    gm_op_counter before = host->counters[o->op];
    gm_call       c = call_of(o, u);
    GM_TRY(gm_trip_arrive(o->host, &u->trip));
    GM_TRY(gm_run(host, &c));
    count_as_own(host, o->op, before, o->rank->device);
    return gm_trip_return(o->host, &u->trip);
}

/* The units of a group on the host: while one is updated, the next one comes, and the one before goes. */
static gm_status step_on_host(gm_optimizer *o, int first, const item *f, const gm_attrs *a, gm_tensor *control)
{
    gm_tensor *missed;
    gm_unit   *last = NULL;
    gm_status  st = GM_OK;
    GM_TRY(gm_on_host_missed(o->host, f->missed, &missed));
    for (int begin = first, k = 0; begin < o->n && st == GM_OK; k = (k + 1) % GM_UNITS) {
        gm_unit *u = &o->units[k];
        GM_TRY_OR(gm_trip_end(o->host, &u->trip), st, done); /* that has gone before */
        u->attrs = *a;
        u->begin = begin;
        u->end = begin = end_of_unit(o, begin, f, a->measure);
        GM_TRY_OR(prepare(o, u, f, control ? o->host->control : NULL, missed), st, done);
        GM_TRY_OR(gm_trip_fetch(o->host, &u->trip), st, done);
        if (last) GM_TRY_OR(run_on_host(o, last), st, done);
        if (last) forget(o, last);
        last = u;
    }
    if (last) st = run_on_host(o, last);
done:
    for (int k = 0; k < GM_UNITS; k++) {
        if (st != GM_OK && o->units[k].n_views) (void)gm_trip_end(o->host, &o->units[k].trip);
        forget(o, &o->units[k]);
    }
    return st;
}

gm_status gm_units_step(gm_optimizer *o, int first, bool measure, gm_tensor *control)
{
    const item *f = &o->items[first];
    gm_attrs    a = *gm_item_attrs(o, f);
    a.weight_decay = f->set.weight_decay;
    a.lr_scale = f->set.lr_scale;
    if (!f->set.trust) a.trust = GM_TRUST_NONE;
    a.measure = measure;
    a.states = f->set.states;
    a.stochastic = a.stochastic && gm_dtype_is_narrow(f->parameter->local->dtype);
    if (gm_item_on_host(o, f)) return step_on_host(o, first, f, &a, control);
    for (int begin = first; begin < o->n;) {
        gm_unit *u = &o->units[0];
        u->attrs = a;
        u->begin = begin;
        u->end = begin = end_of_unit(o, begin, f, measure);
        GM_TRY(step_unit(o, u, f, control));
    }
    return GM_OK;
}
