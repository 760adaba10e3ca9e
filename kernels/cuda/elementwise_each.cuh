/* elementwise_each.cuh - includes the file GM_BODY once for each dtype of arithmetic (elementwise.cuh). */
#define GM_D f32
#define GM_T float
#define GM_R float
#define GM_S f32
#include GM_BODY
#undef GM_D
#undef GM_T
#define GM_D bf16
#define GM_T gm_bf16
#include GM_BODY
#undef GM_D
#undef GM_T
#define GM_D f16
#define GM_T gm_f16
#include GM_BODY
#undef GM_D
#undef GM_T
#undef GM_R
#undef GM_S
#define GM_D f64
#define GM_T double
#define GM_R double
#define GM_S f64
#include GM_BODY
#undef GM_D
#undef GM_T
#undef GM_R
#undef GM_S
#undef GM_BODY
