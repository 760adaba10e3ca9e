/* dtype.cuh - the dtypes of arithmetic in kernels. A kernel is written once, as a template over the type T of elements:
 * float, double, gm_bf16 or gm_f16.
 *
 *     gm_real<T>   what it is worked on and summed up in: double for double, else float
 *     gm_lanes<T>  how many elements 16 bytes have
 *     GM_KERNELS(gm_scale, gm_scale_args)    makes of `template <class T> void gm_scale(const gm_scale_args &a)` the
 *                  kernels that the host asks for by name: gm_scale_f32, gm_scale_bf16, gm_scale_f16, gm_scale_f64
 *
 * In templates the names are T, R = gm_real<T> and V = gm_lanes<T>. */
#ifndef GM_CUDA_DTYPE_CUH
#define GM_CUDA_DTYPE_CUH

#include <type_traits>

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
#define GM_KERNELS_BOUND(name, type, threads, blocks)                         \
    GM_KERNEL_BOUND(name##_f32, type, threads, blocks) { name<float>(a); }    \
    GM_KERNEL_BOUND(name##_bf16, type, threads, blocks) { name<gm_bf16>(a); } \
    GM_KERNEL_BOUND(name##_f16, type, threads, blocks) { name<gm_f16>(a); }   \
    GM_KERNEL_BOUND(name##_f64, type, threads, blocks) { name<double>(a); }

/* ---- elements in the type of arithmetic, and back ---- */

GM_DEVICE float  gm_get(float x) { return x; }
GM_DEVICE double gm_get(double x) { return x; }
GM_DEVICE float  gm_get(gm_bf16 x) { return gm_get_bf16(x); }
GM_DEVICE float  gm_get(gm_f16 x) { return gm_get_f16(x); }

template <class T> GM_DEVICE T gm_put(gm_real<T> x)
{
    if constexpr (std::is_same_v<T, gm_bf16>) return gm_put_bf16(x);
    else if constexpr (std::is_same_v<T, gm_f16>) return gm_put_f16(x);
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

/* ---- sums and maxima of a warp and of a block, in one fixed order; R: float or double ---- */

template <class R> GM_DEVICE R gm_warp_sum(R v)
{
    for (int lanes = GM_WARP / 2; lanes; lanes /= 2) v += gm_shuffle_xor(v, lanes);
    return v;
}

template <class R> GM_DEVICE R gm_warp_max(R v)
{
    for (int lanes = GM_WARP / 2; lanes; lanes /= 2) {
        R other = gm_shuffle_xor(v, lanes);
        v = other > v || other != other ? other : v;
    }
    return v;
}

/* All threads of the block get the result. scratch: 32 elements of shared memory, not used by anything else until the
 * next GM_SYNC. */
template <class R> GM_DEVICE R gm_block_join(R v, R *scratch, bool is_max)
{
    int warps = (gm_block_size + GM_WARP - 1) / GM_WARP;
    v = is_max ? gm_warp_max(v) : gm_warp_sum(v);
    GM_SYNC();
    if (gm_thread % GM_WARP == 0) scratch[gm_thread / GM_WARP] = v;
    GM_SYNC();
    v = scratch[0];
    for (int i = 1; i < warps; i++) {
        R other = scratch[i];
        if (!is_max) v += other;
        else if (other > v || other != other) v = other;
    }
    return v;
}
template <class R> GM_DEVICE R gm_block_sum(R v, R *scratch) { return gm_block_join(v, scratch, false); }
template <class R> GM_DEVICE R gm_block_max(R v, R *scratch) { return gm_block_join(v, scratch, true); }

#endif
