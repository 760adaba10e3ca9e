/* grouped.cu - products of groups of rows, without tensor cores: f32, f64, and what grouped_mma.cu does not take. All
 * shapes and strides, in tiles of 64 by 64 (gemm_tile.cuh). And the sums of the rows of each group. */
#include "../gemm/gemm_tile.cuh"
#include "grouped.cuh"

constexpr int EACH = GM_GEMM_SMALL;

/* A tile of a b, whose rows and columns begin at at->row and at->column, and whose sums go from depth `from` to depth
 * `to`. */
template <class T, class R = gm_real<T>>
GM_DEVICE void gm_grouped_sum(const gm_grouped_args *a, const gm_grouped_place *at, const T *x, const T *w,
                              int64_t from, int64_t to, R (&sum)[EACH][EACH])
{
    GM_SHARED(R, as);
    R *bs = as + GM_GEMM_DEPTH * GM_GEMM_PITCH(EACH), next_a[LOADS<EACH>], next_b[LOADS<EACH>];
    gm_gemm_load<EACH>(next_a, x, at->row, at->end, a->a_m, from, to, a->a_k);
    gm_gemm_load<EACH>(next_b, w, at->column, a->n, a->b_n, from, to, a->b_k);
    for (int64_t l = from; l < to; l += GM_GEMM_DEPTH) {
        gm_gemm_keep<EACH>(as, next_a, a->a_k == 1);
        gm_gemm_keep<EACH>(bs, next_b, a->b_k == 1);
        GM_SYNC();
        gm_gemm_load<EACH>(next_a, x, at->row, at->end, a->a_m, l + GM_GEMM_DEPTH, to, a->a_k);
        gm_gemm_load<EACH>(next_b, w, at->column, a->n, a->b_n, l + GM_GEMM_DEPTH, to, a->b_k);
        gm_gemm_multiply(sum, as, bs);
        GM_SYNC();
    }
}

template <class T, class R = gm_real<T>>
GM_DEVICE void gm_grouped_finish(const gm_grouped_args *a, const gm_grouped_place *at, T *c, const T *bias,
                                 const R (&sum)[EACH][EACH])
{
    GM_UNROLL
    for (int i = 0; i < EACH; i++) {
        const int64_t row = at->row + gm_gemm_at<R>(gm_thread / GM_GEMM_SIDE, i);
        GM_UNROLL
        for (int j = 0; j < EACH; j++) {
            const int64_t column = at->column + gm_gemm_at<R>(gm_thread % GM_GEMM_SIDE, j);
            if (row >= at->end || column >= a->n) continue;
            T *to = c + row * a->c_m + column * a->c_n;
            R  v = sum[i][j];
            if (bias) v += gm_get(bias[column * a->bias_n]);
            if (a->accumulate) v += gm_get(*to);
            *to = gm_put<T>(v);
        }
    }
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_grouped_rows(const gm_grouped_args a)
{
    gm_grouped_place at;
    R                sum[EACH][EACH] = {{0}};
    if (!gm_grouped_find(&a, TILE<EACH>, &at)) return;
    const bool in = at.group < a.groups;
    const T   *bias = in && a.bias ? (const T *)a.bias + at.group * a.bias_group : nullptr;
    gm_grouped_sum<T>(&a, &at, (const T *)a.a, (const T *)a.b + (in ? at.group * a.b_group : 0), 0, in ? a.k : 0, sum);
    gm_grouped_finish<T>(&a, &at, (T *)a.c, bias, sum);
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_grouped_weight(const gm_grouped_args a)
{
    const gm_grouped_place at = gm_grouped_weight_place(&a, TILE<EACH>);
    const gm_grouped_range r = gm_grouped_range_of(&a, at.group);
    R                      sum[EACH][EACH] = {{0}};
    gm_grouped_sum<T>(&a, &at, (const T *)a.a, (const T *)a.b, r.first, r.end, sum);
    gm_grouped_finish<T>(&a, &at, (T *)a.c + at.group * a.c_group, nullptr, sum);
}

/* c[e][i] (+)= the sum of a[i][r] over the rows r of group e. A block has a group and some columns i; its warps take
 * rows in turn, and the first adds up what they have, in order. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_grouped_sums(const gm_grouped_args a)
{
    GM_SHARED(R, parts);
    const int64_t          e = gm_block_x / a.tiles_m;
    const int64_t          column = gm_block_x % a.tiles_m * GM_GROUPED_COLUMNS + gm_thread % GM_GROUPED_COLUMNS;
    const int              warp = gm_thread / GM_GROUPED_COLUMNS, warps = GM_GROUPED_THREADS / GM_GROUPED_COLUMNS;
    const gm_grouped_range r = gm_grouped_range_of(&a, e);
    R                      sum = 0;
    for (int64_t row = r.first + warp; row < r.end && column < a.m; row += warps)
        sum += gm_get(((const T *)a.a)[column * a.a_m + row * a.a_k]);
    parts[gm_thread] = sum;
    GM_SYNC();
    if (warp > 0 || column >= a.m) return;
    for (int i = 1; i < warps; i++) sum += parts[i * GM_GROUPED_COLUMNS + gm_thread];
    T *to = (T *)a.c + e * a.c_group + column * a.c_m;
    if (a.accumulate) sum += gm_get(*to);
    *to = gm_put<T>(sum);
}

GM_KERNELS(gm_grouped_rows, gm_grouped_args)
GM_KERNELS(gm_grouped_weight, gm_grouped_args)
GM_KERNELS(gm_grouped_sums, gm_grouped_args)
