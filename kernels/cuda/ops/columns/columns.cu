/* columns.cu - sums over rows (columns_args.h). First pass: a warp has 32 packs of columns and every eighth row of its
 * block's set; the warps' sums are added in order. */
#include "../../common/rows.cuh"
#include "columns_args.h"
#include "../../common/functions.cuh"

/* f'(x) of what gm_function_is_activation allows, by number. */
#define GM_ACTIVATION(name, type) \
    case GM_FN_##name: return gm_slope_##name##_##type(x, 0);
#define GM_ACTIVATION_SLOPE(real, type)                                \
    GM_DEVICE real gm_activation_slope_##type(int function, real x)    \
    {                                                                  \
        switch (function) {                                            \
            GM_ACTIVATION(relu, type)                                  \
            GM_ACTIVATION(gelu, type)                                  \
            GM_ACTIVATION(gelu_tanh, type)                             \
            GM_ACTIVATION(silu, type)                                  \
            GM_ACTIVATION(sigmoid, type)                               \
            GM_ACTIVATION(tanh, type)                                  \
        }                                                              \
        return 1;                                                      \
    }
GM_ACTIVATION_SLOPE(float, f32)
GM_ACTIVATION_SLOPE(double, f64)

#define GM_BODY "../ops/columns/columns_t.cuh"
#include "../../common/each_dtype.cuh"
