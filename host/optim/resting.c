/* resting.c - what belongs to a parameter and rests in the rank's tier: space for its states, and what the tier's ring
 * needs while it is updated (items.h, optimizer.h). */
#include <stdlib.h>
#include "items.h"
#include "states.h"

/* What the states of item i take of a tier. */
static uint64_t room_of(const gm_optimizer *o, const item *it, gm_tier_kind kind)
{
    uint64_t room = 0;
    for (int k = 0; k < MAX_STATES; k++) {
        if (!gm_item_has_state(o, it, k)) continue;
        gm_spec spec = gm_states_spec(it->parameter, gm_item_like(it), gm_item_kept_in(o, it, k));
        room += gm_tier_room(kind, gm_states_bytes(&spec));
    }
    return room;
}

void gm_optimizer_room(const gm_optimizer *o, gm_tier_kind kind, uint64_t *all, uint64_t *largest)
{
    *all = *largest = 0;
    for (int i = 0; i < o->n; i++) {
        uint64_t room = room_of(o, &o->items[i], kind);
        *all += room;
        if (room > *largest) *largest = room;
    }
}

static bool has_states(const item *it)
{
    for (int k = 0; k < MAX_STATES; k++)
        if (it->state[k]) return true;
    return false;
}

/* A tier of the host below a GPU: the host makes the updates of what rests there. */
static gm_status begin_on_host(gm_optimizer *o, gm_tier *tier, uint64_t unit)
{
    if (gm_tier_device(tier) == o->rank->device) return GM_OK;
    GM_TRY(gm_on_host_new(o->rank, unit, &o->host));
    return gm_units_new(o);
}

gm_status gm_optimizer_offload(gm_optimizer *o, gm_tier *tier, double fraction, uint64_t unit)
{
    uint64_t *room = calloc((size_t)o->n + 1, sizeof *room);
    gm_status st = room ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for the offload of %d parameters", o->n);
    if (o->offload) st = GM_FAIL(GM_EINVAL, "optimizer: its states are offloaded already");
    for (int i = 0; i < o->n && st == GM_OK; i++) {
        if (has_states(&o->items[i])) st = GM_FAIL(GM_EINVAL, "optimizer: states are offloaded before the first step");
        room[i] = room_of(o, &o->items[i], gm_tier_stats_of(tier).kind);
    }
    if (st == GM_OK) st = gm_offload_new(tier, fraction, o->n, room, &o->offload);
    if (st == GM_OK) st = begin_on_host(o, tier, unit);
    free(room);
    return st;
}

/* What the tier's ring needs for a parameter, its gradient and its states while they are updated. */
uint64_t gm_item_ring_needs(const gm_optimizer *o, const item *it)
{
    uint64_t         bytes = 0;
    const gm_tensor *g = gm_item_gradient(o, it);
    gm_layout        layout;
    gm_tensor       *p;
    if (gm_value_resting(it->parameter, &layout, &p) == GM_OK) bytes = gm_tier_needs(p->storage);
    if (g) bytes += gm_tier_needs(g->storage);
    for (int k = 0; k < MAX_STATES; k++)
        if (it->state[k]) bytes += gm_tier_needs(it->state[k]->storage);
    return bytes;
}

uint64_t gm_item_trip_bytes(const gm_optimizer *o, const item *it)
{
    const gm_tensor *g = gm_item_gradient(o, it);
    gm_layout        layout;
    gm_tensor       *p;
    uint64_t         bytes = g ? (uint64_t)gm_tensor_numel(g) * gm_dtype_size(g->dtype) : 0;
    if (gm_value_resting(it->parameter, &layout, &p) == GM_OK)
        bytes += (uint64_t)gm_tensor_numel(p) * gm_dtype_size(p->dtype);
    return bytes;
}

gm_status gm_item_begin(const gm_optimizer *o, const item *it)
{
    const gm_tensor *g = gm_item_gradient(o, it);
    gm_layout        layout;
    gm_tensor       *p;
    GM_TRY(gm_value_resting(it->parameter, &layout, &p));
    GM_TRY(gm_tier_begin(p->storage));
    if (g) GM_TRY(gm_tier_begin(g->storage));
    for (int k = 0; k < MAX_STATES; k++)
        if (it->state[k]) GM_TRY(gm_tier_begin(it->state[k]->storage));
    return GM_OK;
}
