/* each_dtype.cuh - includes GM_FILE, which has kernels, once for each dtype, after rows_t.cuh.
 *
 *     #define GM_FILE "softmax_t.cuh"
 *     #include "each_dtype.cuh" */
#define GM_D       f32
#define GM_T       float
#define GM_R       float
#define GM_S       f32
#define GM_M(name) name##f
#include "rows_t.cuh"
#include GM_FILE
#include "rows_t_end.cuh"

#define GM_D       f64
#define GM_T       double
#define GM_R       double
#define GM_S       f64
#define GM_M(name) name
#include "rows_t.cuh"
#include GM_FILE
#include "rows_t_end.cuh"

#define GM_D       bf16
#define GM_T       gm_bf16
#define GM_R       float
#define GM_S       f32
#define GM_M(name) name##f
#include "rows_t.cuh"
#include GM_FILE
#include "rows_t_end.cuh"

#define GM_D       f16
#define GM_T       gm_f16
#define GM_R       float
#define GM_S       f32
#define GM_M(name) name##f
#include "rows_t.cuh"
#include GM_FILE
#include "rows_t_end.cuh"

#undef GM_FILE
