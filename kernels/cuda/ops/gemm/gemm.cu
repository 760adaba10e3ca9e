/* gemm.cu - products for what cuBLASLt does not take: f64, odd strides, sizes of 0, activations it lacks. Right for
 * every shape and stride; f32 sums of 16-bit and f32 values (without tensor cores), f64 of f64, each in one order.
 * gm_gemm_<dtype>: tiles of 64 by 64; gm_gemm_large_<dtype>: of 128 by 128, where there are enough of
 * them; not of f64. */
#include "../../common/kernel.cuh"
#include "../../common/functions.cuh"
#include "../../common/gemm_args.h"

#ifdef GM_EMULATED
#define GM_CALLED static
#else
#define GM_CALLED static __device__ __noinline__ /* all functions in each of 64 places would be much code */
#endif

GM_CALLED float  gm_gemm_function_f32(int f, float x) { return gm_unary_f32(f, x, 0); }
GM_CALLED double gm_gemm_function_f64(int f, double x) { return gm_unary_f64(f, x, 0); }

/* Where a block works: its first row and column, and where its element of the batch begins in each tensor. */
typedef struct gm_gemm_place {
    int64_t row, column, a, b, y, pre;
} gm_gemm_place;

GM_DEVICE gm_gemm_place gm_gemm_of_batch(const gm_gemm_args *a, int64_t i)
{
    gm_gemm_place p = {0, 0, 0, 0, 0, 0};
    for (int d = a->ndim - 1; d >= 0; d--) {
        int64_t at = i % a->dim[d].n;
        i /= a->dim[d].n;
        p.a += at * a->dim[d].a;
        p.b += at * a->dim[d].b;
        p.y += at * a->dim[d].y;
        p.pre += at * a->dim[d].pre;
    }
    return p;
}

GM_DEVICE gm_gemm_place gm_gemm_place_of(const gm_gemm_args *a, int tile)
{
    int64_t       across = (a->n + tile - 1) / tile, down = (a->m + tile - 1) / tile;
    gm_gemm_place p = gm_gemm_of_batch(a, gm_block_x / (across * down));
    p.row = gm_block_x / across % down * tile;
    p.column = gm_block_x % across * tile;
    return p;
}

#define GM_BODY "../ops/gemm/gemm_t.cuh"
#include "../../common/each_dtype.cuh"
