/* softmax.cu - softmax, its logarithm and their gradients along one dimension. Rows that the threads of a team can hold
 * are read once; longer ones once for each of the passes: the largest, the sum, the result. */
#include "../../common/rows.cuh"
#include "softmax_args.h"

#define GM_HELD GM_SOFTMAX_PACKS
#define GM_BODY "../ops/softmax/softmax_t.cuh"
#include "../../common/each_dtype.cuh"
