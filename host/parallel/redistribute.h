/* redistribute.h - from one layout to another by the cheapest sequence of collectives.
 *
 * A plan is found by a shortest-path search over layouts (bytes sent by a rank, then number of messages). Its steps:
 *
 *     slice(axis, dim)        replicated -> cut innermost         nothing sent
 *     gather(axis, dim)       cut innermost -> replicated         all_gather
 *     exchange(axis, d1, d2)  cut moves to another dimension      all_to_all
 *     reduce(axis)            partial -> replicated               all_reduce
 *     scatter(axis, dim)      partial -> cut innermost            reduce_scatter
 *     mask(axis)              replicated -> partial               nothing sent: all but coordinate 0 become zero
 *
 * Every step works on padded blocks: what is cut is padded to the size of all blocks, with zeros; what is
 * gathered is trimmed to its parent's block. */
#ifndef GM_REDISTRIBUTE_H
#define GM_REDISTRIBUTE_H

#include "../autograd/value.h"

typedef enum gm_step_kind {
    GM_STEP_SLICE,
    GM_STEP_GATHER,
    GM_STEP_EXCHANGE,
    GM_STEP_REDUCE,
    GM_STEP_SCATTER,
    GM_STEP_MASK
} gm_step_kind;

typedef struct gm_redistribute_step {
    gm_step_kind kind;
    int          axis, dim, to_dim; /* to_dim: of exchange */
    gm_layout    after;
    uint64_t     bytes; /* sent by a rank */
} gm_redistribute_step;

#define GM_MAX_REDISTRIBUTE_STEPS 32

/* The cheapest plan; *n steps, 0 when the layouts are equal. elements of `size` bytes. */
gm_status gm_redistribute_plan(const gm_mesh *mesh, const gm_layout *from, const gm_layout *to, int ndim,
                               const int64_t *shape, size_t size, gm_redistribute_step *steps, int *n);

/* Collective over the axes that differ. Differentiable: the gradient comes back in x's layout (a gradient of a value
 * that was partial is replicated, and the other way round). y is x itself (retained) when nothing changes. */
gm_status gm_redistribute(gm_rank *r, gm_value *x, const gm_layout *to, gm_value **y);

/* The same for a bare local block of a global tensor, outside the tape: new block in *out (or in itself, retained). */
gm_status gm_redistribute_block(gm_rank *r, gm_tensor *block, const gm_layout *from, const gm_layout *to, int ndim,
                                const int64_t *shape, gm_tensor **out);

/* The whole value on every rank. */
gm_status gm_gather_value(gm_rank *r, gm_value *x, gm_value **y);

/* sum over all elements of |x|^p, of many blocks at once: p in (0, inf), or inf for the largest |x|. Cut axes are
 * summed (max for inf), copies counted once, partial blocks reduced first; one collective for each set of axes.
 * The p-th root is taken: *norm is the p-norm, the same bits on every rank. Padding counts nothing (it is zero). */
typedef struct gm_norm_item {
    gm_tensor *block;
    gm_layout  layout;
} gm_norm_item;
gm_status gm_layout_norm(gm_rank *r, const gm_norm_item *items, int n, double p, double *norm);

#endif
