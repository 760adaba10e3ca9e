/* rows.cuh - rows (rows.h) in kernels: the start of a row, the team that works on it, its elements in packs of 16
 * bytes, and sums over a team. */
#ifndef GM_CUDA_ROWS_CUH
#define GM_CUDA_ROWS_CUH

#include "dtype.cuh"
#include "rows.h"

/* Elements from data to the first of row r. */
GM_DEVICE int64_t gm_row_start(const gm_row_view *rows, int64_t r)
{
    int64_t at = 0;
    if (rows->ndim <= 1) return r * rows->stride[0];
    for (int d = rows->ndim - 1; d > 0; d--) {
        int64_t rest = r / rows->shape[d];
        at += (r - rest * rows->shape[d]) * rows->stride[d];
        r = rest;
    }
    return at + r * rows->stride[0];
}

/* ---- teams ---- */

/* The row and place in its team of this thread, where a block has one team, or a warp each. */
#define GM_TEAM(team, lane, row)       \
    const int team = a.team;           \
    const int lane = gm_thread % team; \
    int64_t   row = gm_block_x * (gm_block_size / team) + gm_thread / team

/* As gm_block_sum: the same for all threads of the team. */
template <class R> GM_DEVICE R gm_team_sum(R v, int team, R *scratch)
{
    return team == GM_WARP ? gm_warp_sum(v) : gm_block_sum(v, scratch);
}

template <class R> GM_DEVICE R gm_team_max(R v, int team, R *scratch)
{
    return team == GM_WARP ? gm_warp_max(v) : gm_block_max(v, scratch);
}

/* ---- rows of one number: those of an index or a target, i64, or i32 where narrow; and statistics and losses, which
 * have the type of arithmetic ---- */

GM_DEVICE int64_t gm_row_index(const gm_row_view *rows, int narrow, int64_t r)
{
    int64_t at = gm_row_start(rows, r);
    return narrow ? ((const int32_t *)rows->data)[at] : ((const int64_t *)rows->data)[at];
}

template <class R> GM_DEVICE R gm_row_number(const gm_row_view *rows, int64_t r)
{
    return ((const R *)rows->data)[gm_row_start(rows, r)];
}

template <class R> GM_DEVICE void gm_row_set_number(const gm_row_view *rows, int64_t r, R v)
{
    if (rows->data) ((R *)rows->data)[gm_row_start(rows, r)] = v;
}

/* ---- packs: elements i .. i + V of the row of n that begins at `start` ---- */

/* Zeros behind the row's end. */
template <class T, int V = gm_lanes<T>>
GM_DEVICE gm_vector gm_row_load(const gm_row_view *rows, int64_t start, int64_t i, int64_t n)
{
    const T      *p = (const T *)rows->data + start;
    gm_pack_of<T> u = {{{0}}};
    if (rows->vectors && i + V <= n) return gm_load_vector(p + i);
    GM_ROLLED for (int j = 0; j < V; j++) gm_push<V>(u.x, i + j < n ? p[(i + j) * rows->step] : gm_put<T>(0));
    return u.v;
}

template <class T, int V = gm_lanes<T>>
GM_DEVICE void gm_row_store(const gm_row_view *rows, int64_t start, int64_t i, int64_t n, gm_vector v)
{
    T *p = (T *)rows->data + start;
    if (rows->vectors && i + V <= n) {
        gm_store_vector(p + i, v);
    } else {
        gm_pack_of<T> u;
        u.v = v;
        GM_ROLLED for (int j = 0; j < V; j++)
        {
            if (i + j < n) p[(i + j) * rows->step] = u.x[0];
            gm_push<V>(u.x, u.x[0]);
        }
    }
}

template <class T>
GM_DEVICE void gm_row_take(const gm_row_view *rows, int64_t start, int64_t i, int64_t n, gm_real<T> *x)
{
    gm_unpack<T>(gm_row_load<T>(rows, start, i, n), x);
}

template <class T>
GM_DEVICE void gm_row_give(const gm_row_view *rows, int64_t start, int64_t i, int64_t n, const gm_real<T> *x)
{
    gm_row_store<T>(rows, start, i, n, gm_pack<T>(x));
}

/* ---- rows in registers: a thread has HELD packs of a row of a.width elements at a time, so that a row of up to HELD
 * packs a thread is read once. c: the part's first element; i: the pack's. The macros take a, team, lane, HELD and V
 * from where they stand. ---- */

#define GM_HELD_WHOLE       (a.width <= (int64_t)HELD * team * V)
#define GM_PACK_PLACE(c, k) ((c) + ((k) * (int64_t)team + lane) * V)
#define GM_EACH_PART(c)     for (int64_t c = 0; c < a.width; c += (int64_t)HELD * team * V)
#define GM_EACH_PACK(c, k, i) \
    GM_UNROLL for (int k = 0; k < HELD; k++) if (const int64_t i = GM_PACK_PLACE(c, k); i < a.width)

/* The thread's packs of a part of the row of n that begins at `start`; zeros behind its end. All are under way before
 * the first is waited for: what is read between two loads would hold the second one up. */
template <class T, int HELD, int V = gm_lanes<T>>
GM_DEVICE void gm_row_hold(const gm_row_view *rows, int64_t start, int64_t c, int team, int lane, int64_t n,
                           gm_vector (&held)[HELD])
{
    const gm_vector none = {{0, 0, 0, 0}};
    const T        *p = (const T *)rows->data + start;
    if (rows->vectors && n % V == 0) {
        GM_UNROLL for (int k = 0; k < HELD; k++)
            held[k] = GM_PACK_PLACE(c, k) < n ? gm_load_vector(p + GM_PACK_PLACE(c, k)) : none;
    } else {
        GM_UNROLL for (int k = 0; k < HELD; k++) held[k] = none;
        GM_ROLLED for (int k = 0; k < HELD; k++)
            gm_push<HELD>(held, gm_row_load<T>(rows, start, GM_PACK_PLACE(c, k), n));
    }
}

/* ---- even rows (gm_rows_even in rows.h): whole packs, counted in 32 bits. The paths that are to reach the bandwidth
 * of memory have these alone, since every test of an element's place costs what an addition does. ---- */

template <class T> GM_DEVICE const gm_vector *gm_even_row(const gm_row_view *rows, int64_t r)
{
    return (const gm_vector *)((const T *)rows->data + r * rows->stride[0]);
}

template <class R> GM_DEVICE R gm_even_number(const gm_row_view *rows, int64_t r)
{
    return ((const R *)rows->data)[r * rows->stride[0]];
}

template <class R> GM_DEVICE void gm_even_set_number(const gm_row_view *rows, int64_t r, R v)
{
    if (rows->data) ((R *)rows->data)[r * rows->stride[0]] = v;
}

/* The thread's packs of a row of `packs`, all under way together: pack i is k * team + lane. The macros take team,
 * lane, packs and HELD from where they stand. */
#define GM_EACH_HELD(k, i) GM_UNROLL for (int k = 0; k < HELD; k++) if (const int i = k * team + lane; i < packs)

template <int HELD>
GM_DEVICE void gm_even_hold(const gm_vector *p, int team, int lane, int packs, gm_vector rest, gm_vector (&held)[HELD])
{
    GM_UNROLL for (int k = 0; k < HELD; k++) held[k] = k * team + lane < packs ? gm_load_vector(p + k * team + lane)
                                                                               : rest;
}

/* The team's next row comes nearer while it works on this one: of HELD <= 8 packs, a thread has a line or none. */
GM_DEVICE void gm_even_prefetch(const gm_vector *p, int lane, int packs)
{
    const int i = lane * (GM_LINE / (int)sizeof(gm_vector));
    if (i < packs) gm_prefetch(p + i);
}

/* Sums over the team of N numbers at once. A team of more than a warp is a block, and meets once. For that, `turn` must
 * be 0 and 1 alternately from call to call. scratch: 2 N numbers for each warp. */
template <int N, class R> GM_DEVICE void gm_even_sums(R (&v)[N], int team, int turn, R *scratch)
{
    GM_UNROLL for (int n = 0; n < N; n++) v[n] = gm_warp_sum(v[n]);
    if (team == GM_WARP) return;
    const int warps = team / GM_WARP;
    R        *room = scratch + turn * N * warps;
    if (gm_thread % GM_WARP == 0) {
        GM_UNROLL for (int n = 0; n < N; n++) room[n * warps + gm_thread / GM_WARP] = v[n];
    }
    GM_SYNC();
    GM_UNROLL for (int n = 0; n < N; n++)
    {
        v[n] = room[n * warps];
        for (int w = 1; w < warps; w++) v[n] += room[n * warps + w];
    }
}

#endif
