/* reduce_pick_even.cu - max, min and argmax of lines in packs of 16 bytes: along lines, or across lines that lie side
 * by side. A thread meets the elements of a line in order of place, so that one takes over only if it is larger, or
 * the first NaN. Places are 32-bit numbers. The limit is the bandwidth of reads. */
#include "../../common/map.cuh"
#include "reduce_args.h"

constexpr int N = 4; /* packs that a thread loads before it waits */

/* ---- candidates: a value and its place, in the order "NaN, then by size, then by place"; sign: 1, the largest; -1,
 * the smallest ---- */

template <int sign, class R> GM_DEVICE bool gm_is_beyond(R u, R v) { return sign > 0 ? u > v : u < v; }

template <int sign, class R> GM_DEVICE void gm_meet(R *v, int32_t *k, R u, int32_t i)
{
    const bool here = u != u, there = *v != *v;
    const bool equal = here == there && (here || u == *v);
    if (equal ? i < *k : here || (!there && gm_is_beyond<sign>(u, *v))) {
        *v = u;
        *k = i;
    }
}

/* What no element is beyond, if they are -inf (sign 1) as well: so a share's first place goes with it. */
template <int sign, class R> GM_DEVICE R gm_pick_least(void) { return sign > 0 ? (R)-INFINITY : (R)INFINITY; }

/* ---- along lines ---- */

/* The elements of pack i, all of them behind those that were met. */
template <class T, int sign, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_meet_pack(gm_vector pack, int32_t i, R *v, int32_t *k)
{
    R    x[V];
    bool strange = false;
    gm_unpack<T>(pack, x);
    GM_UNROLL for (int j = 0; j < V; j++)
    {
        const bool beyond = gm_is_beyond<sign>(x[j], *v);
        *v = beyond ? x[j] : *v;
        *k = beyond ? i + j : *k;
        strange = strange || x[j] != x[j];
    }
    if (!strange) return;
    GM_UNROLL for (int j = 0; j < V; j++) if (x[j] != x[j] && *v == *v)
    {
        *v = x[j];
        *k = i + j;
    }
}

/* All lanes of the warp get its candidate. */
template <int sign, class R> GM_DEVICE void gm_meet_warp(R *v, int32_t *k)
{
    for (int lanes = GM_WARP / 2; lanes; lanes /= 2) {
        const R       u = gm_shuffle_xor(*v, lanes);
        const int32_t i = gm_shuffle_xor(*k, lanes);
        gm_meet<sign>(v, k, u, i);
    }
}

template <class T, int sign, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_pick_line(const gm_pick_args *a, R *values)
{
    int32_t      *places = (int32_t *)(values + GM_WARP);
    const int     by = a->whole ? gm_block_size : GM_WARP, mine = gm_thread % by;
    const int64_t line = a->whole ? gm_block_x : gm_block_x * (gm_block_size / GM_WARP) + gm_thread / GM_WARP;
    const int32_t n = (int32_t)a->n, packs = n / V, tail = packs * V + mine;
    int64_t       at[3] = {0, 0, 0};
    R             v = gm_pick_least<sign, R>();
    int32_t       k = mine < packs ? mine * V : tail < n ? tail : INT32_MAX;
    if (line < a->lines.n) {
        gm_map_place(&a->lines, 3, line, at);
        const T *x = (const T *)a->x + at[1];
        GM_ROLLED for (int32_t p = mine; p < packs; p += N * by)
        {
            gm_vector held[N];
            GM_UNROLL for (int m = 0; m < N; m++)
                held[m] = gm_load_vector(x + (int64_t)(p + m * by < packs ? p + m * by : p) * V);
            GM_UNROLL for (int m = 0; m < N; m++) if (p + m * by < packs)
                gm_meet_pack<T, sign>(held[m], (p + m * by) * V, &v, &k);
        }
        if (tail < n) gm_meet<sign>(&v, &k, gm_get(x[tail]), tail);
    }
    gm_meet_warp<sign>(&v, &k);
    if (a->whole) {
        if (gm_thread % GM_WARP == 0) {
            values[gm_thread / GM_WARP] = v;
            places[gm_thread / GM_WARP] = k;
        }
        GM_SYNC();
        if (gm_thread == 0)
            for (int w = 1; w < gm_block_size / GM_WARP; w++) gm_meet<sign>(&v, &k, values[w], places[w]);
    }
    if (mine > 0 || line >= a->lines.n) return;
    a->index[at[0]] = k;
    if (a->y) ((T *)a->y)[at[2]] = ((const T *)a->x)[at[1] + k];
}

template <class T> GM_DEVICE void gm_pick_along(const gm_pick_args a)
{
    GM_SHARED(gm_real<T>, values);
    if (a.sign > 0) gm_pick_line<T, 1>(&a, values);
    else gm_pick_line<T, -1>(&a, values);
}

/* ---- lines side by side: a pack of lines a thread, GM_REDUCE_LINES rows of threads down each chunk of places. With
 * several chunks the candidates go to partial, [line][chunk], and gm_pick_join picks among them. ---- */

template <class T> GM_DEVICE void gm_pick_write(const gm_pick_args *a, const int64_t *at, int j, int32_t k)
{
    a->index[at[0] + j] = k;
    if (a->y) ((T *)a->y)[at[2] + j] = ((const T *)a->x)[at[1] + j + k * a->step];
}

template <class T, int sign, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_pick_rows(const gm_pick_args *a, const T *x, int32_t first, int32_t end, R (&v)[V], int32_t (&k)[V])
{
    GM_ROLLED for (int32_t i = first; i < end; i += N * GM_REDUCE_LINES)
    {
        gm_vector held[N];
        GM_UNROLL for (int m = 0; m < N; m++)
        {
            const int32_t row = i + m * GM_REDUCE_LINES;
            held[m] = gm_load_vector(x + (row < end ? row : i) * a->step);
        }
        GM_UNROLL for (int m = 0; m < N; m++)
        {
            const int32_t row = i + m * GM_REDUCE_LINES; /* past the end: row i again, which takes nothing over */
            bool          strange = false;
            R             u[V];
            gm_unpack<T>(held[m], u);
            GM_UNROLL for (int j = 0; j < V; j++)
            {
                const bool beyond = gm_is_beyond<sign>(u[j], v[j]);
                v[j] = beyond ? u[j] : v[j];
                k[j] = beyond ? row : k[j];
                strange = strange || u[j] != u[j];
            }
            if (!strange) continue;
            GM_UNROLL for (int j = 0; j < V; j++) if (u[j] != u[j] && v[j] == v[j])
            {
                v[j] = u[j];
                k[j] = row;
            }
        }
    }
}

template <class T, int sign, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_pick_columns(const gm_pick_args *a, R *values)
{
    int32_t      *places = (int32_t *)(values + GM_REDUCE_THREADS);
    const int     lane = gm_thread % GM_WARP, row = gm_thread / GM_WARP;
    const int64_t pack = gm_block_x * GM_WARP + lane;
    const int64_t begin = gm_block_y * a->chunk, last = begin + a->chunk < a->n ? begin + a->chunk : a->n;
    const int32_t first = (int32_t)begin + row;
    int64_t       at[3] = {0, 0, 0};
    R             v[V];
    int32_t       k[V];
    GM_UNROLL for (int j = 0; j < V; j++)
    {
        v[j] = gm_pick_least<sign, R>();
        k[j] = first < last ? first : INT32_MAX;
    }
    if (pack < a->lines.n) {
        gm_map_place(&a->lines, 3, pack, at);
        gm_pick_rows<T, sign>(a, (const T *)a->x + at[1], first, (int32_t)last, v, k);
    }
    GM_UNROLL for (int j = 0; j < V; j++)
    {
        GM_SYNC();
        values[gm_thread] = v[j];
        places[gm_thread] = k[j];
        GM_SYNC();
        if (row > 0 || pack >= a->lines.n) continue;
        for (int i = lane + GM_WARP; i < GM_REDUCE_THREADS; i += GM_WARP)
            gm_meet<sign>(&v[j], &k[j], values[i], places[i]);
        if (a->partial) {
            const int64_t to = (pack * V + j) * a->chunks + gm_block_y;
            ((R *)a->partial)[to] = v[j];
            a->partial_place[to] = k[j];
        } else {
            gm_pick_write<T>(a, at, j, k[j]);
        }
    }
}

template <class T> GM_DEVICE void gm_pick_beside(const gm_pick_args a)
{
    GM_SHARED(gm_real<T>, values);
    if (a.sign > 0) gm_pick_columns<T, 1>(&a, values);
    else gm_pick_columns<T, -1>(&a, values);
}

/* The candidates of a line, a warp each. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_pick_join(const gm_pick_args a)
{
    const int64_t line = gm_block_x * (gm_block_size / GM_WARP) + gm_thread / GM_WARP, from = line * a.chunks;
    const int     lane = gm_thread % GM_WARP;
    const bool    some = line < a.lines.n * V && lane < a.chunks;
    R             v = some ? ((const R *)a.partial)[from + lane] : 0;
    int32_t       k = some ? a.partial_place[from + lane] : INT32_MAX;
    int64_t       at[3];
    if (!some) v = a.sign > 0 ? (R)-INFINITY : (R)INFINITY;
    for (int i = lane + GM_WARP; some && i < a.chunks; i += GM_WARP) {
        const R u = ((const R *)a.partial)[from + i];
        if (a.sign > 0) gm_meet<1>(&v, &k, u, a.partial_place[from + i]);
        else gm_meet<-1>(&v, &k, u, a.partial_place[from + i]);
    }
    if (a.sign > 0) gm_meet_warp<1>(&v, &k);
    else gm_meet_warp<-1>(&v, &k);
    if (lane > 0 || line >= a.lines.n * V) return;
    gm_map_place(&a.lines, 3, line / V, at);
    gm_pick_write<T>(&a, at, (int)(line % V), k);
}

GM_KERNELS(gm_pick_along, gm_pick_args)
GM_KERNELS(gm_pick_beside, gm_pick_args)
GM_KERNELS(gm_pick_join, gm_pick_args)
