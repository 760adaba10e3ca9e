/* gemm.cu - products that cuBLASLt does not take: f64, odd strides, sizes of 0, activations that it lacks. The kernels
 * take every shape and stride. Sums of 16-bit and f32 values are in f32 (without tensor cores), sums of f64 in f64,
 * each in one order. gm_gemm_<dtype> has tiles of 64 by 64. gm_gemm_large_<dtype> has tiles of 128 by 128 and is used
 * if there are enough of them; it does not exist for f64. */
#include "../../common/dtype.cuh"
#include "../../common/functions.cuh"
#include "../../common/gemm_args.h"

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

/* ---- the tiled product; EACH: rows, and columns, of a thread ----
 *
 * A block makes a tile of 16 EACH rows and columns: its threads bring 16 of the depth at a time into shared memory (the
 * next ones are on their way from memory while these are worked on), and each thread multiplies what it needs from
 * registers. It reads its rows in groups of 16 bytes, so that the 16 threads of a row of threads read without
 * conflicts. */

template <int EACH> constexpr int TILE = (GM_GEMM_SIDE * EACH);
template <int EACH> constexpr int LOADS = (TILE<EACH> * GM_GEMM_DEPTH / (GM_GEMM_SIDE * GM_GEMM_SIDE));

/* Element e of thread t (0 to 15, along one side): where it lies in the tile. */
template <class R> GM_DEVICE int gm_gemm_at(int t, int e)
{
    constexpr int group = gm_lanes<R>;
    return e / group * (GM_GEMM_SIDE * group) + t * group + e % group;
}

/* Element i of those that this thread brings: along the depth where memory is dense in it, else along the side. */
template <int EACH> GM_DEVICE void gm_gemm_which(int i, bool deep, int *side, int *depth)
{
    int e = gm_thread + i * GM_GEMM_SIDE * GM_GEMM_SIDE;
    *side = deep ? e / GM_GEMM_DEPTH : e % TILE<EACH>;
    *depth = deep ? e % GM_GEMM_DEPTH : e / TILE<EACH>;
}

/* Rows from `first` on, of which there are `rows`, and depths from l on, of which there are k; zeros outside. */
template <int EACH, class T>
GM_DEVICE void gm_gemm_load(gm_real<T> *to, const T *from, int64_t first, int64_t rows, int64_t step, int64_t l,
                            int64_t k, int64_t deep_step)
{
    GM_UNROLL
    for (int i = 0; i < LOADS<EACH>; i++) {
        int side, depth;
        gm_gemm_which<EACH>(i, deep_step == 1, &side, &depth);
        bool inside = first + side < rows && l + depth < k;
        to[i] = inside ? gm_get(from[(first + side) * step + (l + depth) * deep_step]) : 0;
    }
}

template <int EACH, class R> GM_DEVICE void gm_gemm_keep(R *tile, const R *from, bool deep)
{
    GM_UNROLL
    for (int i = 0; i < LOADS<EACH>; i++) {
        int side, depth;
        gm_gemm_which<EACH>(i, deep, &side, &depth);
        tile[depth * GM_GEMM_PITCH(EACH) + side] = from[i];
    }
}

/* This thread's elements of one depth. */
template <int EACH, class R> GM_DEVICE void gm_gemm_pick(R (&to)[EACH], const R *row, int t)
{
    GM_UNROLL
    for (int e = 0; e < EACH; e += gm_lanes<R>) gm_unpack<R>(gm_load_vector(row + gm_gemm_at<R>(t, e)), to + e);
}

/* Each 16 of the depth are summed up for themselves: a sum of many terms then keeps more of its digits. */
template <int EACH, class R> GM_DEVICE void gm_gemm_multiply(R (&sum)[EACH][EACH], const R *as, const R *bs)
{
    R part[EACH][EACH] = {{0}};
    GM_UNROLL
    for (int l = 0; l < GM_GEMM_DEPTH; l++) {
        R u[EACH], v[EACH];
        gm_gemm_pick(u, as + l * GM_GEMM_PITCH(EACH), gm_thread / GM_GEMM_SIDE);
        gm_gemm_pick(v, bs + l * GM_GEMM_PITCH(EACH), gm_thread % GM_GEMM_SIDE);
        GM_UNROLL
        for (int i = 0; i < EACH; i++) {
            GM_UNROLL
            for (int j = 0; j < EACH; j++) part[i][j] += u[i] * v[j];
        }
    }
    GM_UNROLL
    for (int i = 0; i < EACH; i++) {
        GM_UNROLL
        for (int j = 0; j < EACH; j++) sum[i][j] += part[i][j];
    }
}

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
