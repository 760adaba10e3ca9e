/* sampler.h - the order in which an epoch visits the samples.
 *
 * The order is a pure function of (seed, epoch, number of samples). There is no state to save, and the sample at any
 * position can be computed alone. So ranks take their own parts, and a resumed run goes to its position directly. The
 * shuffle is the swap-or-not network (Hoang, Morris, Rogaway, "An enciphering scheme based on a card shuffle", CRYPTO
 * 2012), with round keys drawn by Philox with purpose "shuffle". It is an exact permutation for any n. */
#ifndef GM_SAMPLER_H
#define GM_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>
#include "../../kernels/status.h"

#define GM_SAMPLER_ROUNDS_MAX 512

typedef struct gm_sampler {
    int64_t  n; /* samples */
    bool     shuffle;
    int      rounds;
    uint64_t pivot[GM_SAMPLER_ROUNDS_MAX], key[GM_SAMPLER_ROUNDS_MAX];
} gm_sampler;

/* Sets *s to the order of one epoch. It is plain data; there is nothing to free. n >= 0. */
void gm_sampler_init(gm_sampler *s, int64_t n, bool shuffle, uint64_t seed, uint64_t epoch);

/* Gives the samples at positions first .. first + count - 1. GM_EINVAL: these go beyond n. */
gm_status gm_sampler_take(const gm_sampler *s, int64_t first, int64_t count, int64_t *samples);

#endif
