/* elementwise_grad.cu - dx = g f'(x): gm_unary_grad_<function>_<dtype> in items of 16 bytes, gm_unary_grad_any_<dtype>
 * for the rest. Three accesses an element: half as much arithmetic a byte as the slope of f alone would be. */
#include "../../common/map.cuh"

#define GM_BODY "../ops/elementwise/elementwise_grad_t.cuh"
#include "../../common/each_dtype.cuh"
