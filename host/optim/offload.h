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

typedef struct gm_offload_settings {
    gm_tier_settings tier;     /* ring 0: chosen */
    double           fraction; /* of the bytes of all states, from the first parameter on; at most 1 */
} gm_offload_settings;

/* room: for each of n parameters what its states will take of the tier. Takes the space for them. GM_EINVAL: the ring
 * is too small; otherwise as gm_tier_new and gm_tier_prepare. */
gm_status gm_offload_new(gm_device *dev, const gm_offload_settings *settings, int n, const uint64_t *room,
                         gm_offload **out);
void      gm_offload_free(gm_offload *s); /* NULL is allowed */

/* A new state of parameter i: it goes to the tier if those of this parameter rest there. s NULL: it stays. */
gm_status gm_offload_take(gm_offload *s, int i, gm_tensor *state);
/* It begins to come. */
gm_status gm_offload_begin(gm_offload *s, gm_tensor *state);
/* Does parameter i fit into a unit of *n parameters whose states take *bytes? Counts it. s NULL: always. */
bool gm_offload_fits(const gm_offload *s, int i, int *n, uint64_t *bytes);

/* Bytes of a state in memory, beside the ring: 0 where it rests on a disk. */
size_t        gm_offload_held(const gm_offload *s, int i, const gm_tensor *state);
gm_tier_stats gm_offload_stats(const gm_offload *s);

#endif
