/* elementwise_unary.cu - y = f(x): gm_unary_<function>_<dtype> in items of 16 bytes, gm_unary_any_<dtype> for the rest.
 * Reads and writes each element once; the limit is bandwidth, for the costly functions in 16 bits the issue slots
 * (functions.cuh). */
#include "../../common/map.cuh"

#define GM_BODY "../ops/elementwise/elementwise_unary_t.cuh"
#include "../../common/each_dtype.cuh"
