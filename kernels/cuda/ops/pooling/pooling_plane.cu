/* pooling_plane.cu - pooling of planes without gaps by windows of 2 x 2 or 3 x 3, two places apart (gm_pool_plane). The
 * offsets of windows from a thread's place are known to the compiler; places are found by 32-bit numbers. Forward, a
 * thread has PAIR windows of a row; in gradients it has 16 bytes of a row, and looks at the windows that have part of
 * them. Nothing is added by two threads. */
#include "../../common/map.cuh"
#include "pooling_args.h"

constexpr int PAIR = GM_POOL_PAIR, S = GM_POOL_STRIDE;

/* Item i of the rows of all planes. */
typedef struct gm_plane_place {
    int32_t image, row, item;
} gm_plane_place;

GM_DEVICE int32_t gm_plane_divide(uint32_t i, const gm_divider &by)
{
    return (int32_t)((uint32_t)(((uint64_t)i * by.multiply >> 32) + i) >> by.shift);
}

GM_DEVICE gm_plane_place gm_plane_place_of(const gm_pool_plane *p, int64_t i)
{
    const int32_t row = gm_plane_divide((uint32_t)i, p->by_items), image = gm_plane_divide((uint32_t)row, p->by_rows);
    return {image, row - image * p->rows, (int32_t)i - row * p->items};
}

/* 1 / the places of window o of `out` on an axis; only the first and the last one may differ from the others. */
template <class R> GM_DEVICE R gm_plane_share(const gm_pool_plane *p, int axis, int32_t o, int32_t out)
{
    const gm_pool_share &s = p->share[axis];
    if constexpr (sizeof(R) == sizeof(double)) return o == 0 ? s.first : o == out - 1 ? s.last : s.other;
    else return o == 0 ? s.first_f : o == out - 1 ? s.last_f : s.other_f;
}

/* ---- forward ---- */

template <class T, int K, bool is_max, class R = gm_real<T>> GM_DEVICE void gm_plane_forward(const gm_pool_args *a)
{
    constexpr int columns = K + S * (PAIR - 1);
    const int32_t height = (int32_t)a->axis[1].n, width = (int32_t)a->axis[2].n, out = (int32_t)a->axis[2].out;
    GM_GRID_LOOP(i, a->plane.n) {
        const gm_plane_place p = gm_plane_place_of(&a->plane, i);
        const int32_t        o = p.item * PAIR;
        const int32_t        h = p.row * S - (int32_t)a->axis[1].before, w = o * S - (int32_t)a->axis[2].before;
        const T             *x = (const T *)a->x.data + (int64_t)p.image * a->plane.x_image + (h * width + w);
        T                    held[K][columns];
        GM_UNROLL for (int u = 0; u < K; u++) GM_UNROLL for (int k = 0; k < columns; k++)
        {
            held[u][k] = gm_put<T>(is_max ? (R)-INFINITY : (R)0);
            if ((uint32_t)(h + u) < (uint32_t)height && (uint32_t)(w + k) < (uint32_t)width)
                held[u][k] = x[u * width + k];
        }
        const int32_t y = p.row * out + o;
        const int64_t y_at = (int64_t)p.image * a->plane.y_image + y;
        GM_UNROLL for (int e = 0; e < PAIR; e++)
        {
            if (o + e >= out) break;
            if constexpr (is_max) {
                const int32_t left = w + e * S, first_h = h < 0 ? 0 : h, first_w = left < 0 ? 0 : left;
                const bool    some = first_h < height && first_w < width && h + K > 0 && left + K > 0;
                R             best = -INFINITY;
                int32_t       at = some ? first_h * width + first_w : -1;
                GM_UNROLL for (int u = 0; u < K; u++) GM_UNROLL for (int k = 0; k < K; k++)
                {
                    const R here = gm_get(held[u][e * S + k]); /* outside it is -inf, which does not win */
                    if (!(here <= best) && best == best) {
                        best = here;
                        at = (h + u) * width + left + k;
                    }
                }
                gm_set<T>(a->y.data, y_at + e, best);
                if (a->index.data) ((int64_t *)a->index.data)[(int64_t)p.image * a->plane.index_image + y + e] = at;
            } else {
                R sum = 0;
                GM_UNROLL for (int u = 0; u < K; u++) GM_UNROLL for (int k = 0; k < K; k++)
                    sum += gm_get(held[u][e * S + k]);
                sum *= gm_plane_share<R>(&a->plane, 0, p.row, a->plane.rows) *
                       gm_plane_share<R>(&a->plane, 1, o + e, out);
                gm_set<T>(a->y.data, y_at + e, sum);
            }
        }
    }
}

template <class T> GM_DEVICE void gm_max_pool_plane(const gm_pool_args a)
{
    if (a.axis[2].kernel == 3) gm_plane_forward<T, 3, true>(&a);
    else gm_plane_forward<T, 2, true>(&a);
}

template <class T> GM_DEVICE void gm_avg_pool_plane(const gm_pool_args a)
{
    if (a.axis[2].kernel == 3) gm_plane_forward<T, 3, false>(&a);
    else gm_plane_forward<T, 2, false>(&a);
}

/* ---- gradients: of the V places of a pack, place j is the (P + j)-th of window `origin`, which starts P places before
 * the pack; window origin + q has the places q S to q S + K - 1 ---- */

template <class T, int K, int P, bool is_max, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_plane_backward(const gm_pool_args *a)
{
    constexpr int low = -((K - 1 - P) / S), count = (P + V - 1) / S - low + 1, rows = (K + S - 1) / S;
    const int32_t width = (int32_t)a->axis[2].n, out_h = (int32_t)a->axis[1].out, out_w = (int32_t)a->axis[2].out;
    const int32_t before_h = (int32_t)a->axis[1].before, before_w = (int32_t)a->axis[2].before;
    GM_GRID_LOOP(i, a->plane.n) {
        const gm_plane_place p = gm_plane_place_of(&a->plane, i);
        const int32_t        w = p.item * V, reach = p.row + before_h, first = (w + before_w) / S + low;
        const int32_t        place = p.row * width + w;
        const T             *g = (const T *)a->y.data + (int64_t)p.image * a->plane.y_image;
        const int32_t *index = (const int32_t *)a->index.data + ((int64_t)p.image * a->plane.index_image << a->wide);
        T             *dx = (T *)a->x.data + (int64_t)p.image * a->plane.x_image + place;
        T              held[rows][count];
        int32_t        at[rows][count];
        R              sum[V], share[count];
        GM_UNROLL for (int r = 0; r < rows; r++) GM_UNROLL for (int q = 0; q < count; q++)
        {
            const int32_t o_h = reach / S - (rows - 1) + r, k = o_h * out_w + first + q;
            held[r][q] = gm_put<T>(0);
            at[r][q] = -1;
            if (o_h < 0 || o_h >= out_h || o_h * S + K <= reach || (uint32_t)(first + q) >= (uint32_t)out_w) continue;
            held[r][q] = g[k];
            if (is_max) at[r][q] = index[k << a->wide]; /* of i64 the lower half */
        }
        GM_UNROLL for (int j = 0; j < V; j++) sum[j] = 0;
        if (!is_max)
            GM_UNROLL for (int q = 0; q < count; q++) share[q] = gm_plane_share<R>(&a->plane, 1, first + q, out_w);
        GM_UNROLL for (int r = 0; r < rows; r++)
        {
            const R row_share = is_max ? (R)1 : gm_plane_share<R>(&a->plane, 0, reach / S - (rows - 1) + r, out_h);
            GM_UNROLL for (int q = 0; q < count; q++)
            {
                const R v = is_max ? gm_get(held[r][q]) : gm_get(held[r][q]) * (row_share * share[q]);
                GM_UNROLL for (int k = 0; k < K; k++)
                {
                    const int j = (q + low) * S + k - P;
                    if (j < 0 || j >= V) continue;
                    if (!is_max || at[r][q] == place + j) sum[j] += v;
                }
            }
        }
        if (a->accumulate) {
            R old[V];
            gm_take<T>(dx, 0, 1, old);
            GM_UNROLL for (int j = 0; j < V; j++) sum[j] += old[j];
        }
        gm_give<T>(dx, 0, sum);
    }
}

template <class T, bool is_max> GM_DEVICE void gm_plane_gradient(const gm_pool_args *a)
{
    const bool odd = a->axis[2].before % S;
    if (a->axis[2].kernel == 3) {
        if (odd) gm_plane_backward<T, 3, 1, is_max>(a);
        else gm_plane_backward<T, 3, 0, is_max>(a);
    } else {
        if (odd) gm_plane_backward<T, 2, 1, is_max>(a);
        else gm_plane_backward<T, 2, 0, is_max>(a);
    }
}

template <class T> GM_DEVICE void gm_max_pool_grad_plane(const gm_pool_args a) { gm_plane_gradient<T, true>(&a); }
template <class T> GM_DEVICE void gm_avg_pool_grad_plane(const gm_pool_args a) { gm_plane_gradient<T, false>(&a); }

GM_KERNELS(gm_max_pool_plane, gm_pool_args)
GM_KERNELS(gm_avg_pool_plane, gm_pool_args)
GM_KERNELS(gm_max_pool_grad_plane, gm_pool_args)
GM_KERNELS(gm_avg_pool_grad_plane, gm_pool_args)
