/* sparse.h - gradients of tables as the rows that lookups touched (gm_parameter.row and sum).
 *
 * A parameter that is told so has no dense gradient. Backward lists the rows that a lookup took, each once, with the
 * sum of what flows back to it, in one order of additions (op embedding_rows); further lookups and passes join the
 * list. A list is as long as the places that were looked up, whatever number of rows they name, so its size follows
 * from shapes alone and nobody waits for a device. Its end is rows of -1 with sums of 0. The trap: gm_value_grad and
 * gm_value_final_grad know nothing of such a gradient and say that there is none; gm_value_sparse_grad gives it. */
#ifndef GM_SPARSE_H
#define GM_SPARSE_H

#include "value.h"
#include "work.h"

/* Is the gradient of this leaf to be sparse? GM_EINVAL: it is no table (rows, width) that requires a gradient, or it
 * has a gradient of the other kind. */
gm_status gm_value_set_sparse(gm_value *v, bool on);
/* The rows and their sums, borrowed; false: there is no gradient, or it is not sparse. */
bool gm_value_sparse_grad(const gm_value *v, gm_tensor **row, gm_tensor **sum);
/* Is there a gradient of either kind? */
bool gm_value_has_grad(const gm_value *v);
/* *out: the gradient of v's block with all its rows, new. */
gm_status gm_sparse_whole(const gm_value *v, gm_tensor **out);
/* The gradient becomes a list without rows, which counts as one. */
gm_status gm_sparse_clear(gm_value *v);
void      gm_sparse_drop(gm_value *v);
/* GM_EINVAL: v's gradient is sparse, so that only lookups may add to it. */
gm_status gm_sparse_refuse_dense(const gm_value *v);
/* Rows and (weighted) gradients, as op embedding_rows takes them, join v's list; it has taken nothing if w->st is an
 * error afterwards. */
void gm_sparse_add(gm_work *w, gm_value *v, gm_tensor *row, gm_tensor *g, gm_tensor *weight, int64_t padding);

#endif
