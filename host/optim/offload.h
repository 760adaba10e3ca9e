/* offload.h - optimizer states that rest in a tier (host/tier) and stream through the update.
 *
 * The states of some parameters rest on the host or on a disk. An update takes the parameters in order, in units: while
 * one unit is updated, the states of the next are read, and those of the one before are written. So memory holds a few
 * units, in the tier's ring, however large the model is. Every number is computed as it is with states in memory, so
 * the bits are the same. */
#ifndef GM_OFFLOAD_H
#define GM_OFFLOAD_H

#include "../tier/tier.h"

typedef struct gm_offload gm_offload;

/* tier: of the rank, in which the states rest; this becomes one of its owners. fraction: of the bytes of all states,
 * from the first parameter on; at most 1. room: for each of n parameters what its states will take of the tier. Takes
 * the space for them. GM_EINVAL: the ring is too small; otherwise as gm_tier_prepare. */
gm_status gm_offload_new(gm_tier *tier, double fraction, int n, const uint64_t *room, gm_offload **out);
void      gm_offload_free(gm_offload *s); /* NULL is allowed */

/* Do the states of parameter i rest in the tier? s NULL: no. */
bool     gm_offload_takes(const gm_offload *s, int i);
gm_tier *gm_offload_tier(const gm_offload *s); /* not retained */

#endif
