/* pages.cu - keys and values in pages: rows go to their places, and few queries attend to the pages of their row.
 *
 * A block has a query of a head, each of its warps every fourth key, and each lane some numbers of a head. The running
 * maximum and sum of each warp are joined at the end, in order. The queries that share a key head find its pages in the
 * second-level cache. A page that is none of the pool is refused (refusal.h), and what lies in it counts as zeros. */
#include "../../common/dtype.cuh"
#include "pages_args.h"

GM_DEVICE int64_t gm_pages_count(const gm_pages_view *p, int64_t r)
{
    return ((const int64_t *)p->count)[r * p->count_stride];
}

/* The page of position `at` of row r; -1: there is none. */
GM_DEVICE int64_t gm_pages_find(const gm_pages_view *p, int64_t r, int64_t at)
{
    const int64_t n = at / p->page, i = r * p->index_stride[0] + n * p->index_stride[1];
    if (n >= p->each) {
        gm_refuse(p->refusal, p->op, n, r, p->each);
        return -1;
    }
    const int64_t page = p->narrow ? ((const int32_t *)p->index)[i] : ((const int64_t *)p->index)[i];
    if (page >= 0 && page < p->pages) return page;
    gm_refuse(p->refusal, p->op, page, r, p->pages);
    return -1;
}

template <class T> GM_DEVICE void gm_pages_write(const gm_pages_write_args a)
{
    GM_GRID_LOOP(e, a.n) {
        const int64_t d = e % a.size, h = e / a.size % a.heads, row = e / a.size / a.heads;
        const int64_t r = row / a.positions, i = row % a.positions, at = gm_pages_count(&a.p, r) - a.positions + i;
        const int64_t page = at < 0 ? -1 : gm_pages_find(&a.p, r, at);
        if (page < 0) continue;
        const int64_t to = page * a.pool_stride[0] + h * a.pool_stride[1] + at % a.p.page * a.pool_stride[2] + d;
        ((T *)a.pool)[to] = ((const T *)a.x)[r * a.x_stride[0] + i * a.x_stride[1] + h * a.x_stride[2] + d];
    }
}

GM_KERNELS(gm_pages_write, gm_pages_write_args)

/* The numbers of a head that this lane has: lane, lane + 32, ...; zeros behind the last. */
template <class T, int EACH, class R = gm_real<T>>
GM_DEVICE void gm_pages_take(const T *row, int64_t size, bool there, R (&x)[EACH])
{
    GM_UNROLL for (int e = 0; e < EACH; e++)
    {
        const int64_t d = gm_thread % GM_WARP + e * GM_WARP;
        x[e] = there && d < size ? (R)gm_get(row[d]) : (R)0;
    }
}

/* Warps' sums and maxima lie in shared memory: EACH * 32 numbers at most, then the sum, then the maximum, for each. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_pages_join(const gm_pages_args &a, const R *room, T *o)
{
    const int64_t step = a.size + 2;
    R             most = -INFINITY, sum = 0;
    for (int w = 0; w < GM_PAGES_WARPS; w++) {
        const R other = room[w * step + a.size + 1];
        most = other > most ? other : most;
    }
    for (int w = 0; w < GM_PAGES_WARPS; w++)
        if (room[w * step + a.size] > 0) sum += room[w * step + a.size] * exp(room[w * step + a.size + 1] - most);
    for (int64_t d = gm_thread; d < a.size; d += gm_block_size) {
        R total = 0;
        for (int w = 0; w < GM_PAGES_WARPS; w++)
            if (room[w * step + a.size] > 0) total += room[w * step + d] * exp(room[w * step + a.size + 1] - most);
        o[d * a.o_stride[3]] = gm_put<T>(sum > 0 ? total / sum : (R)0);
    }
}

template <class T, int EACH, class R = gm_real<T>> GM_DEVICE void gm_attention_paged(const gm_pages_args a)
{
    GM_SHARED(R, room);
    const int     warp = gm_thread / GM_WARP, lane = gm_thread % GM_WARP;
    const int64_t h = gm_block_x % a.heads, i = gm_block_x / a.heads % a.queries, r = gm_block_x / a.heads / a.queries;
    const int64_t seen = gm_pages_count(&a.p, r) - a.queries + i + 1, head = h / a.group;
    const int64_t first = a.window && seen > a.window ? seen - a.window : 0;
    R             q[EACH], o[EACH], x[EACH], most = -INFINITY, sum = 0;
    gm_pages_take<T, EACH>((const T *)a.q + r * a.q_stride[0] + i * a.q_stride[1] + h * a.q_stride[2], a.size, true, q);
    GM_UNROLL for (int e = 0; e < EACH; e++) o[e] = 0;
    for (int64_t j = first + warp; j < seen; j += GM_PAGES_WARPS) {
        const int64_t page = gm_pages_find(&a.p, r, j), place = j % a.p.page, from = page < 0 ? 0 : page;
        gm_pages_take<T, EACH>((const T *)a.k + from * a.k_stride[0] + head * a.k_stride[1] + place * a.k_stride[2],
                               a.size, page >= 0, x);
        R score = 0;
        GM_UNROLL for (int e = 0; e < EACH; e++) score += q[e] * x[e];
        score = gm_warp_sum(score) * (R)a.scale;
        if (a.softcap > 0) score = (R)a.softcap * tanh(score / (R)a.softcap);
        gm_pages_take<T, EACH>((const T *)a.v + from * a.v_stride[0] + head * a.v_stride[1] + place * a.v_stride[2],
                               a.size, page >= 0, x);
        const R largest = score > most ? score : most, left = exp(most - largest), p = exp(score - largest);
        most = largest;
        sum = sum * left + p;
        GM_UNROLL for (int e = 0; e < EACH; e++) o[e] = o[e] * left + p * x[e];
    }
    R *mine = room + warp * (a.size + 2);
    GM_UNROLL for (int e = 0; e < EACH; e++) if (lane + e * GM_WARP < a.size) mine[lane + e * GM_WARP] = o[e];
    if (lane == 0) {
        mine[a.size] = sum;
        mine[a.size + 1] = most;
    }
    GM_SYNC();
    gm_pages_join<T>(a, room, (T *)a.o + r * a.o_stride[0] + i * a.o_stride[1] + h * a.o_stride[2]);
}

template <class T> GM_DEVICE void gm_paged_narrow(const gm_pages_args a)
{
    gm_attention_paged<T, GM_PAGES_NARROW / GM_WARP>(a);
}
template <class T> GM_DEVICE void gm_paged_wide(const gm_pages_args a)
{
    gm_attention_paged<T, GM_PAGES_WIDE / GM_WARP>(a);
}

GM_KERNELS_AS(gm_attention_paged_narrow, gm_paged_narrow, gm_pages_args)
GM_KERNELS_AS(gm_attention_paged_wide, gm_paged_wide, gm_pages_args)
