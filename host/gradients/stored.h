/* stored.h - parameters that rest in parts (ZeRO stage 3: Rajbhandari et al. 2020, arXiv:1910.02054).
 *
 * Each rank holds one part of such a parameter, laid out as gm_parameter.owned says. The whole block is absent between
 * uses (gm_home): whatever reads the parameter, in forward or in backward, makes the ranks gather it, in one
 * all-gather for each parameter. Layers, saved tensors and views know nothing of this.
 *
 * Blocks stay after their use while there is room (gm_stored_limits), the last used longest; they go after an update,
 * which changes the parts. The order in which blocks were needed is remembered. The blocks that come next in that order
 * are gathered ahead, while ops compute.
 *
 * The traps: a use is collective over the owners, so all of them must run the same ops in the same order, as in every
 * other mode. A write in place changes the whole block and becomes part of what rests when the block goes, or when
 * gm_value_resting is asked; each rank keeps the rows of its own part, so all must write the same. */
#ifndef GM_STORED_H
#define GM_STORED_H

#include "../autograd/value.h"
#include "../tier/tier.h"

/* Takes the numbers of a leaf apart: from now on each rank holds its part over these axes. Nothing happens to a leaf
 * that these axes cut already, that has no dimension, or fewer than `least` elements in its block; nor to one that
 * rests in parts. No communication. */
gm_status gm_parameter_store(gm_value *leaf, uint32_t owners, int64_t least);

/* The numbers of a leaf rest in this tier between their uses: its block, or its part where it rests in parts. Nothing
 * happens to a leaf whose numbers have fewer than `least` bytes, or that rests there already. GM_EINVAL: it is a view
 * of a larger tensor. */
gm_status gm_parameter_rest(gm_value *leaf, gm_tier *tier, size_t least);

/* How many bytes of gathered blocks a rank keeps: `keep` of blocks that were used, and `ahead` more of blocks that come
 * next. Less than one block means one block. -1: twice, or once, the largest block. */
gm_status gm_stored_limits(gm_rank *r, int64_t keep, int64_t ahead);

#endif
