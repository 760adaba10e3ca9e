/* kernel.cuh - what every kernel of this folder is written in: CUDA C that nvcc compiles for GPUs, and that the
 * emulation of spec/cuda compiles for the CPU, where specs compare it with the plain loops of kernels/ref.
 *
 *     typedef struct gm_scale_args { const float *x; float *y; int64_t n; float by; } gm_scale_args;      // args.h
 *     GM_KERNEL(gm_scale, gm_scale_args) { GM_GRID_LOOP(i, a.n) a.y[i] = a.by * a.x[i]; }
 *
 * Rules, so that both are possible:
 *   - a kernel takes one struct by value, `a`, at most 4,000 bytes of plain C (declared in *_args.h, which host code in
 *     C includes too);
 *   - shared memory is one array, GM_SHARED(type, name), its size given at launch; no static __shared__;
 *   - threads of a block meet at GM_SYNC(), which all of them reach; lanes of a warp exchange through gm_shuffle_xor
 *     and gm_shuffle alone, all 32 of them;
 *   - no atomics on floats: sums have one order, so that the same bits come out each time. Integer atomics: gm_add_i32;
 *   - 16-byte accesses where rows are aligned (gm_vector), with a path for those that are not;
 *   - dtype variants by including a *_t.cuh once for each type: no C++ templates, classes or references.
 * Sums of 16-bit and f32 values are in f32, of f64 in f64. Indices are int64_t wherever n may pass 2^31. */
#ifndef GM_KERNEL_CUH
#define GM_KERNEL_CUH

#include <math.h>
#include <stdint.h>

#ifdef GM_EMULATED
#include "emulate.h" /* spec/cuda */
#else
#define GM_KERNEL(name, type)    extern "C" __global__ void name(const __grid_constant__ type a)
#define GM_KERNEL_BOUND(name, type, threads, blocks) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ type a)
#define GM_DEVICE                static __device__ __forceinline__
#define GM_CONSTANT              static __device__ const
extern __shared__ __align__(16) unsigned char gm_shared_[];
#define GM_SHARED(type, name)    type *name = (type *)gm_shared_
#define GM_SYNC()                __syncthreads()
#define gm_thread                ((int)threadIdx.x)
#define gm_block_size            ((int)blockDim.x)
#define gm_block_x               ((int64_t)blockIdx.x)
#define gm_block_y               ((int64_t)blockIdx.y)
#define gm_block_z               ((int64_t)blockIdx.z)
#define gm_grid_x                ((int64_t)gridDim.x)
#define gm_shuffle_xor(v, lanes) __shfl_xor_sync(0xffffffffu, (v), (lanes))
#define gm_shuffle(v, lane)      __shfl_sync(0xffffffffu, (v), (lane))
#define gm_add_i32(p, v)         atomicAdd((p), (v))
#endif

/* GM_KERNEL with a name or a type that is itself a macro; GM_KERNEL_BOUND: whose registers let so many blocks of so
 * many threads run on a multiprocessor at once. GM_UNROLL: before a loop whose arrays shall be registers;
 * GM_ROLLED: before one that is to stay a loop; GM_UNROLLED(n): before one that is to have n turns under way. */
#define GM_KERNEL_NAMED(name, type) GM_KERNEL(name, type)
#ifdef GM_EMULATED
#define GM_KERNEL_BOUND(name, type, threads, blocks) GM_KERNEL(name, type)
#define GM_UNROLL
#define GM_ROLLED
#define GM_UNROLLED(n)
#else
#define GM_UNROLL _Pragma("unroll")
#define GM_ROLLED _Pragma("unroll 1")
#define GM_UNROLLED(n) GM_PRAGMA(unroll n)
#define GM_PRAGMA(text) _Pragma(#text)
#endif

/* p, which came out of device memory, is an address of device memory, or NULL: said, it need not be asked at each
 * access. */
#ifdef GM_EMULATED
#define GM_GLOBAL(p) (p)
#else
static __device__ __forceinline__ void *gm_global_(void *p)
{
    __builtin_assume(__isGlobal(p));
    return p;
}
#define GM_GLOBAL(p) gm_global_(p)
#endif

/* The n elements of an array one place further down, `next` behind them: for loops over a pack that shall stay loops.
 * Unrolled they would take the registers of the path that counts; a variable index would put the pack into local
 * memory, and that path would wait for it. */
#define GM_TURN(x, n, next)                                                                \
    do {                                                                                   \
        __typeof__((x)[0]) next_ = (next);                                                 \
        GM_UNROLL for (int turn_ = 0; turn_ < (n)-1; turn_++) (x)[turn_] = (x)[turn_ + 1]; \
        (x)[(n)-1] = next_;                                                                \
    } while (0)

/* What kernels share with the CPU's code (philox.h, sample.h) is compiled for the GPU. */
#ifndef GM_EMULATED
#define GM_INLINE GM_DEVICE
#endif

/* i from this thread's first to the last below n, in steps of the grid. */
#define GM_GRID_LOOP(i, n) \
    for (int64_t i = gm_block_x * gm_block_size + gm_thread, i##_n = (n); i < i##_n; i += gm_grid_x * gm_block_size)

/* ---- 16-bit floats, as bits: the same rounding as kernels/dtype.h (nearest, ties to even; NaN stays NaN) ---- */

typedef struct gm_bf16 {
    uint16_t bits;
} gm_bf16;
typedef struct gm_f16 {
    uint16_t bits;
} gm_f16;

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

GM_DEVICE float gm_from_bf16(gm_bf16 h) { return gm_as_float((uint32_t)h.bits << 16); }

#ifdef GM_EMULATED
GM_DEVICE gm_bf16 gm_to_bf16(float f)
{
    uint32_t u = gm_as_bits(f);
    gm_bf16  h;
    h.bits = (u & 0x7fffffffu) > 0x7f800000u ? (uint16_t)((u >> 16) | 0x40)
                                             : (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
    return h;
}
#else
#include <cuda_bf16.h>
GM_DEVICE gm_bf16 gm_to_bf16(float f) /* one instruction; the lines above cost many, and registers */
{
    gm_bf16 h;
    h.bits = __bfloat16_as_ushort(__float2bfloat16_rn(f));
    return h;
}
#endif

/* Values of a type T as its type of arithmetic and back: gm_get_f32(x), gm_put_bf16(v), ... by name, so that a *_t.cuh
 * can paste its type's name to them. */
GM_DEVICE float   gm_get_f32(float x) { return x; }
GM_DEVICE float   gm_put_f32(float x) { return x; }
GM_DEVICE double  gm_get_f64(double x) { return x; }
GM_DEVICE double  gm_put_f64(double x) { return x; }
GM_DEVICE float   gm_get_bf16(gm_bf16 x) { return gm_from_bf16(x); }
GM_DEVICE gm_bf16 gm_put_bf16(float x) { return gm_to_bf16(x); }

/* f16: through the GPU's own conversions; the emulation has them in C. */
#ifndef GM_EMULATED
#include <cuda_fp16.h>
GM_DEVICE float  gm_get_f16(gm_f16 x) { return __half2float(__ushort_as_half(x.bits)); }
GM_DEVICE gm_f16 gm_put_f16(float x)
{
    gm_f16 h;
    h.bits = __half_as_ushort(__float2half_rn(x));
    return h;
}
#else
GM_DEVICE float  gm_get_f16(gm_f16 x) { return gm_emulated_get_f16(x.bits); }
GM_DEVICE gm_f16 gm_put_f16(float x)
{
    gm_f16 h;
    h.bits = gm_emulated_put_f16(x);
    return h;
}
#endif

/* ---- 16 bytes at once: what a thread should load and store, at addresses that are multiples of 16 ---- */

#ifdef GM_EMULATED
#define GM_ALIGNED(bytes) __attribute__((may_alias, aligned(bytes)))
#else
#define GM_ALIGNED(bytes) __align__(bytes)
#endif

typedef struct GM_ALIGNED(16) gm_vector {
    uint32_t word[4];
} gm_vector;

/* Elements of a type in a gm_vector: gm_unpack_bf16(v, x) gives x[GM_LANES_bf16] in the type of arithmetic. */
#define GM_LANES_f32  4
#define GM_LANES_f64  2
#define GM_LANES_bf16 8
#define GM_LANES_f16  8

GM_DEVICE gm_vector gm_load_vector(const void *p) { return *(const gm_vector *)p; }
GM_DEVICE void      gm_store_vector(void *p, gm_vector v) { *(gm_vector *)p = v; }

GM_DEVICE void gm_unpack_f32(gm_vector v, float *x)
{
    for (int i = 0; i < 4; i++) x[i] = gm_as_float(v.word[i]);
}

GM_DEVICE gm_vector gm_pack_f32(const float *x)
{
    gm_vector v;
    for (int i = 0; i < 4; i++) v.word[i] = gm_as_bits(x[i]);
    return v;
}

GM_DEVICE void gm_unpack_f64(gm_vector v, double *x)
{
    union {
        gm_vector v;
        double    x[2];
    } u;
    u.v = v;
    x[0] = u.x[0];
    x[1] = u.x[1];
}

GM_DEVICE gm_vector gm_pack_f64(const double *x)
{
    union {
        gm_vector v;
        double    x[2];
    } u;
    u.x[0] = x[0];
    u.x[1] = x[1];
    return u.v;
}

#define GM_PACKS_OF_16_BITS(type)                                                                               \
    GM_DEVICE void gm_unpack_##type(gm_vector v, float *x)                                                      \
    {                                                                                                           \
        for (int i = 0; i < 8; i++) {                                                                           \
            gm_##type h;                                                                                        \
            h.bits = (uint16_t)(i % 2 ? v.word[i / 2] >> 16 : v.word[i / 2]);                                   \
            x[i] = gm_get_##type(h);                                                                            \
        }                                                                                                       \
    }                                                                                                           \
    GM_DEVICE gm_vector gm_pack_##type(const float *x)                                                          \
    {                                                                                                           \
        gm_vector v;                                                                                            \
        for (int i = 0; i < 4; i++)                                                                             \
            v.word[i] = gm_put_##type(x[2 * i]).bits | (uint32_t)gm_put_##type(x[2 * i + 1]).bits << 16;        \
        return v;                                                                                               \
    }

GM_PACKS_OF_16_BITS(bf16)
GM_PACKS_OF_16_BITS(f16)

/* ---- sums and maxima of a warp and of a block, in one fixed order ---- */

#define GM_WARP 32

/* For type in f32, f64: gm_warp_sum_f32(v), gm_warp_max_f32(v), gm_block_sum_f32(v, scratch): all threads get the
 * result; scratch: 32 elements of shared memory, not used by anything else until the next GM_SYNC. */
#define GM_JOINS(type, name)                                                                    \
    GM_DEVICE type gm_warp_sum_##name(type v)                                                   \
    {                                                                                           \
        for (int lanes = GM_WARP / 2; lanes; lanes /= 2) v += gm_shuffle_xor(v, lanes);         \
        return v;                                                                               \
    }                                                                                           \
    GM_DEVICE type gm_warp_max_##name(type v)                                                   \
    {                                                                                           \
        for (int lanes = GM_WARP / 2; lanes; lanes /= 2) {                                      \
            type other = gm_shuffle_xor(v, lanes);                                              \
            v = other > v || other != other ? other : v;                                        \
        }                                                                                       \
        return v;                                                                               \
    }                                                                                           \
    GM_DEVICE type gm_block_join_##name(type v, type *scratch, int is_max)                      \
    {                                                                                           \
        int warps = (gm_block_size + GM_WARP - 1) / GM_WARP;                                    \
        v = is_max ? gm_warp_max_##name(v) : gm_warp_sum_##name(v);                             \
        GM_SYNC();                                                                              \
        if (gm_thread % GM_WARP == 0) scratch[gm_thread / GM_WARP] = v;                         \
        GM_SYNC();                                                                              \
        v = scratch[0];                                                                         \
        for (int i = 1; i < warps; i++) {                                                       \
            type other = scratch[i];                                                            \
            if (!is_max) v += other;                                                            \
            else if (other > v || other != other) v = other;                                    \
        }                                                                                       \
        return v;                                                                               \
    }                                                                                           \
    GM_DEVICE type gm_block_sum_##name(type v, type *s) { return gm_block_join_##name(v, s, 0); } \
    GM_DEVICE type gm_block_max_##name(type v, type *s) { return gm_block_join_##name(v, s, 1); }

GM_JOINS(float, f32)
GM_JOINS(double, f64)

#endif
