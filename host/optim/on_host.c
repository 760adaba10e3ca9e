/* on_host.c - see on_host.h. */
#include "on_host.h"

#include <stdlib.h>
#include "../../kernels/step_control.h"

static const gm_queues *queues_of(const gm_on_host *h) { return h->rank->device->backend->queues; }

static bool has_data(const gm_on_host *h) { return h->device->backend->has_data; }

gm_status gm_on_host_new(gm_rank *r, uint64_t unit, gm_on_host **out)
{
    gm_status   st;
    gm_on_host *h = calloc(1, sizeof *h);
    if (!h) return GM_FAIL(GM_ENOMEM, "no memory for updates on the host");
    h->rank = r;
    h->unit = unit;
    GM_TRY_OR(gm_rank_beside(r, &h->device), st, fail);
    if (has_data(h)) GM_TRY_OR(queues_of(h)->open(r->device, &h->down), st, fail);
    if (has_data(h)) GM_TRY_OR(queues_of(h)->open(r->device, &h->up), st, fail);
    GM_TRY_OR(gm_tensor_new(h->device, GM_F64, 1, (int64_t[]){GM_CONTROL_SIZE}, &h->control), st, fail);
    GM_TRY_OR(gm_tensor_new(h->device, GM_F64, 1, (int64_t[]){1}, &h->missed), st, fail);
    *out = h;
    return GM_OK;
fail:
    gm_on_host_free(h);
    return st;
}

void gm_on_host_free(gm_on_host *h)
{
    if (!h) return;
    gm_tensor_release(h->control);
    gm_tensor_release(h->missed);
    gm_tensor_release(h->trust);
    if (h->down) queues_of(h)->close(h->down);
    if (h->up) queues_of(h)->close(h->up);
    free(h);
}

static size_t size_of(const gm_tensor *t) { return (size_t)gm_tensor_numel(t) * gm_dtype_size(t->dtype); }

gm_status gm_on_host_read(const gm_on_host *h, const gm_tensor *device, gm_tensor *here)
{
    return gm_device_read(h->rank->device, gm_tensor_data(here), gm_tensor_data(device), size_of(here));
}

gm_status gm_on_host_add(gm_on_host *h, const gm_tensor *here, gm_tensor *device)
{
    gm_device *dev = h->rank->device;
    gm_tensor *term;
    gm_rank_place(h->rank, "offload");
    GM_TRY(gm_tensor_new(dev, here->dtype, here->ndim, here->shape, &term));
    gm_status st = gm_device_write(dev, gm_tensor_data(term), gm_tensor_data(here), size_of(here));
    if (st == GM_OK) st = gm_run_one(dev, GM_OP_axpy, NULL, term, device);
    gm_tensor_release(term);
    return st;
}

gm_status gm_on_host_decided(gm_on_host *h, const gm_tensor *control, bool *go)
{
    *go = true;
    h->device->step = h->rank->device->step;
    if (!control || !has_data(h)) return GM_OK;
    GM_TRY(gm_on_host_read(h, control, h->control));
    *go = ((const double *)gm_tensor_data(h->control))[GM_CONTROL_GO] > 0;
    return GM_OK;
}

gm_status gm_on_host_missed(gm_on_host *h, const gm_tensor *missed, gm_tensor **here)
{
    *here = missed ? h->missed : NULL;
    return missed ? gm_on_host_read(h, missed, h->missed) : GM_OK;
}

/* ---- trips ---- */

static gm_status make_room(gm_trip *t)
{
    if (t->n < t->room) return GM_OK;
    int      room = t->room ? 2 * t->room : 16;
    gm_twin *more = realloc(t->twins, (size_t)room * sizeof *more);
    if (!more) return GM_FAIL(GM_ENOMEM, "no memory for a list of %d tensors on their way to the host", room);
    t->twins = more;
    t->room = room;
    return GM_OK;
}

static gm_status copy(gm_device *dev, gm_tensor *from, gm_tensor *to)
{
    gm_attrs a = gm_attrs_default();
    a.dtype = to->dtype;
    return gm_run_one(dev, GM_OP_copy, &a, from, to);
}

/* Bytes of the device that can be copied as they are. */
static gm_status pack(const gm_on_host *h, gm_twin *w)
{
    if (gm_tensor_is_contiguous(w->of)) {
        gm_tensor_retain(w->packed = w->of);
        return GM_OK;
    }
    gm_rank_place(h->rank, "offload");
    GM_TRY(gm_tensor_new(h->rank->device, w->of->dtype, w->of->ndim, w->of->shape, &w->packed));
    return w->ways & GM_TRIP_DOWN ? copy(h->rank->device, w->of, w->packed) : GM_OK;
}

gm_status gm_trip_add(gm_on_host *h, gm_trip *t, gm_tensor *of, int ways, gm_tensor **here)
{
    GM_TRY(make_room(t));
    GM_TRY(gm_storage_open(of->storage));
    gm_tensor_retain(of);
    gm_twin *w = &t->twins[t->n++];
    *w = (gm_twin){.of = of, .ways = ways, .open = true};
    GM_TRY(pack(h, w));
    GM_TRY(gm_tensor_new(h->device, of->dtype, of->ndim, of->shape, &w->here));
    *here = w->here;
    return GM_OK;
}

static gm_status copy_down(const gm_on_host *h, const gm_trip *t)
{
    for (int i = 0; i < t->n; i++) {
        const gm_twin *w = &t->twins[i];
        if (!(w->ways & GM_TRIP_DOWN)) continue;
        GM_TRY(queues_of(h)->copy_down(h->down, gm_tensor_data(w->here), gm_tensor_data(w->packed), size_of(w->here)));
    }
    return GM_OK;
}

/* The bytes on the device may leave it (gm_home): what a copy needs of them is queued. */
static void close_all(gm_trip *t, bool changed)
{
    for (int i = 0; i < t->n; i++) {
        if (t->twins[i].open) gm_storage_close(t->twins[i].of->storage, changed && t->twins[i].ways & GM_TRIP_UP);
        t->twins[i].open = false;
    }
}

static gm_status queue_down(gm_on_host *h, gm_trip *t)
{
    const gm_queues *q = queues_of(h);
    if (!has_data(h)) return GM_OK;
    GM_TRY(q->enter(h->rank->device, &t->down));
    GM_TRY(q->follow(h->down, t->down));
    gm_status st = copy_down(h, t), left = q->leave(h->down, t->down);
    GM_TRY(left);
    GM_TRY(q->order(h->rank->device, t->down)); /* whatever takes the place of these bytes comes later */
    return st;
}

gm_status gm_trip_fetch(gm_on_host *h, gm_trip *t)
{
    gm_status st = queue_down(h, t);
    close_all(t, false);
    return st;
}

/* Until the piece of work is done. Nothing interrupts it, so that no update is left half made; it takes as long as its
 * copies do. */
static gm_status pass(const gm_on_host *h, gm_ticket **ticket)
{
    if (!*ticket) return GM_OK;
    GM_TRY(gm_queues_wait(h->rank->device, *ticket));
    queues_of(h)->give(h->rank->device, *ticket);
    *ticket = NULL;
    return GM_OK;
}

gm_status gm_trip_arrive(gm_on_host *h, gm_trip *t) { return pass(h, &t->down); }

static gm_status copy_up(const gm_on_host *h, const gm_trip *t)
{
    for (int i = 0; i < t->n; i++) {
        const gm_twin *w = &t->twins[i];
        if (!(w->ways & GM_TRIP_UP)) continue;
        GM_TRY(queues_of(h)->copy_up(h->up, gm_tensor_data(w->packed), gm_tensor_data(w->here), size_of(w->here)));
    }
    return GM_OK;
}

/* The device's later work finds what has gone up. */
static gm_status send(const gm_on_host *h, gm_trip *t)
{
    const gm_queues *q = queues_of(h);
    if (!has_data(h)) return GM_OK;
    GM_TRY(q->enter(h->rank->device, &t->up));
    GM_TRY(q->follow(h->up, t->up));
    gm_status st = copy_up(h, t), left = q->leave(h->up, t->up);
    GM_TRY(left);
    GM_TRY(q->order(h->rank->device, t->up));
    return st;
}

gm_status gm_trip_return(gm_on_host *h, gm_trip *t)
{
    for (int i = 0; i < t->n; i++) {
        gm_twin *w = &t->twins[i];
        if (w->from) GM_TRY(copy(h->device, w->from, w->here));
        if (!(w->ways & GM_TRIP_UP)) continue;
        GM_TRY(gm_storage_open(w->of->storage));
        w->open = true;
    }
    GM_TRY(send(h, t));
    for (int i = 0; i < t->n; i++) {
        gm_twin *w = &t->twins[i];
        if (w->ways & GM_TRIP_UP && w->packed != w->of) GM_TRY(copy(h->rank->device, w->packed, w->of));
    }
    close_all(t, true);
    return GM_OK;
}

gm_status gm_trip_end(gm_on_host *h, gm_trip *t)
{
    GM_TRY(pass(h, &t->down));
    GM_TRY(pass(h, &t->up));
    close_all(t, false);
    for (int i = 0; i < t->n; i++) {
        gm_tensor_release(t->twins[i].of);
        gm_tensor_release(t->twins[i].packed);
        gm_tensor_release(t->twins[i].here);
    }
    free(t->twins);
    *t = (gm_trip){0};
    return GM_OK;
}
