/* norm.cu - layer norm and RMS norm, their gradients, and both in steps: one kernel for results, one for gradients.
 *
 * A row that its team can hold in registers is read once, residual and all; a longer one once for each of the passes:
 * mean, squares, result. Squares are taken around the mean. The gradient kernel goes on to other rows with the same
 * columns, so that sums over rows (dw, db) stay in registers until the end; for rows that are not held columns.cu
 * makes them in a pass of its own. */
#include "../../common/rows.cuh"
#include "norm_args.h"

#define GM_HELD GM_NORM_PACKS(sizeof(GM_T))
#define GM_BODY "../ops/norm/norm_t.cuh"
#include "../../common/each_dtype.cuh"
