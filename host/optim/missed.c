/* missed.c - updates that were made without a parameter.
 *
 * The step number of a parameter (Adam's t) counts the updates that were made with a gradient of it. Nearly always
 * these are all updates, so what is kept is how many were missed: an f64 (1) on the device, because the device alone
 * knows at once whether there is an update. Parameters that have missed the same updates share one, so that they stay
 * in one call of the kernel, and one small op a step counts for all of them. The trap: a graph (kernels/graph.h) that
 * was recorded before a parameter got another count updates it with the old one; gm_optimizer_regrouped tells. */
#include "../../kernels/step_control.h"
#include "items.h"

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
    GM_TRY(gm_optimizer_outside_graph(r));
    gm_rank_place(r, "optimizer state");
    GM_TRY(gm_tensor_new(r->device, GM_F64, 1, (int64_t[]){1}, out));
    gm_status st = gm_run_one(r->device, from ? GM_OP_copy : GM_OP_fill, &a, from, *out);
    if (st != GM_OK) gm_tensor_release(*out);
    return st;
}

static void share_missed(gm_optimizer *o, item *it, gm_tensor *missed)
{
    if (it->missed != missed) o->regrouped++;
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
        if (o->items[i].missed == old && gm_item_is_used(o, &o->items[i])) all = false;
    if (all) gm_tensor_retain(missed);
    else GM_TRY(new_missed(o->rank, old, 0, &missed));
    gm_status st = count_missed(o->rank->device, control, missed);
    for (int i = first; i < o->n && st == GM_OK; i++) {
        item *it = &o->items[i];
        if (it->missed != old || gm_item_is_used(o, it) || it->done) continue;
        it->done = true;
        share_missed(o, it, missed);
    }
    gm_tensor_release(missed);
    return st;
}

gm_status gm_optimizer_miss(gm_optimizer *o, gm_tensor *control, bool counts)
{
    for (int i = 0; i < o->n; i++) {
        item *it = &o->items[i];
        if (it->done || gm_item_is_used(o, it)) continue;
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
            share_missed(o, &o->items[i], o->items[like].missed);
            continue;
        }
        if (missed[i] != 0) GM_TRY(new_missed(o->rank, NULL, missed[i], &t));
        share_missed(o, &o->items[i], t);
        gm_tensor_release(t);
    }
    return GM_OK;
}

int64_t gm_optimizer_regrouped(const gm_optimizer *o) { return o->regrouped; }
