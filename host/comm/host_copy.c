/* host_copy.c - operations on tensors of a device, over a transport that moves host memory only.
 *
 * Such an operation works on host memory that the device copies to and from asynchronously (device.h,
 * gm_device_host_pool). At its start, copies of the data to be sent are queued behind the kernels that make it. The
 * first step runs when a wait, a test or a poll finds these copies done. After the last step, copies of the received
 * data are queued before any later kernel; the operation is then done, and its host memory is free when these copies
 * have ended. So nothing here waits for the device, and operations overlap with its work.
 *
 * In a group of one the device copies from `in` to `out`. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>

#define ALIGN(n) (((n) + 63) & ~(size_t)63)

static size_t bytes_of(const gm_tensor *t) { return t ? (size_t)gm_tensor_numel(t) * gm_dtype_size(t->dtype) : 0; }

static gm_device *device_of(const gm_pending *p) { return (p->in ? p->in : p->out)->storage->device; }

static bool is_elsewhere(const gm_device *dev) { return dev->backend->has_data && !dev->backend->on_host; }

/* ---- memory ---- */

static gm_status take_block(gm_pending *p, gm_pool *pool, size_t bytes, void **data, gm_block **block)
{
    gm_pool_set_place(pool, gm_comm_place(p->comm), gm_call_name((int)p->call));
    return gm_pool_alloc(pool, bytes, data, block);
}

/* Of `s`, which no copy uses any more: its mark is kept for the next operation. */
static void release_block(gm_comm *c, gm_host_copy *s)
{
    gm_pool *pool;
    if (s->block && gm_device_host_pool(s->device, &pool) == GM_OK) gm_pool_release(pool, s->block);
    s->block = NULL;
    s->busy = false;
    s->next = c->spare;
    c->spare = s;
}

static gm_status release_returned(gm_comm *c)
{
    bool passed = true;
    while (c->returning) { /* oldest first */
        gm_host_copy *s = c->returning;
        GM_TRY(gm_device_passed(s->device, s->mark, &passed));
        if (!passed) break;
        c->returning = s->next;
        release_block(c, s);
    }
    return GM_OK;
}

static gm_status new_staged(gm_comm *c, gm_device *dev, gm_host_copy **out)
{
    gm_host_copy **at = &c->spare;
    while (*at && (*at)->device != dev) at = &(*at)->next;
    gm_host_copy *s = *at;
    if (s) *at = s->next;
    else if ((s = calloc(1, sizeof *s))) s->device = dev;
    if (!s) return GM_FAIL(GM_ENOMEM, "no memory for an operation");
    s->next = NULL;
    *out = s;
    return GM_OK;
}

static gm_status take_staged(gm_pending *p, size_t scratch)
{
    gm_pool *pool;
    void    *data;
    size_t   in = ALIGN(bytes_of(p->in)), out = ALIGN(bytes_of(p->out));
    GM_TRY(release_returned(p->comm));
    GM_TRY(new_staged(p->comm, device_of(p), &p->staged));
    if (p->group->size == 1 || !p->comm->transport->has_data) return GM_OK;
    GM_TRY(gm_device_host_pool(device_of(p), &pool));
    GM_TRY(take_block(p, pool, in + out + scratch + 1, &data, &p->staged->block));
    if (p->in) p->from = data;
    if (p->out) p->to = (char *)data + in;
    if (scratch) p->scratch = (char *)data + in + out;
    return GM_OK;
}

gm_status gm_host_copy_take(gm_pending *p, size_t scratch)
{
    void *data = NULL;
    if (gm_lane_serves(p)) {
        p->linked = device_of(p);
        return GM_OK;
    }
    if (is_elsewhere(device_of(p))) return take_staged(p, scratch);
    p->from = p->in ? gm_tensor_data(p->in) : NULL;
    p->to = p->out ? gm_tensor_data(p->out) : NULL;
    p->scratch = scratch && scratch <= sizeof p->own ? p->own : NULL;
    if (!scratch || p->scratch) return GM_OK;
    p->pool = device_of(p)->pool;
    GM_TRY(take_block(p, p->pool, scratch, &data, &p->block));
    p->scratch = data;
    return GM_OK;
}

static void keep_until_passed(gm_comm *c, gm_host_copy *s)
{
    gm_host_copy **at = &c->returning;
    while (*at) at = &(*at)->next;
    s->next = NULL;
    *at = s;
}

void gm_host_copy_give(gm_pending *p)
{
    gm_host_copy *s = p->staged;
    if (p->block) gm_pool_release(p->pool, p->block);
    p->block = NULL;
    p->staged = NULL;
    if (s && s->busy) keep_until_passed(p->comm, s);
    else if (s) release_block(p->comm, s);
}

void gm_host_copy_free(gm_comm *c)
{
    while (c->returning) {
        gm_host_copy *s = c->returning;
        c->returning = s->next;
        (void)gm_device_synchronize(s->device); /* an error of kernels is somebody else's by now */
        release_block(c, s);
    }
    while (c->spare) {
        gm_host_copy *s = c->spare;
        c->spare = s->next;
        gm_device_unmark(s->device, s->mark);
        free(s);
    }
}

/* ---- copies ---- */

/* Whose `out` is sent, and whose stays as it is. */
static bool sends_out(const gm_pending *p)
{
    if (p->call == GM_CALL_broadcast) return p->root == p->group->rank;
    return p->call == GM_CALL_all_reduce || p->call == GM_CALL_reduce;
}

static bool receives_out(const gm_pending *p)
{
    if (p->call == GM_CALL_broadcast) return p->root != p->group->rank;
    if (p->call == GM_CALL_reduce) return p->root == p->group->rank;
    return true;
}

/* Behind the copies that were queued with status st. Without a mark nobody could tell when they have ended. */
static gm_status mark(gm_host_copy *s, gm_status st)
{
    if (st == GM_OK) st = gm_device_mark(s->device, &s->mark);
    s->busy = st == GM_OK;
    if (st == GM_OK) return GM_OK;
    char error[1100];
    snprintf(error, sizeof error, "%s", gm_last_error());
    (void)gm_device_synchronize(s->device);
    return gm_fail_again(st, error);
}

static gm_status step_alone(gm_pending *p, int round)
{
    const gm_tensor *in = p->in, *out = p->out;
    (void)round;
    if (p->call == GM_CALL_all_to_all_rows) return gm_rows_alone(p, p->staged->device);
    if (!in || !out || gm_tensor_data(in) == gm_tensor_data(out)) return GM_OK;
    p->account->copied += bytes_of(in);
    return gm_device_copy(p->staged->device, gm_tensor_data(out), gm_tensor_data(in), bytes_of(in));
}

static gm_status read_later(gm_pending *p, char *to, const gm_tensor *t)
{
    p->account->copied += bytes_of(t);
    return gm_device_read_later(p->staged->device, to, gm_tensor_data(t), bytes_of(t));
}

gm_status gm_host_copy_begin(gm_pending *p)
{
    if (!p->staged) return GM_OK;
    if (p->group->size == 1) {
        p->step = step_alone;
        p->rounds = 0;
        return GM_OK;
    }
    bool sends = p->out && sends_out(p);
    if (!p->comm->transport->has_data || (!p->in && !sends)) return GM_OK;
    gm_status st = p->in ? read_later(p, p->from, p->in) : GM_OK;
    if (st == GM_OK && sends) st = read_later(p, p->to, p->out);
    GM_TRY(mark(p->staged, st));
    p->coming = true;
    return GM_OK;
}

gm_status gm_host_copy_came(gm_pending *p)
{
    bool passed;
    GM_TRY(gm_device_passed(p->staged->device, p->staged->mark, &passed));
    if (passed) p->coming = p->staged->busy = false;
    return GM_OK;
}

gm_status gm_host_copy_return(gm_pending *p)
{
    if (!p->staged || !p->to || !receives_out(p)) return GM_OK;
    p->account->copied += bytes_of(p->out);
    gm_device *dev = p->staged->device;
    return mark(p->staged, gm_device_write_later(dev, gm_tensor_data(p->out), p->to, bytes_of(p->out)));
}
