/* sparse_sum.h - sums of sparse gradients (host/autograd/sparse.h) over the ranks that share a batch. */
#ifndef GM_SPARSE_SUM_H
#define GM_SPARSE_SUM_H

#include "../autograd/value.h"

/* The lists of each of these tables are gathered over the axes that share the batch and do not cut the table, and over
 * those that its gradient is partial over, and become one list, in one order of additions, the same on every rank.
 * n (8 + width bytes of an element) travel from each rank, n the places of the list. Collective; the tables in the same
 * order on every rank. A rank without a gradient joins in with no rows; on a device with memory of its own, where the
 * lengths of lists are not compared, it is GM_EINVAL. */
gm_status gm_sparse_sum(gm_rank *r, gm_value *const *tables, int n);

#endif
