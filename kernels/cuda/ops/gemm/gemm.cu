/* gemm.cu - products that cuBLASLt does not take: f64, odd strides, sizes of 0, activations that it lacks. The kernels
 * take every shape and stride. Sums of 16-bit and f32 values are in f32 (without tensor cores), sums of f64 in f64,
 * each in one order. gm_gemm_<dtype> has tiles of 64 by 64. gm_gemm_large_<dtype> has tiles of 128 by 128 and is used
 * if there are enough of them; it does not exist for f64. */
#include "../../common/functions.cuh"
#include "gemm_tile.cuh"

#ifdef GM_EMULATED
#define GM_CALLED static
#else
#define GM_CALLED static __device__ __noinline__ /* all functions in each of 64 places would be much code */
#endif

template <class R> GM_CALLED R gm_gemm_function(int f, R x) { return gm_unary_of(f, x, (R)0); }

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

/* What is done to a sum before it is stored. */
template <class T, class R = gm_real<T>>
GM_DEVICE void gm_gemm_finish(const gm_gemm_args *a, const gm_gemm_place *p, int64_t row, int64_t column,
                              gm_real<T> sum)
{
    R       v = (R)a->alpha * sum;
    int64_t at = p->y + row * a->y_m + column * a->y_n;
    T      *y = (T *)a->y + at;
    if (a->bias) v += gm_get(((const T *)a->bias)[column * a->bias_n]);
    if (a->pre) ((T *)a->pre)[p->pre + row * a->pre_m + column * a->pre_n] = gm_put<T>(v);
    if (a->function) v = gm_gemm_function(a->function, v);
    if (a->wide) {
        R *sums = (R *)a->y + at;
        *sums = a->accumulate ? *sums + v : v;
        return;
    }
    if (a->accumulate) v += gm_get(*y);
    *y = gm_put<T>(v);
}

/* The same for products that are in memory already, in f32 and without gaps (a.a; cuBLASLt made them). */
template <class T> GM_DEVICE void gm_gemm_finish_all(const gm_gemm_args a)
{
    int64_t each = a.m * a.n, batch = 1;
    for (int d = 0; d < a.ndim; d++) batch *= a.dim[d].n;
    GM_GRID_LOOP(i, batch * each) {
        gm_gemm_place p = gm_gemm_of_batch(&a, i / each);
        gm_gemm_finish<T>(&a, &p, i % each / a.n, i % a.n, ((const float *)a.a)[i]);
    }
}

/* ---- the tiled product (gemm_tile.cuh) ---- */

template <class T, int EACH, class R = gm_real<T>> GM_DEVICE void gm_gemm(const gm_gemm_args a)
{
    GM_SHARED(R, as);
    R                  *bs = as + GM_GEMM_DEPTH * GM_GEMM_PITCH(EACH);
    const gm_gemm_place p = gm_gemm_place_of(&a, TILE<EACH>);
    const T            *x = (const T *)a.a + p.a, *w = (const T *)a.b + p.b;
    R                   sum[EACH][EACH] = {{0}}, next_a[LOADS<EACH>], next_b[LOADS<EACH>];
    gm_gemm_load<EACH>(next_a, x, p.row, a.m, a.a_m, 0, a.k, a.a_k);
    gm_gemm_load<EACH>(next_b, w, p.column, a.n, a.b_n, 0, a.k, a.b_k);
    for (int64_t l = 0; l < a.k; l += GM_GEMM_DEPTH) {
        gm_gemm_keep<EACH>(as, next_a, a.a_k == 1);
        gm_gemm_keep<EACH>(bs, next_b, a.b_k == 1);
        GM_SYNC();
        gm_gemm_load<EACH>(next_a, x, p.row, a.m, a.a_m, l + GM_GEMM_DEPTH, a.k, a.a_k);
        gm_gemm_load<EACH>(next_b, w, p.column, a.n, a.b_n, l + GM_GEMM_DEPTH, a.k, a.b_k);
        gm_gemm_multiply(sum, as, bs);
        GM_SYNC();
    }
    GM_UNROLL
    for (int i = 0; i < EACH; i++) {
        int64_t row = p.row + gm_gemm_at<R>(gm_thread / GM_GEMM_SIDE, i);
        GM_UNROLL
        for (int j = 0; j < EACH; j++) {
            int64_t column = p.column + gm_gemm_at<R>(gm_thread % GM_GEMM_SIDE, j);
            if (row < a.m && column < a.n) gm_gemm_finish<T>(&a, &p, row, column, sum[i][j]);
        }
    }
}

GM_KERNEL(gm_gemm_f32, gm_gemm_args) { gm_gemm<float, GM_GEMM_SMALL>(a); }
GM_KERNEL(gm_gemm_bf16, gm_gemm_args) { gm_gemm<gm_bf16, GM_GEMM_SMALL>(a); }
GM_KERNEL(gm_gemm_f16, gm_gemm_args) { gm_gemm<gm_f16, GM_GEMM_SMALL>(a); }
GM_KERNEL(gm_gemm_f64, gm_gemm_args) { gm_gemm<double, GM_GEMM_SMALL>(a); }
/* not of f64, whose sums take too many registers */
GM_KERNEL(gm_gemm_large_f32, gm_gemm_args) { gm_gemm<float, GM_GEMM_LARGE>(a); }
GM_KERNEL(gm_gemm_large_bf16, gm_gemm_args) { gm_gemm<gm_bf16, GM_GEMM_LARGE>(a); }
GM_KERNEL(gm_gemm_large_f16, gm_gemm_args) { gm_gemm<gm_f16, GM_GEMM_LARGE>(a); }
GM_KERNELS(gm_gemm_finish_all, gm_gemm_args)
