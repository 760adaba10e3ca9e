/* each_dtype.cuh - includes GM_BODY, a file with kernels, once for each dtype of arithmetic, with
 *     GM_D  the dtype's name: f32, bf16, f16, f64             GM_T  its C type
 *     GM_S  that of its arithmetic and sums: f32 or f64       GM_R  its C type       GM_M(exp)  expf or exp
 *     GM_WIDE  1 for f64, else 0                              GM_SHORT  1 for bf16 and f16, else 0
 *
 *     #define GM_BODY "../ops/softmax/softmax_t.cuh"
 *     #include "each_dtype.cuh" */
#define GM_R       float
#define GM_S       f32
#define GM_M(name) name##f
#define GM_WIDE    0

#define GM_SHORT 0
#define GM_D     f32
#define GM_T     float
#include GM_BODY
#undef GM_SHORT
#undef GM_D
#undef GM_T

#define GM_SHORT 1
#define GM_D     bf16
#define GM_T     gm_bf16
#include GM_BODY
#undef GM_D
#undef GM_T

#define GM_D f16
#define GM_T gm_f16
#include GM_BODY
#undef GM_SHORT
#undef GM_D
#undef GM_T

#undef GM_R
#undef GM_S
#undef GM_M
#undef GM_WIDE

#define GM_R       double
#define GM_S       f64
#define GM_M(name) name
#define GM_WIDE    1

#define GM_SHORT 0
#define GM_D     f64
#define GM_T     double
#include GM_BODY
#undef GM_SHORT
#undef GM_D
#undef GM_T

#undef GM_R
#undef GM_S
#undef GM_M
#undef GM_WIDE
#undef GM_BODY
