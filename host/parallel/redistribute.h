/* redistribute.h - brings a tensor from one layout to another by the cheapest sequence of collectives.
 *
 * A shortest-path search over layouts finds the plan: fewest bytes sent, then fewest messages, then fewest steps. The
 * order of the search decides between equal plans, so that every rank finds the same one. The steps of a plan:
 *
 *     slice(axis, dim)        replicated -> cut innermost         nothing sent
 *     gather(axis, dim)       cut innermost -> replicated         all_gather
 *     exchange(axis, d1, d2)  cut moves to another dimension      all_to_all
 *     reduce(axes)            partial -> replicated               all_reduce, over several axes at once
 *     scatter(axis, dim)      partial -> cut innermost            reduce_scatter
 *     mask(axis)              replicated -> partial               nothing sent: all but coordinate 0 become zero
 *     embed(axis, dim)        cut innermost -> partial            nothing sent: zeros around the block
 *
 * Every step works on padded blocks. A step that cuts pads with zeros to the common size of the blocks; a step that
 * gathers trims the result to its parent's block. Only axes that the two layouts use differently take part, and axes
 * that cut a dimension inside of such an axis. Ranks that differ in other axes work independently. */
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
    uint64_t     bytes; /* sent by all ranks of the mesh together: the sum of gm_comm_traffic over them */
} gm_redistribute_step;

#define GM_MAX_REDISTRIBUTE_STEPS 32

/* Finds the cheapest plan for a tensor of this global shape with elements of `size` bytes. *n: the number of steps, 0
 * if the layouts are equal; steps has room for GM_MAX_REDISTRIBUTE_STEPS. No communication. GM_EINVAL: a layout does
 * not fit the mesh or the tensor, or `to` is partial over more axes than one plan can hold. */
gm_status gm_redistribute_plan(const gm_mesh *mesh, const gm_layout *from, const gm_layout *to, int ndim,
                               const int64_t *shape, size_t size, gm_redistribute_step *steps, int *n);

/* The same through the rank's cache of plans, which keeps the most recently used ones (up to a thousand) and is emptied
 * when the mesh changes. The cache owns *steps, which are valid until the next call or change of mesh. */
gm_status gm_redistribute_plan_of(gm_rank *r, const gm_layout *from, const gm_layout *to, int ndim,
                                  const int64_t *shape, size_t size, const gm_redistribute_step **steps, int *n);

/* *y receives x in layout `to`, or x itself (retained) if nothing changes. Collective over the axes that differ.
 * Differentiable: the gradient of x is cut as x is. On axes where x is partial the gradient is replicated. On axes
 * where x is replicated the gradient stays partial if it was, and is gathered if y is cut. */
gm_status gm_redistribute(gm_rank *r, gm_value *x, const gm_layout *to, gm_value **y);

/* The same for a local block of a global tensor, without recording. *out receives a new contiguous block, or `block`
 * itself (retained). */
gm_status gm_redistribute_block(gm_rank *r, gm_tensor *block, const gm_layout *from, const gm_layout *to, int ndim,
                                const int64_t *shape, gm_tensor **out);

/* Makes a partial value complete: reduces it over all its partial axes at once and keeps its cuts. *y is x itself
 * (retained) if x is not partial. */
gm_status gm_settle(gm_rank *r, gm_value *x, gm_value **y);
/* *y receives the whole value, replicated on every rank. */
gm_status gm_gather_value(gm_rank *r, gm_value *x, gm_value **y);

#endif
