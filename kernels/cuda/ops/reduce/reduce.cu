/* reduce.cu - sums over any dimensions, and scatter. Across (what is added lies side by side) or down (it does not), in
 * two passes where outputs are too few to fill the GPU: chunks into partial sums, then these. The order of additions
 * depends on shapes, strides and the GPU's size alone, so the same bits come out each time. Every element is read once:
 * the limit is the bandwidth of reads. */
#include "../../common/map.cuh"
#include "reduce_args.h"

#define GM_BODY "../ops/reduce/reduce_t.cuh"
#include "../../common/each_dtype.cuh"
