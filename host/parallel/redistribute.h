/* redistribute.h - from one layout to another by the cheapest sequence of collectives.
 *
 * A plan is found by a shortest-path search over layouts: fewest bytes sent, then fewest messages, then fewest
 * steps; equal plans are told apart by the order of the search, so that every rank finds the same one. Its steps:
 *
 *     slice(axis, dim)        replicated -> cut innermost         nothing sent
 *     gather(axis, dim)       cut innermost -> replicated         all_gather
 *     exchange(axis, d1, d2)  cut moves to another dimension      all_to_all
 *     reduce(axes)            partial -> replicated               all_reduce, over several axes at once
 *     scatter(axis, dim)      partial -> cut innermost            reduce_scatter
 *     mask(axis)              replicated -> partial               nothing sent: all but coordinate 0 become zero
 *     embed(axis, dim)        cut innermost -> partial            nothing sent: zeros around the block
 *
 * Every step works on padded blocks: what is cut is padded to the size of all blocks, with zeros; what is
 * gathered is trimmed to its parent's block. Only axes whose part in the two layouts differs take part (those that
 * cut a dimension inside of one that differs do, too): a copy on any other axis does the same on its own. */
#ifndef GM_REDISTRIBUTE_H
#define GM_REDISTRIBUTE_H

#include "../autograd/value.h"

typedef enum gm_step_kind {
    GM_STEP_SLICE,
    GM_STEP_GATHER,
    GM_STEP_EXCHANGE,
    GM_STEP_REDUCE,
    GM_STEP_SCATTER,
    GM_STEP_MASK,
    GM_STEP_EMBED
} gm_step_kind;

typedef struct gm_redistribute_step {
    gm_step_kind kind;
    uint32_t     axes;        /* one, but for reduce */
    int          dim, to_dim; /* to_dim: of exchange */
    gm_layout    after;
    uint64_t     bytes; /* sent by all ranks of the mesh together: what gm_comm_traffic adds up to over them */
} gm_redistribute_step;

#define GM_MAX_REDISTRIBUTE_STEPS 32

/* The cheapest plan; *n steps, 0 when the layouts are equal. elements of `size` bytes. No communication. GM_EINVAL:
 * a layout that does not fit, partial sums asked for over more axes than one plan can hold. */
gm_status gm_redistribute_plan(const gm_mesh *mesh, const gm_layout *from, const gm_layout *to, int ndim,
                               const int64_t *shape, size_t size, gm_redistribute_step *steps, int *n);

/* The same from the rank's memory of plans, which keeps the last ones used (up to a thousand) and is emptied by another
 * mesh. *steps belong to it and hold until the next call or mesh. */
gm_status gm_redistribute_plan_of(gm_rank *r, const gm_layout *from, const gm_layout *to, int ndim,
                                  const int64_t *shape, size_t size, const gm_redistribute_step **steps, int *n);

/* Collective over the axes that differ. Differentiable: the gradient has x's cuts; where x is partial it is
 * replicated, where x is replicated it stays partial if it was, and is gathered if y was cut. y is x itself
 * (retained) when nothing changes. */
gm_status gm_redistribute(gm_rank *r, gm_value *x, const gm_layout *to, gm_value **y);

/* The same for a bare local block of a global tensor, outside the tape: new block in *out (or in itself, retained).
 * A new block is contiguous. */
gm_status gm_redistribute_block(gm_rank *r, gm_tensor *block, const gm_layout *from, const gm_layout *to, int ndim,
                                const int64_t *shape, gm_tensor **out);

/* x itself (retained) unless it is partial: then its sum, cut as it is, reduced over all those axes at once. */
gm_status gm_settle(gm_rank *r, gm_value *x, gm_value **y);
/* The whole value on every rank. */
gm_status gm_gather_value(gm_rank *r, gm_value *x, gm_value **y);

#endif
