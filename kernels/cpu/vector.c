/* vector.c - vector types of the instruction set, and the numeric functions that kernels share.
 *
 * CPU_VECTOR (base.c) is the width in bytes. For T = float (suffix _f32, vector vf32) and T = double (_f64, vf64),
 * vector_t.h, lanes_t.h, memory_t.h and rows_t.h give, all static inline, what follows. What has a pointer to elements
 * is also there for bf16 and f16 (suffixes _bf16 and _f16, vector vf32; vector_narrow_t.h): it widens what it reads
 * and rounds what it writes.
 *
 *   V f(load)(const T *p)   store(T *p, V)   load_n(p, n)   store_n(p, n, V)   splat(T)
 *       any alignment; the _n forms touch only the first n < LANES elements, missing lanes read 0
 *   V at(p, i, m)   put(p, i, m, V): whole vectors where m >= LANES, else the first m lanes of p + i; the idiom is
 *       for (i = 0; i < n; i += LANES) F(put)(y, i, n - i, f(F(at)(x, i, n - i)));
 *   put_past(p, i, m, V, past), first_step: the same for what may go past the caches (memory_t.h)
 *   T get(p)   set(p, T)             one element
 *   load_wide(p, vf64 *low, *high)   a vector as doubles
 *   V select(VI mask, V yes, V no)   if_less(a, b, V yes, V no): a < b ? yes : no   if_most: a <= b
 *       the same where a comparison chooses: compilers take a mask through a vector there
 *   abs_v   min_v   max_v   (a < b ? a : b; b where either is NaN)
 *   T sum_v(V)   max_of(V)           across lanes, in a fixed order
 *   V sums_v(V r[LANES])             lane j: the sum across lanes of r[j]
 *   V exp_down_v(V)                  exp of x <= 0, for less; 0 where the result is below the normal range
 *   V add_product(c, a, b)           c + a b
 *   V sqrt_v  root_v (x^(1/2): of -inf it is inf)  exp_v  log_v  softplus_v
 *   V tanh_v  sigmoid_v  gelu_v  gelu_tanh_v  silu_v   and   <name>_grad_v(x) = f'(x)
 *   V relu_both_v(V x, V *slope), likewise of gelu, gelu_tanh, silu: f(x), and f'(x) for little more
 *
 * and over rows of n contiguous elements (y may be x):
 *
 *   void activation_row_f32(gm_function f, int64_t n, const float *x, float *y)             y = f(x)
 *   void activation_grad_row_f32(gm_function f, int64_t n, const float *x, const float *g, float *dx)
 *                                                                            dx = g f'(x), x before f
 *   activation_rows_f32, activation_grad_rows_f32: the same of several rows, each tensor with its own step
 *        f: none (copies) or an activation of functions.def (relu .. tanh)
 *   float  max_row_f32(int64_t n, const float *x)        -inf for n = 0; NaN only if all are NaN
 *   double sum_row_f32(int64_t n, const float *x)        f32 is summed in double
 *   void   add_columns_f32(int64_t n, const float *x, double *sum)                          sum += x
 *   double dot_row_f32(int64_t n, const float *x, const float *y)                           likewise
 *   double square_row_f32(int64_t n, const float *x)                                       dot_row of x and x
 *   float  exp_row_f32(int64_t n, const float *x, float scale, float shift, float *y, const float *next)
 *              y = exp(scale x - shift), returns the sum; softmax's inner loop, which asks memory for the next row
 *   double exp_sum_row_f32(int64_t n, const float *x, float shift)                  the sum of exp(x - shift) alone
 *   void   scale_row_f32(int64_t n, float a, const float *x, float *y)                      y = a x
 *   void   scale_past_f32(int64_t n, float a, const float *x, float *y)         likewise, past the caches (base.c)
 *   void   axpy_row_f32(int64_t n, float a, const float *x, float *y)                       y += a x
 *
 * Errors against long double, the same for f32 and f64, in units in the last place: exp 1.1, log 0.9, tanh 2.5,
 * sigmoid and silu 2.5, gelu 7 (also far in its left tail); gelu_tanh and the gradients, where terms cancel
 * near their zeros, within 8 epsilon max(1, |x|) absolutely. inf and NaN as libm's; results below the
 * normal range may be 0. On AVX-512 gelu in f32 has 6 units from -4.8 on, 25 down to -5.86, and is 0 below.
 * The polynomials are Chebyshev fits of our own: exp by argument reduction modulo ln 2; log by
 * 2 atanh(f / (2 + f)); tanh by exp(2 x) - 1, on AVX-512 by x + x^3 P(x^2) below 0.625; gelu by gelu_t.h. */
#include <math.h>
#if CPU_VECTOR == 64
#include "pieces.h"
#endif

typedef float    vf32 __attribute__((vector_size(CPU_VECTOR)));
typedef double   vf64 __attribute__((vector_size(CPU_VECTOR)));
typedef int32_t  vi32 __attribute__((vector_size(CPU_VECTOR)));
typedef int64_t  vi64 __attribute__((vector_size(CPU_VECTOR)));
typedef uint32_t unsigned_f32 __attribute__((vector_size(CPU_VECTOR)));
typedef uint64_t unsigned_f64 __attribute__((vector_size(CPU_VECTOR)));
/* half a vector of floats, widened to doubles in sums */
typedef float vh32 __attribute__((vector_size(CPU_VECTOR / 2)));

typedef vf32 any_f32 __attribute__((aligned(4), may_alias));

typedef vf64 any_f64 __attribute__((aligned(8), may_alias));
typedef vh32 any_half __attribute__((aligned(4), may_alias));

/* Elements of 16 bits, as many as a vector has of f32. */
#define NARROW_LANES (CPU_VECTOR / 4)
typedef uint16_t vnarrow __attribute__((vector_size(CPU_VECTOR / 2)));
typedef vnarrow  any_narrow __attribute__((aligned(1), may_alias));

#define CPU_INLINE static inline __attribute__((always_inline))
/* Of a function whose arrays must become registers: a build with sanitizers compiles the rest at -O1, where each access
 * to such an array goes to memory and is checked. */
#ifdef __SANITIZE_ADDRESS__
#define CPU_IN_REGISTERS __attribute__((optimize("O2")))
#else
#define CPU_IN_REGISTERS
#endif

CPU_INLINE vf32 splat_f32(float a) { return a - (vf32){0}; }
CPU_INLINE vf64 splat_f64(double a) { return a - (vf64){0}; }

/* c + a b. AVX2 has 16 registers: where a tile needs 15 of them, gcc 12 puts sums into others and some in memory. */
#if CPU_VECTOR == 32
CPU_INLINE vf32 add_product_f32(vf32 c, vf32 a, vf32 b)
{
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
}
CPU_INLINE vf64 add_product_f64(vf64 c, vf64 a, vf64 b)
{
    __asm__("vfmadd231pd %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
    return c;
}
#else
CPU_INLINE vf32 add_product_f32(vf32 c, vf32 a, vf32 b) { return c + a * b; }
CPU_INLINE vf64 add_product_f64(vf64 c, vf64 a, vf64 b) { return c + a * b; }
#endif

/* What differs between instruction sets: min, max, sqrt, rounding scale, masked loads. */
#if CPU_VECTOR == 64
CPU_INLINE vf32 min_v_f32(vf32 a, vf32 b) { return (vf32)_mm512_min_ps((__m512)a, (__m512)b); }
CPU_INLINE vf32 max_v_f32(vf32 a, vf32 b) { return (vf32)_mm512_max_ps((__m512)a, (__m512)b); }
CPU_INLINE vf32 sqrt_v_f32(vf32 a) { return (vf32)_mm512_sqrt_ps((__m512)a); }
CPU_INLINE vf64 min_v_f64(vf64 a, vf64 b) { return (vf64)_mm512_min_pd((__m512d)a, (__m512d)b); }
CPU_INLINE vf64 max_v_f64(vf64 a, vf64 b) { return (vf64)_mm512_max_pd((__m512d)a, (__m512d)b); }
CPU_INLINE vf64 sqrt_v_f64(vf64 a) { return (vf64)_mm512_sqrt_pd((__m512d)a); }
#define FIRST16(n) ((__mmask16)((1u << (n)) - 1))
#define FIRST8(n)  ((__mmask8)((1u << (n)) - 1))
CPU_INLINE vf32 load_n_f32(const float *p, int64_t n) { return (vf32)_mm512_maskz_loadu_ps(FIRST16(n), p); }
CPU_INLINE vf64 load_n_f64(const double *p, int64_t n) { return (vf64)_mm512_maskz_loadu_pd(FIRST8(n), p); }
CPU_INLINE void store_n_f32(float *p, int64_t n, vf32 v) { _mm512_mask_storeu_ps(p, FIRST16(n), (__m512)v); }
CPU_INLINE void store_n_f64(double *p, int64_t n, vf64 v) { _mm512_mask_storeu_pd(p, FIRST8(n), (__m512d)v); }
CPU_INLINE vf32 scale_v_f32(vf32 y, vf32 n) { return (vf32)_mm512_scalef_ps((__m512)y, (__m512)n); }
CPU_INLINE vf64 scale_v_f64(vf64 y, vf64 n) { return (vf64)_mm512_scalef_pd((__m512d)y, (__m512d)n); }
CPU_INLINE vf64 widen(vh32 a) { return (vf64)_mm512_cvtps_pd((__m256)a); }
CPU_INLINE vh32 narrow(vf64 a) { return (vh32)_mm512_cvtpd_ps((__m512d)a); }
CPU_INLINE vh32 low_half(vf32 a) { return (vh32)_mm512_castps512_ps256((__m512)a); }
CPU_INLINE vh32 high_half(vf32 a) { return (vh32)_mm512_extractf32x8_ps((__m512)a, 1); }
CPU_INLINE vf32 select_f32(vi32 m, vf32 a, vf32 b)
{
    return (vf32)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)m), (__m512)b, (__m512)a);
}
CPU_INLINE vf64 select_f64(vi64 m, vf64 a, vf64 b)
{
    return (vf64)_mm512_mask_blend_pd(_mm512_movepi64_mask((__m512i)m), (__m512d)b, (__m512d)a);
}
#define IF_V(name, predicate)                                               \
    CPU_INLINE vf32 name##_f32(vf32 a, vf32 b, vf32 yes, vf32 no)           \
    {                                                                       \
        __mmask16 m = _mm512_cmp_ps_mask((__m512)a, (__m512)b, predicate);  \
        return (vf32)_mm512_mask_blend_ps(m, (__m512)no, (__m512)yes);      \
    }                                                                       \
    CPU_INLINE vf64 name##_f64(vf64 a, vf64 b, vf64 yes, vf64 no)           \
    {                                                                       \
        __mmask8 m = _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, predicate); \
        return (vf64)_mm512_mask_blend_pd(m, (__m512d)no, (__m512d)yes);    \
    }
IF_V(if_less, _CMP_LT_OQ)
IF_V(if_most, _CMP_LE_OQ)
#elif CPU_VECTOR == 32
CPU_INLINE vi32 first_f32(int64_t n) { return (vi32){0, 1, 2, 3, 4, 5, 6, 7} < (vi32){0} + (int32_t)n; }
CPU_INLINE vi64 first_f64(int64_t n) { return (vi64){0, 1, 2, 3} < (vi64){0} + n; }
CPU_INLINE vf32 min_v_f32(vf32 a, vf32 b) { return (vf32)_mm256_min_ps((__m256)a, (__m256)b); }
CPU_INLINE vf32 max_v_f32(vf32 a, vf32 b) { return (vf32)_mm256_max_ps((__m256)a, (__m256)b); }
CPU_INLINE vf32 sqrt_v_f32(vf32 a) { return (vf32)_mm256_sqrt_ps((__m256)a); }
CPU_INLINE vf64 min_v_f64(vf64 a, vf64 b) { return (vf64)_mm256_min_pd((__m256d)a, (__m256d)b); }
CPU_INLINE vf64 max_v_f64(vf64 a, vf64 b) { return (vf64)_mm256_max_pd((__m256d)a, (__m256d)b); }
CPU_INLINE vf64 sqrt_v_f64(vf64 a) { return (vf64)_mm256_sqrt_pd((__m256d)a); }
CPU_INLINE vf32 load_n_f32(const float *p, int64_t n) { return (vf32)_mm256_maskload_ps(p, (__m256i)first_f32(n)); }
CPU_INLINE vf64 load_n_f64(const double *p, int64_t n) { return (vf64)_mm256_maskload_pd(p, (__m256i)first_f64(n)); }
CPU_INLINE void store_n_f32(float *p, int64_t n, vf32 v) { _mm256_maskstore_ps(p, (__m256i)first_f32(n), (__m256)v); }
CPU_INLINE void store_n_f64(double *p, int64_t n, vf64 v) { _mm256_maskstore_pd(p, (__m256i)first_f64(n), (__m256d)v); }
CPU_INLINE vf64 widen(vh32 a) { return (vf64)_mm256_cvtps_pd((__m128)a); }
CPU_INLINE vh32 narrow(vf64 a) { return (vh32)_mm256_cvtpd_ps((__m256d)a); }
CPU_INLINE vh32 low_half(vf32 a) { return (vh32)_mm256_castps256_ps128((__m256)a); }
CPU_INLINE vh32 high_half(vf32 a) { return (vh32)_mm256_extractf128_ps((__m256)a, 1); }
#else
CPU_INLINE vf32 load_n_f32(const float *p, int64_t n)
{
    vf32 v = {0};
    for (int64_t i = 0; i < n; i++) v[i] = p[i];
    return v;
}
CPU_INLINE vf64 load_n_f64(const double *p, int64_t n) { return n ? (vf64){p[0], 0} : (vf64){0}; }
CPU_INLINE void store_n_f32(float *p, int64_t n, vf32 v)
{
    for (int64_t i = 0; i < n; i++) p[i] = v[i];
}
CPU_INLINE void store_n_f64(double *p, int64_t n, vf64 v)
{
    if (n) p[0] = v[0];
}
CPU_INLINE vf64 widen(vh32 a) { return (vf64){a[0], a[1]}; }
CPU_INLINE vh32 narrow(vf64 a) { return (vh32){(float)a[0], (float)a[1]}; }
CPU_INLINE vh32 low_half(vf32 a) { return (vh32){a[0], a[1]}; }
CPU_INLINE vh32 high_half(vf32 a) { return (vh32){a[2], a[3]}; }
#if defined(__x86_64__)
CPU_INLINE vf32 min_v_f32(vf32 a, vf32 b) { return (vf32)_mm_min_ps((__m128)a, (__m128)b); }
CPU_INLINE vf32 max_v_f32(vf32 a, vf32 b) { return (vf32)_mm_max_ps((__m128)a, (__m128)b); }
CPU_INLINE vf32 sqrt_v_f32(vf32 a) { return (vf32)_mm_sqrt_ps((__m128)a); }
CPU_INLINE vf64 min_v_f64(vf64 a, vf64 b) { return (vf64)_mm_min_pd((__m128d)a, (__m128d)b); }
CPU_INLINE vf64 max_v_f64(vf64 a, vf64 b) { return (vf64)_mm_max_pd((__m128d)a, (__m128d)b); }
CPU_INLINE vf64 sqrt_v_f64(vf64 a) { return (vf64)_mm_sqrt_pd((__m128d)a); }
#else
CPU_INLINE vf32 sqrt_v_f32(vf32 a) { return (vf32){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
CPU_INLINE vf64 sqrt_v_f64(vf64 a) { return (vf64){sqrt(a[0]), sqrt(a[1])}; }
#endif
#endif

#if CPU_VECTOR != 64
#if CPU_VECTOR == 32
CPU_INLINE vf32 select_f32(vi32 m, vf32 a, vf32 b) { return (vf32)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)m); }
CPU_INLINE vf64 select_f64(vi64 m, vf64 a, vf64 b)
{
    return (vf64)_mm256_blendv_pd((__m256d)b, (__m256d)a, (__m256d)m);
}
#else
CPU_INLINE vf32 select_f32(vi32 m, vf32 a, vf32 b) { return (vf32)((m & (vi32)a) | (~m & (vi32)b)); }
CPU_INLINE vf64 select_f64(vi64 m, vf64 a, vf64 b) { return (vf64)((m & (vi64)a) | (~m & (vi64)b)); }
#endif
CPU_INLINE vf32 if_less_f32(vf32 a, vf32 b, vf32 yes, vf32 no) { return select_f32(a < b, yes, no); }
CPU_INLINE vf64 if_less_f64(vf64 a, vf64 b, vf64 yes, vf64 no) { return select_f64(a < b, yes, no); }
CPU_INLINE vf32 if_most_f32(vf32 a, vf32 b, vf32 yes, vf32 no) { return select_f32(a <= b, yes, no); }
CPU_INLINE vf64 if_most_f64(vf64 a, vf64 b, vf64 yes, vf64 no) { return select_f64(a <= b, yes, no); }
#endif
#if !defined(__x86_64__)
CPU_INLINE vf32 min_v_f32(vf32 a, vf32 b) { return select_f32(a < b, a, b); }
CPU_INLINE vf32 max_v_f32(vf32 a, vf32 b) { return select_f32(a > b, a, b); }
CPU_INLINE vf64 min_v_f64(vf64 a, vf64 b) { return select_f64(a < b, a, b); }
CPU_INLINE vf64 max_v_f64(vf64 a, vf64 b) { return select_f64(a > b, a, b); }
#endif

/* The rounding error of s = a * b: a b = s + low. (Written a * b - s, the compiler may see s - s.) */
#if CPU_VECTOR == 64
CPU_INLINE vf32 product_low_f32(vf32 a, vf32 b, vf32 s)
{
    return (vf32)_mm512_fmsub_ps((__m512)a, (__m512)b, (__m512)s);
}
CPU_INLINE vf64 product_low_f64(vf64 a, vf64 b, vf64 s)
{
    return (vf64)_mm512_fmsub_pd((__m512d)a, (__m512d)b, (__m512d)s);
}
#elif defined(__FMA__) && CPU_VECTOR == 32
CPU_INLINE vf32 product_low_f32(vf32 a, vf32 b, vf32 s)
{
    return (vf32)_mm256_fmsub_ps((__m256)a, (__m256)b, (__m256)s);
}
CPU_INLINE vf64 product_low_f64(vf64 a, vf64 b, vf64 s)
{
    return (vf64)_mm256_fmsub_pd((__m256d)a, (__m256d)b, (__m256d)s);
}
#else /* Dekker's product: a and b cut in halves whose products are exact */
CPU_INLINE vf32 product_low_f32(vf32 a, vf32 b, vf32 s)
{
    vf32 h = (vf32)((vi32)a & (int32_t)0xfffff000), l = a - h, g = (vf32)((vi32)b & (int32_t)0xfffff000), m = b - g;
    return (h * g - s) + (h * m + l * g) + l * m;
}
CPU_INLINE vf64 product_low_f64(vf64 a, vf64 b, vf64 s)
{
    const int64_t front = (int64_t)0xfffffffff8000000;
    vf64          h = (vf64)((vi64)a & front), l = a - h, g = (vf64)((vi64)b & front), m = b - g;
    return (h * g - s) + (h * m + l * g) + l * m;
}
#endif

/* A store past the caches (base.c), to an address that vectors divide. */
#if CPU_VECTOR == 64
CPU_INLINE void store_past_f32(float *p, vf32 v) { _mm512_stream_ps(p, (__m512)v); }
CPU_INLINE void store_past_f64(double *p, vf64 v) { _mm512_stream_pd(p, (__m512d)v); }
#elif CPU_VECTOR == 32
CPU_INLINE void store_past_f32(float *p, vf32 v) { _mm256_stream_ps(p, (__m256)v); }
CPU_INLINE void store_past_f64(double *p, vf64 v) { _mm256_stream_pd(p, (__m256d)v); }
#elif defined(__x86_64__)
CPU_INLINE void store_past_f32(float *p, vf32 v) { _mm_stream_ps(p, (__m128)v); }
CPU_INLINE void store_past_f64(double *p, vf64 v) { _mm_stream_pd(p, (__m128d)v); }
#else
CPU_INLINE void store_past_f32(float *p, vf32 v) { *(any_f32 *)p = v; }
CPU_INLINE void store_past_f64(double *p, vf64 v) { *(any_f64 *)p = v; }
#endif

CPU_INLINE double sum_v_wide(vf64 v)
{
    double s = 0;
    for (int i = 0; i < CPU_VECTOR / 16; i++) s += v[i] + v[i + CPU_VECTOR / 16];
    return s;
}

/* On AVX2, long sums read at four places so many elements apart, as processors look ahead within a page only. On a
 * Zen 3 they take a fifth less time so. */
#define SUM_PLACE 16384

#define AS 32
#include "as.h"
#include "vector_t.h"
#include "lanes_t.h"
#include "memory_t.h"
#include "rows_t.h"
#define AS 64
#include "as.h"
#include "vector_t.h"
#include "lanes_t.h"
#include "memory_t.h"
#include "rows_t.h"
#include "vector_bf16.h"
#include "vector_f16.h"
#define AS 16
#include "as.h"
#include "vector_narrow_t.h"
#include "memory_t.h"
#include "rows_t.h"
#define AS 17
#include "as.h"
#include "vector_narrow_t.h"
#include "memory_t.h"
#include "rows_t.h"
#define AS 0
#include "as.h"
