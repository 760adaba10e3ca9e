/* offload.c - see offload.h. */
#include "offload.h"

#include <stdlib.h>

#define RING ((uint64_t)64 << 20) /* of a model that is not small */

struct gm_offload {
    gm_tier     *tier;
    gm_tier_kind kind;
    gm_device   *device;
    uint64_t     unit; /* bytes of the states of a unit, if it has more than one parameter */
    uint64_t     all;  /* bytes that will rest in the tier */
    int          n;
    uint64_t     room[]; /* of each parameter; 0: its states stay in memory */
};

/* Room for three units (one comes, one is updated, one goes), and the loss where the ring begins anew. */
static gm_status choose_ring(uint64_t all, uint64_t largest, size_t *ring)
{
    uint64_t usual = all / 8 < RING ? all / 8 : RING;
    if (!*ring) *ring = (size_t)(4 * largest > usual ? 4 * largest : usual);
    if (*ring >= 2 * largest) return GM_OK;
    return GM_FAIL(
        GM_EINVAL,
        "offload.ring is %zu bytes, and the states of the largest parameter are %llu: give it at least twice "
        "as many, better four times",
        *ring, (unsigned long long)largest);
}

gm_status gm_offload_new(gm_device *dev, const gm_offload_settings *settings, int n, const uint64_t *room,
                         gm_offload **out)
{
    gm_tier_settings tier = settings->tier;
    uint64_t         sum = 0, all = 0, largest = 0;
    gm_offload      *s = calloc(1, sizeof *s + (size_t)n * sizeof *s->room);
    if (!s) return GM_FAIL(GM_ENOMEM, "no memory for the offload of %d parameters", n);
    s->n = n;
    s->kind = tier.kind;
    s->device = dev;
    for (int i = 0; i < n; i++) sum += room[i];
    for (int i = 0; i < n && (double)all < settings->fraction * (double)sum; i++) {
        s->room[i] = room[i];
        all += room[i];
        if (room[i] > largest) largest = room[i];
    }
    gm_status st = choose_ring(all, largest, &tier.ring);
    s->unit = tier.ring / 4;
    s->all = all;
    if (st == GM_OK) st = gm_tier_new(dev, &tier, &s->tier);
    if (st == GM_OK) st = gm_tier_prepare(s->tier, all);
    if (st == GM_OK) *out = s;
    else gm_offload_free(s);
    return st;
}

void gm_offload_free(gm_offload *s)
{
    if (!s) return;
    gm_tier_release(s->tier);
    free(s);
}

gm_status gm_offload_take(gm_offload *s, int i, gm_tensor *state)
{
    if (!s || !s->room[i]) return GM_OK;
    GM_TRY(gm_tier_take(s->tier, state->storage));
    /* The blocks in which states were made are of no more use. */
    if (s->kind == GM_TIER_DISK && gm_tier_stats_of(s->tier).placed == s->all) gm_pool_trim(s->device->pool);
    return GM_OK;
}

gm_status gm_offload_begin(gm_offload *s, gm_tensor *state) { return gm_tier_begin(s->tier, state->storage); }

bool gm_offload_fits(const gm_offload *s, int i, int *n, uint64_t *bytes)
{
    if (!s) return true;
    if (!s->room[i]) return true;
    *bytes += s->room[i];
    return (*n)++ == 0 || s->kind == GM_TIER_HOST || *bytes <= s->unit;
}

size_t gm_offload_held(const gm_offload *s, int i, const gm_tensor *state)
{
    return s && s->room[i] && s->kind == GM_TIER_DISK ? 0 : state->storage->bytes;
}

gm_tier_stats gm_offload_stats(const gm_offload *s) { return gm_tier_stats_of(s->tier); }
