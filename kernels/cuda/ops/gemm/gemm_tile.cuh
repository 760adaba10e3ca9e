/* gemm_tile.cuh - the tile of products without tensor cores, of any strides; EACH: rows, and columns, of a thread.
 *
 * A block makes a tile of 16 EACH rows and columns: its threads bring 16 of the depth at a time into shared memory (the
 * next ones are on their way from memory while these are worked on), and each thread multiplies what it needs from
 * registers. It reads its rows in groups of 16 bytes, so that the 16 threads of a row of threads read without
 * conflicts. */
#ifndef GM_CUDA_GEMM_TILE_CUH
#define GM_CUDA_GEMM_TILE_CUH

#include "../../common/dtype.cuh"
#include "../../common/gemm_args.h"

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

#endif
