/* average.c - see average.h. */
#include "average.h"

#include <stdlib.h>
#include "../comm/comm.h"
#include "../gradients/parts.h"
#include "../parallel/redistribute.h"
#include "../tier/tier.h"

#define PLACE "averaged weights"

typedef struct item {
    gm_value  *parameter;
    gm_tensor *average;
    gm_tensor *own; /* while swapped: the parameter's own numbers, of the part that this rank holds */
} item;

struct gm_average {
    gm_rank    *rank;
    bool        swapped;
    int         n;
    gm_tensor **in, **out; /* argument lists of a call, room for all; in: owned */
    item        items[];
};

static gm_status copy(gm_device *dev, gm_tensor *from, gm_tensor *to)
{
    gm_attrs a = gm_attrs_default();
    a.dtype = to->dtype;
    return gm_run_one(dev, GM_OP_copy, &a, from, to);
}

/* The numbers of a parameter that this rank holds an average of, as a tensor of that layout's blocks. */
static gm_status new_part(const item *it, gm_dtype dtype, gm_tensor **out)
{
    gm_value  *v = it->parameter;
    gm_device *dev = v->rank->device;
    gm_attrs   zero = gm_attrs_default();
    gm_tensor *from = NULL, *to = NULL, *resting;
    gm_layout  layout;
    int64_t    shape[GM_MAX_DIMS];
    gm_status  st;
    GM_TRY(gm_value_resting(v, &layout, &resting));
    gm_layout_local(&v->rank->mesh, gm_owned_layout(v), v->ndim, v->shape, shape);
    gm_rank_place(v->rank, PLACE);
    GM_TRY(gm_tensor_new(dev, dtype, v->ndim, shape, out));
    GM_TRY_OR(gm_run_one(dev, GM_OP_fill, &zero, NULL, *out), st, done);
    GM_TRY_OR(gm_owned_part(v, resting, &from), st, done);
    GM_TRY_OR(gm_owned_part(v, *out, &to), st, done);
    st = copy(dev, from, to);
done:
    gm_tensor_release(from);
    gm_tensor_release(to);
    if (st != GM_OK) {
        gm_tensor_release(*out);
        *out = NULL;
    }
    return st;
}

/* Outputs of a call for each parameter, of which the first alone is given. */
static int width_of_call(void) { return gm_op_gives(GM_OP_sgd)->n; }

gm_status gm_average_new(gm_rank *r, int n, gm_value *const *parameters, gm_average **out)
{
    gm_status   st = GM_OK;
    gm_average *a = calloc(1, sizeof *a + (size_t)n * sizeof *a->items);
    if (!a) return GM_FAIL(GM_ENOMEM, "no memory for averages of %d parameters", n);
    a->rank = r;
    a->n = n;
    a->in = calloc((size_t)n + 2, sizeof *a->in);
    a->out = calloc((size_t)width_of_call() * (size_t)n + 1, sizeof *a->out);
    if (!a->in || !a->out) st = GM_FAIL(GM_ENOMEM, "no memory for averages of %d parameters", n);
    for (int i = 0; i < n; i++) {
        a->items[i].parameter = parameters[i];
        gm_value_retain(parameters[i]);
    }
    for (int i = 0; i < n && st == GM_OK; i++)
        st = new_part(&a->items[i], gm_dtype_wide(parameters[i]->local->dtype), &a->items[i].average);
    if (st != GM_OK) gm_average_free(a);
    else *out = a;
    return st;
}

void gm_average_free(gm_average *a)
{
    if (!a) return;
    for (int i = 0; i < a->n; i++) {
        gm_value_release(a->items[i].parameter);
        gm_tensor_release(a->items[i].average);
        gm_tensor_release(a->items[i].own);
    }
    free(a->in);
    free(a->out);
    free(a);
}

/* ---- updates ---- */

#define CASTS (INT64_C(64) << 20) /* bytes of parameters of 16 bits that are held in f32 at once */

/* The calls of an update: n parameters wait for the next one. */
typedef struct update {
    gm_average *a;
    double      weight;
    int         n;
    int64_t     bytes; /* of what was cast for it */
    uint64_t    ring;  /* what the tier's ring needs for it */
    bool        made;  /* there has been a call: nothing may begin anew */
} update;

static void drop(update *u)
{
    for (int i = 0; i < u->n; i++) {
        gm_tensor_release(u->a->in[2 + i]);
        gm_tensor_release(u->a->out[width_of_call() * i]);
        u->a->in[2 + i] = u->a->out[width_of_call() * i] = NULL;
    }
    u->n = 0;
    u->bytes = 0;
    u->ring = 0;
}

/* average -= weight (average - parameter) is what SGD does with the gradient -parameter and a weight decay of 1. The
 * step block is as it was afterwards. */
static gm_status run_call(update *u)
{
    gm_device          *dev = u->a->rank->device;
    const gm_step_block before = dev->step;
    gm_attrs            at = gm_attrs_default();
    gm_call             c = {GM_OP_sgd, 2 + u->n, width_of_call() * u->n, u->a->in, u->a->out, &at};
    gm_status           st = GM_OK;
    at.weight_decay = 1;
    dev->step = (gm_step_block){.step = 1, .rng_step = before.rng_step, .lr = u->weight, .clip = -1, .loss_scale = 1};
    if (u->n) st = gm_run(dev, &c);
    dev->step = before;
    u->made |= u->n > 0;
    drop(u);
    return st;
}

/* The parameter's part, in f32 if it has 16 bits. */
static gm_status add_parameter(update *u, const item *it, gm_tensor **out)
{
    gm_device *dev = u->a->rank->device;
    gm_tensor *part, *resting;
    gm_layout  layout;
    GM_TRY(gm_value_resting(it->parameter, &layout, &resting));
    GM_TRY(gm_owned_part(it->parameter, resting, &part));
    if (part->dtype == it->average->dtype) {
        u->ring += gm_tier_needs(part->storage);
        *out = part;
        return GM_OK;
    }
    gm_rank_place(u->a->rank, PLACE);
    gm_status st = gm_tensor_new(dev, it->average->dtype, part->ndim, part->shape, out);
    if (st == GM_OK) st = copy(dev, part, *out);
    if (st == GM_OK) u->bytes += (int64_t)(*out)->storage->bytes;
    gm_tensor_release(part);
    return st;
}

static gm_status add_item(update *u, const item *it)
{
    int i = u->n++;
    GM_TRY(add_parameter(u, it, &u->a->in[2 + i]));
    GM_TRY(gm_owned_part(it->parameter, it->average, &u->a->out[width_of_call() * i]));
    if (u->weight == 1) { /* the same bits */
        u->made = true;
        return copy(u->a->rank->device, u->a->in[2 + i], u->a->out[width_of_call() * i]);
    }
    return GM_OK;
}

/* All parameters whose averages have one dtype. */
static gm_status update_dtype(update *u, gm_dtype dtype)
{
    for (int i = 0; i < u->a->n; i++) {
        if (u->a->items[i].average->dtype != dtype) continue;
        GM_TRY(add_item(u, &u->a->items[i]));
        if (u->weight == 1) drop(u);
        else if (u->bytes >= CASTS || u->ring > gm_tier_unit(u->a->rank->rests.tier) / 2) GM_TRY(run_call(u));
    }
    return run_call(u);
}

gm_status gm_average_update(gm_average *a, double weight)
{
    update u = {.a = a, .weight = weight};
    if (a->swapped)
        return GM_FAIL(GM_EINVAL, "the parameters hold their averages; swap once more before these are updated");
    gm_status st = update_dtype(&u, GM_F32);
    if (st == GM_OK) st = update_dtype(&u, GM_F64);
    drop(&u);
    return u.made ? gm_comm_once(st) : st;
}

/* ---- swaps ---- */

/* The parameter becomes what the parts say, which lie as its average does. */
static gm_status set_parts(const item *it, gm_tensor *part)
{
    gm_value  *v = it->parameter;
    gm_tensor *whole = NULL;
    if (v->param->stored) {
        GM_TRY(gm_value_resting_changes(v));
        return copy(v->rank->device, part, v->param->stored);
    }
    GM_TRY(gm_redistribute_block(v->rank, part, gm_owned_layout(v), &v->layout, v->ndim, v->shape, &whole));
    gm_status st = copy(v->rank->device, whole, v->local);
    gm_tensor_release(whole);
    gm_value_touched(v);
    return st;
}

static gm_status take_average(item *it)
{
    gm_dtype   dtype = it->parameter->local->dtype;
    gm_tensor *rounded;
    GM_TRY(new_part(it, dtype, &it->own));
    gm_rank_place(it->parameter->rank, PLACE);
    GM_TRY(gm_tensor_new(it->parameter->rank->device, dtype, it->average->ndim, it->average->shape, &rounded));
    gm_status st = copy(it->parameter->rank->device, it->average, rounded);
    if (st == GM_OK) st = set_parts(it, rounded);
    gm_tensor_release(rounded);
    return st;
}

static gm_status take_own(item *it)
{
    GM_TRY(set_parts(it, it->own));
    gm_tensor_release(it->own);
    it->own = NULL;
    return GM_OK;
}

gm_status gm_average_swap(gm_average *a)
{
    gm_status st = GM_OK;
    for (int i = 0; i < a->n && st == GM_OK; i++) st = a->swapped ? take_own(&a->items[i]) : take_average(&a->items[i]);
    if (st == GM_OK) a->swapped = !a->swapped;
    for (int i = 0; i < a->n && st != GM_OK && !a->swapped; i++) /* as before, as far as that still works */
        if (a->items[i].own) (void)take_own(&a->items[i]);
    return gm_comm_once(st);
}

bool gm_average_is_swapped(const gm_average *a) { return a->swapped; }

int              gm_average_parameters(const gm_average *a) { return a->n; }
const gm_value  *gm_average_parameter(const gm_average *a, int i) { return a->items[i].parameter; }
gm_tensor       *gm_average_tensor(const gm_average *a, int i) { return a->items[i].average; }
const gm_layout *gm_average_layout(const gm_average *a, int i) { return gm_owned_layout(a->items[i].parameter); }

size_t gm_average_bytes(const gm_average *a)
{
    size_t bytes = 0;
    for (int i = 0; i < a->n; i++) {
        bytes += a->items[i].average->storage->bytes;
        if (a->items[i].own) bytes += a->items[i].own->storage->bytes;
    }
    return bytes;
}
