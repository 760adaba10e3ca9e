/* functions.cuh - the scalar functions on the device: gm_fn_<name>_<f32 or f64>, gm_slope_<name>_<..>,
 * and by number gm_unary_<..>, gm_unary_slope_<..>, gm_binary_<..>, gm_compare_<..>. 16-bit values go through f32.
 *
 * The trap: these are the accurate functions of the CUDA library (1 or 2 units in the last place), some 20 to 40
 * instructions each. At the bandwidth of an H200 a multiprocessor has issue slots for about 49 instructions an element
 * in f32 and 24 in bf16 (read and written once): erf and tanh in bf16 are near that limit, pow is past it. */
#ifndef GM_CUDA_ELEMENTWISE_FUNCTIONS_CUH
#define GM_CUDA_ELEMENTWISE_FUNCTIONS_CUH

#include "kernel.cuh"
#include "../../op.h"

#define GM_PASTE_(a, b) a##_##b
#define GM_PASTE(a, b)  GM_PASTE_(a, b)

#define GM_R       float
#define GM_S       f32
#define GM_N(base) GM_PASTE(base, GM_S)
#define GM_M(call) call##f
#include "functions_t.cuh"
#undef GM_R
#undef GM_S
#undef GM_M

#define GM_R    double
#define GM_S    f64
#define GM_M(call) call
#include "functions_t.cuh"
#undef GM_R
#undef GM_S
#undef GM_M
#undef GM_N

#endif
