/* reducer.h - sums gradients over the ranks that hold copies of a parameter, while backward still runs.
 *
 * Gradients live in buckets: flat buffers of at most bucket_bytes (or one larger gradient), fixed at creation in
 * reverse order of the parameters (about the order in which backward finishes them); a parameter's gradient is a
 * view of its bucket, so nothing is packed. A bucket holds parameters of one dtype, cut by the same axes. Gradients
 * that are held in f32 (gm_value_set_wide_grad) are summed in f32. When the last gradient of a bucket is final the
 * bucket is due; due buckets are reduced in bucket order (Li et al., PyTorch Distributed, VLDB 2020), so that every
 * rank makes the same calls whatever order its backward took, and the same sums with overlap and without.
 *
 * At most 64 MiB of buckets are under way at once, or one that is larger: a reduction holds scratch of its bucket's
 * size.
 *
 * A rank whose loss did not use a parameter contributes -0.0 for it, the one number that changes no other in a sum. So
 * a first element of -0.0 in the sum tells that no rank used the parameter. Only ranks that did not use a parameter
 * look, on a device at all such parameters in one read; steps in which a rank uses all parameters never wait.
 * A parameter that no rank used is reported and keeps no gradient, as in a run on one rank. It delays nothing: a leaf
 * that no tape awaits (gm_tape_await) counts as final when the first gradient is final.
 *
 * The traps: gradients point into buckets. gm_value_zero_grad keeps them there, but gm_value_require_grad(v, false)
 * does not; the reducer detects this (GM_EINVAL). While armed with overlap, a further term for a final gradient would
 * change data that is being sent; gm_value_grad_buffer refuses it. A rank may have several reducers (two models), of
 * which one is armed at a time. */
#ifndef GM_REDUCER_H
#define GM_REDUCER_H

#include "../autograd/value.h"

typedef struct gm_reducer gm_reducer;

#define GM_REDUCER_PATH "gradients" /* in place of a module path, in accounts and reports */

/* Takes over the gradients of n leaves (retained), keeping what they hold, and joins r->reducer. Each is summed over
 * the batch axes that do not cut it, and over whatever else the gradients of its bucket turn out to be partial over.
 * bucket_bytes 0: 4 MiB. overlap false: reduce everything in gm_reducer_finish.
 * owners: axes over which the sums are shared out (ZeRO). Each rank then receives the part of each sum that it owns, in
 * gm_parameter.own, laid out as gm_layout_divide says. The sums of several passes add up there until
 * gm_value_zero_grad, and the gradients that backward made are freed. A leaf that these axes cut already, or that has
 * no dimension, is summed as without owners.
 * GM_EINVAL: no leaf that requires a gradient, listed twice, or in another reducer. */
gm_status gm_reducer_new(gm_rank *r, gm_value *const *leaves, int n, size_t bucket_bytes, bool overlap, uint32_t owners,
                         gm_reducer **out);
void      gm_reducer_free(gm_reducer *d); /* gradients become ordinary ones again; NULL is allowed */

/* on: gradients that backward finishes from now on are reduced. off: gradients accumulate without communication.
 * Waits for reductions that are still under way (after an error, for example) and drops them. */
void gm_reducer_arm(gm_reducer *d, bool on);
/* The tape says that a leaf's gradient is final: no tape awaits it any more. Asks d and the reducers it is chained to
 * (r->reducer is their head; NULL is allowed); leaves that are nobody's are ignored. */
gm_status gm_reducer_ready(gm_reducer *d, gm_value *leaf);
/* Reduces the remaining buckets and waits for all. Gradients are then complete sums (grad_partial 0). Disarms, also on
 * failure. */
gm_status gm_reducer_finish(gm_reducer *d);
/* After an update: every rank receives the parts of the parameters that their owners have updated. Collective; nothing
 * happens without owners. */
gm_status gm_reducer_gather(gm_reducer *d);
/* The number of leaves that no rank's loss used in the last step; unused (room for n) receives their indices. */
int    gm_reducer_unused(const gm_reducer *d, int *unused);
int    gm_reducer_buckets(const gm_reducer *d);
size_t gm_reducer_bytes(const gm_reducer *d); /* of all buckets */

#endif
