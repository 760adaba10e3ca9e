/* dtype.cuh - the floating-point dtypes in kernels. A kernel is written once, as a template over the type T of its
 * elements: float, double, gm_bf16 or gm_f16.
 *
 *     template <class T, class R = gm_real<T>> GM_DEVICE void gm_scale(const gm_scale_args a)
 *     {
 *         const T *x = (const T *)a.x;
 *         GM_GRID_LOOP(i, a.n) ((T *)a.y)[i] = gm_put<T>((R)a.by * gm_get(x[i]));
 *     }
 *     GM_KERNELS(gm_scale, gm_scale_args)     gm_scale_f32, gm_scale_bf16, gm_scale_f16, gm_scale_f64: the names that
 *                                             the host asks for (gm_cuda_name)
 *
 * R = gm_real<T> is the type of computations and sums: double for double, else float. V = gm_lanes<T> is the number of
 * elements in 16 bytes. */
#ifndef GM_CUDA_DTYPE_CUH
#define GM_CUDA_DTYPE_CUH

#include <type_traits>
#ifndef GM_EMULATED
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include "kernel.cuh"

template <class T> using gm_real = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T> constexpr int  gm_lanes = 16 / sizeof(T);
template <class T> constexpr bool gm_is_short = sizeof(T) == 2;

#define GM_KERNELS(name, type) GM_KERNELS_AS(name, name, type)
#define GM_KERNELS_AS(name, function, type)                \
    GM_KERNEL(name##_f32, type) { function<float>(a); }    \
    GM_KERNEL(name##_bf16, type) { function<gm_bf16>(a); } \
    GM_KERNEL(name##_f16, type) { function<gm_f16>(a); }   \
    GM_KERNEL(name##_f64, type) { function<double>(a); }

/* ---- 16-bit floats, as bits: the same rounding as kernels/dtype.h (nearest, ties to even; NaN stays NaN) ---- */

struct gm_bf16 {
    uint16_t bits;
};
struct gm_f16 {
    uint16_t bits;
};

GM_DEVICE float gm_as_float(uint32_t u)
{
    union {
        uint32_t u;
        float    f;
    } v;
    v.u = u;
    return v.f;
}

GM_DEVICE uint32_t gm_as_bits(float f)
{
    union {
        uint32_t u;
        float    f;
    } v;
    v.f = f;
    return v.u;
}

/* ---- elements in the type of arithmetic, and back: through the GPU's own conversions, which the emulation has in C */

GM_DEVICE float  gm_get(float x) { return x; }
GM_DEVICE double gm_get(double x) { return x; }
GM_DEVICE float  gm_get(gm_bf16 x) { return gm_as_float((uint32_t)x.bits << 16); }

#ifdef GM_EMULATED
GM_DEVICE gm_bf16 gm_to_bf16(float f)
{
    const uint32_t u = gm_as_bits(f);
    return {(u & 0x7fffffffu) > 0x7f800000u ? (uint16_t)((u >> 16) | 0x40)
                                            : (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16)};
}
GM_DEVICE float  gm_get(gm_f16 x) { return gm_emulated_get_f16(x.bits); }
GM_DEVICE gm_f16 gm_to_f16(float f) { return {gm_emulated_put_f16(f)}; }
#else
GM_DEVICE gm_bf16 gm_to_bf16(float f) { return {__bfloat16_as_ushort(__float2bfloat16_rn(f))}; }
GM_DEVICE float   gm_get(gm_f16 x) { return __half2float(__ushort_as_half(x.bits)); }
GM_DEVICE gm_f16  gm_to_f16(float f) { return {__half_as_ushort(__float2half_rn(f))}; }
#endif

template <class T> GM_DEVICE T gm_put(gm_real<T> x)
{
    if constexpr (std::is_same_v<T, gm_bf16>) return gm_to_bf16(x);
    else if constexpr (std::is_same_v<T, gm_f16>) return gm_to_f16(x);
    else return x;
}

/* ---- the elements of 16 bytes ---- */

template <class T> union gm_pack_of {
    gm_vector v;
    T         x[gm_lanes<T>];
};

template <class T> GM_DEVICE void gm_unpack(gm_vector v, gm_real<T> *x)
{
    if constexpr (gm_is_short<T>) { /* by shifts, which take fewer registers than the union */
        for (int i = 0; i < 8; i++) x[i] = gm_get(T{(uint16_t)(i % 2 ? v.word[i / 2] >> 16 : v.word[i / 2])});
    } else if constexpr (std::is_same_v<T, float>) {
        for (int i = 0; i < 4; i++) x[i] = gm_as_float(v.word[i]);
    } else {
        gm_pack_of<T> u;
        u.v = v;
        x[0] = u.x[0];
        x[1] = u.x[1];
    }
}

template <class T> GM_DEVICE gm_vector gm_pack(const gm_real<T> *x)
{
    gm_pack_of<T> u;
    if constexpr (gm_is_short<T>) {
        for (int i = 0; i < 4; i++)
            u.v.word[i] = gm_put<T>(x[2 * i]).bits | (uint32_t)gm_put<T>(x[2 * i + 1]).bits << 16;
    } else if constexpr (std::is_same_v<T, float>) {
        for (int i = 0; i < 4; i++) u.v.word[i] = gm_as_bits(x[i]);
    } else {
        u.x[0] = x[0];
        u.x[1] = x[1];
    }
    return u.v;
}

/* ---- the GPU's own functions: 2 to the power of x, within 2 units of the last place, and 0 where that is below the
 * smallest normal number; 1 / x within a unit ---- */

#ifdef GM_EMULATED
GM_DEVICE float gm_exp2_near(float x) { return exp2f(x); }
GM_DEVICE float gm_reciprocal_near(float x) { return 1 / x; }
#else
GM_DEVICE float   gm_exp2_near(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

GM_DEVICE float gm_reciprocal_near(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

/* exp(x) of x <= 0. For elements T of 16 bits, two instructions: off by up to 2 + 1.2 |x| units in the last place of
 * f32, and 0 below 2^-126. For others, the function of the CUDA library, which takes some ten. */
template <class T> GM_DEVICE gm_real<T> gm_exp_below(gm_real<T> x)
{
    if constexpr (gm_is_short<T>) return gm_exp2_near(x * 1.44269504088896340736f);
    else return exp(x);
}

/* ---- the elementwise maximum of two packs; NaN where both are ---- */

template <class T> GM_DEVICE gm_vector gm_pack_max(gm_vector u, gm_vector v)
{
#ifndef GM_EMULATED
    if constexpr (gm_is_short<T>) {
        for (int i = 0; i < 4; i++) {
            if constexpr (std::is_same_v<T, gm_bf16>)
                asm("max.bf16x2 %0, %1, %2;" : "=r"(u.word[i]) : "r"(u.word[i]), "r"(v.word[i]));
            else asm("max.f16x2 %0, %1, %2;" : "=r"(u.word[i]) : "r"(u.word[i]), "r"(v.word[i]));
        }
        return u;
    }
#endif
    gm_real<T> x[gm_lanes<T>], y[gm_lanes<T>];
    gm_unpack<T>(u, x);
    gm_unpack<T>(v, y);
    GM_UNROLL for (int j = 0; j < gm_lanes<T>; j++) x[j] = fmax(x[j], y[j]);
    return gm_pack<T>(x);
}

#endif
