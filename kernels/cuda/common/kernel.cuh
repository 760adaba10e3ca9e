/* kernel.cuh - the language of all kernels: CUDA C++ that nvcc compiles for GPUs and g++ for the CPU. On the CPU the
 * emulation of spec/cuda runs the kernels, and specs compare them with the plain loops of kernels/ref. Both compilers
 * compile C++17.
 *
 *     typedef struct gm_scale_args { const float *x; float *y; int64_t n; float by; } gm_scale_args;      // args.h
 *     GM_KERNEL(gm_scale, gm_scale_args) { GM_GRID_LOOP(i, a.n) a.y[i] = a.by * a.x[i]; }
 *
 * Kernels of several dtypes are templates (dtype.cuh).
 *
 * Rules that make both possible:
 *   - a kernel takes one struct by value, `a`, at most 4,000 bytes of plain C (declared in *_args.h, which host code in
 *     C includes too);
 *   - shared memory is one array, GM_SHARED(type, name), its size given at launch; no static __shared__;
 *   - threads of a block meet at GM_SYNC(), which all of them must reach; lanes of a warp exchange values only through
 *     gm_shuffle_xor and gm_shuffle, which all 32 lanes must call;
 *   - there are no atomics on floats: sums have one order, so that the bits are the same each time. Integers have the
 *     atomic gm_add_i32;
 *   - accesses have 16 bytes where rows are aligned (gm_vector), and there is a path for rows that are not;
 *   - kernels use templates, `if constexpr`, lambdas and references to arrays; no classes with methods, and of the
 *     standard library only <type_traits>. A template that is a kernel takes `a` by value, and a lambda captures its
 *     numbers by value: references cost registers, or put the numbers into local memory.
 * Sums of 16-bit and f32 values are in f32, of f64 in f64. Indices are int64_t wherever n may pass 2^31. */
#ifndef GM_KERNEL_CUH
#define GM_KERNEL_CUH

#include <math.h>
#include <stdint.h>

#ifdef GM_EMULATED
#include "emulate.h" /* spec/cuda */
#else
#define GM_KERNEL(name, type) extern "C" __global__ void name(const __grid_constant__ type a)
#define GM_KERNEL_BOUND(name, type, threads, blocks) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ type a)
#define GM_DEVICE                static __device__ __forceinline__
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

/* GM_KERNEL_BOUND: a kernel whose registers let so many blocks of so many threads run on a multiprocessor at once.
 * GM_UNROLL: before a loop whose arrays shall be registers; GM_ROLLED: before one that is to stay a loop;
 * GM_UNROLLED(n): before one that is to have n turns under way. */
#ifdef GM_EMULATED
#define GM_KERNEL_BOUND(name, type, threads, blocks) GM_KERNEL(name, type)
#define GM_UNROLL
#define GM_ROLLED
#define GM_UNROLLED(n)
#else
#define GM_UNROLL       _Pragma("unroll")
#define GM_ROLLED       _Pragma("unroll 1")
#define GM_UNROLLED(n)  GM_PRAGMA(unroll n)
#define GM_PRAGMA(text) _Pragma(#text)
#endif

/* p, which came out of device memory, is an address of device memory, or NULL: said, it need not be asked at each
 * access. */
GM_DEVICE void *gm_global(void *p)
{
#ifndef GM_EMULATED
    __builtin_assume(__isGlobal(p));
#endif
    return p;
}

/* The n elements of x one place further down, `next` behind them: for loops over a pack that shall stay loops. Unrolled
 * they would take the registers of the path that counts; a variable index would put the pack into local memory, and
 * that path would wait for it. */
template <int n, class E, class N> GM_DEVICE void gm_push(E *x, N next)
{
    const E last = (E)next;
    GM_UNROLL for (int i = 0; i < n - 1; i++) x[i] = x[i + 1];
    x[n - 1] = last;
}

/* What kernels share with the CPU's code (philox.h, sample.h) is compiled for the GPU. */
#ifndef GM_EMULATED
#define GM_INLINE GM_DEVICE
#endif

/* i from this thread's first to the last below n, in steps of the grid. */
#define GM_GRID_LOOP(i, n) \
    for (int64_t i = gm_block_x * gm_block_size + gm_thread, i##_n = (n); i < i##_n; i += gm_grid_x * gm_block_size)

/* ---- 16 bytes at once: what a thread should load and store, at addresses that are multiples of 16 ---- */

#ifdef GM_EMULATED
#define GM_ALIGNED(bytes) __attribute__((may_alias, aligned(bytes)))
#else
#define GM_ALIGNED(bytes) __align__(bytes)
#endif

typedef struct GM_ALIGNED(16) gm_vector {
    uint32_t word[4];
} gm_vector;

GM_DEVICE gm_vector gm_load_vector(const void *p) { return *(const gm_vector *)p; }
GM_DEVICE void      gm_store_vector(void *p, gm_vector v) { *(gm_vector *)p = v; }

/* The 128 bytes around p come into the L2 cache, for a load that follows later. */
#define GM_LINE 128
#ifdef GM_EMULATED
GM_DEVICE void gm_prefetch(const void *p) { (void)p; }
#else
GM_DEVICE void    gm_prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
#endif

/* ---- sums and maxima of a warp and of a block, in one fixed order; R: float or double ---- */

#define GM_WARP 32

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
