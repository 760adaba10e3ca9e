/* elementwise_binary.cu - binary, compare, where, axpy and affine: gm_<op>[_<function>]_<dtype> in items of 16 bytes,
 * gm_<op>_any_<dtype> for the rest. Broadcast operands are loaded where they are, not expanded: a row that all rows are
 * added to comes from the cache. The limit is bandwidth. */
#include "../../common/map.cuh"

#define GM_BODY "../ops/elementwise/elementwise_binary_t.cuh"
#include "../../common/each_dtype.cuh"
