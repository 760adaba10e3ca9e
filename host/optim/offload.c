/* offload.c - see offload.h. */
#include "offload.h"

#include <stdlib.h>

struct gm_offload {
    gm_tier *tier;
    int      n;
    uint64_t room[]; /* of each parameter; 0: its states stay in memory */
};

static gm_status check_ring(const gm_tier *tier, uint64_t largest)
{
    gm_tier_stats s = gm_tier_stats_of(tier);
    if (s.kind == GM_TIER_HOST || s.ring >= 2 * largest) return GM_OK;
    return GM_FAIL(
        GM_EINVAL,
        "offload.ring is %llu bytes, and the states of the largest parameter are %llu: give it at least twice "
        "as many, better four times",
        (unsigned long long)s.ring, (unsigned long long)largest);
}

gm_status gm_offload_new(gm_tier *tier, double fraction, int n, const uint64_t *room, gm_offload **out)
{
    uint64_t    sum = 0, all = 0, largest = 0;
    gm_offload *s = calloc(1, sizeof *s + (size_t)n * sizeof *s->room);
    if (!s) return GM_FAIL(GM_ENOMEM, "no memory for the offload of %d parameters", n);
    s->n = n;
    s->tier = tier;
    gm_tier_retain(tier);
    for (int i = 0; i < n; i++) sum += room[i];
    for (int i = 0; i < n && (double)all < fraction * (double)sum; i++) {
        s->room[i] = room[i];
        all += room[i];
        if (room[i] > largest) largest = room[i];
    }
    gm_status st = check_ring(tier, largest);
    if (st == GM_OK) st = gm_tier_prepare(tier, all);
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

bool gm_offload_takes(const gm_offload *s, int i) { return s && s->room[i]; }

gm_tier *gm_offload_tier(const gm_offload *s) { return s->tier; }
