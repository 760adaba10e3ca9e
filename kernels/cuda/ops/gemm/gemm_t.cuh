/* gemm_t.cuh - the kernels of gemm.cu for one dtype (each_dtype.cuh). */

/* What is done to a sum before it is stored. */
GM_DEVICE void GM_PASTE(gm_gemm_finish, GM_D)(const gm_gemm_args *a, const gm_gemm_place *p, int64_t row,
                                              int64_t column, GM_R sum)
{
    GM_R    v = (GM_R)a->alpha * sum;
    int64_t at = p->y + row * a->y_m + column * a->y_n;
    GM_T   *y = (GM_T *)a->y + at;
    if (a->bias) v += GM_PASTE(gm_get, GM_D)(((const GM_T *)a->bias)[column * a->bias_n]);
    if (a->pre) ((GM_T *)a->pre)[p->pre + row * a->pre_m + column * a->pre_n] = GM_PASTE(gm_put, GM_D)(v);
    if (a->function) v = GM_PASTE(gm_gemm_function, GM_S)(a->function, v);
    if (a->wide) {
        GM_R *sums = (GM_R *)a->y + at;
        *sums = a->accumulate ? *sums + v : v;
        return;
    }
    if (a->accumulate) v += GM_PASTE(gm_get, GM_D)(*y);
    *y = GM_PASTE(gm_put, GM_D)(v);
}

/* The same for products that are in memory already, in f32 and without gaps (a.a; cuBLASLt made them). */
GM_KERNEL_NAMED(GM_PASTE(gm_gemm_finish_all, GM_D), gm_gemm_args)
{
    int64_t each = a.m * a.n, batch = 1;
    for (int d = 0; d < a.ndim; d++) batch *= a.dim[d].n;
    GM_GRID_LOOP(i, batch * each) {
        gm_gemm_place p = gm_gemm_of_batch(&a, i / each);
        GM_PASTE(gm_gemm_finish, GM_D)(&a, &p, i % each / a.n, i % a.n, ((const float *)a.a)[i]);
    }
}

#define GM_EACH       GM_GEMM_SMALL
#define GM_NAME(base) GM_PASTE(base, GM_D)
#include "gemm_tile_t.cuh"
#undef GM_EACH
#undef GM_NAME

#if !GM_WIDE /* the sums of a large tile must fit into the registers */
#define GM_EACH       GM_GEMM_LARGE
#define GM_NAME(base) GM_PASTE(GM_PASTE(base, large), GM_D)
#include "gemm_tile_t.cuh"
#undef GM_EACH
#undef GM_NAME
#endif
