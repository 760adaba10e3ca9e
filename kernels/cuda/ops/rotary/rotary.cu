/* rotary.cu - rotary position embeddings: a team turns a row, a thread a pair of it at a time. Angles are worked out in
 * f64 and brought to -pi .. pi there, so that f32 has all its digits left for sine and cosine. These are taken of the
 * angle over pi: the functions for any angle keep an array in local memory, for very large ones. The limit is
 * bandwidth: the lanes of a warp read neighbours. */
#include "../../common/rows.cuh"
#include "rotary_args.h"

/* The angle less whole turns, over pi: -1 .. 1. 2 pi has two parts, so that the rest is right to f64's last digits. */
GM_DEVICE double gm_half_turns(double angle)
{
    const double turns = rint(angle * 0.15915494309189533577); /* 1 / (2 pi) */
    const double rest = fma(-turns, 2.4492935982947063545e-16, fma(-turns, 6.2831853071795864769, angle));
    return rest * 0.31830988618379067154; /* 1 / pi */
}
GM_DEVICE void gm_turn(double angle, double *s, double *c) { sincospi(gm_half_turns(angle), s, c); }
GM_DEVICE void gm_turn(double angle, float *s, float *c) { sincospif((float)gm_half_turns(angle), s, c); }

GM_DEVICE double gm_rotary_position(const gm_rotary_args &a, int64_t row)
{
    const int64_t place = row / a.lines, s = place % a.sequence;
    if (!a.index.data) return (double)(a.first + s);
    return (double)gm_row_index(&a.index, a.narrow, a.per_row ? place : s);
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_rotary(const gm_rotary_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const T      *x = (const T *)a.x.data + gm_row_start(&a.x, row);
    T            *y = (T *)a.y.data + gm_row_start(&a.y, row);
    const int64_t pairs = row % a.entries < a.rotated ? a.pairs : 0;
    const double  position = gm_rotary_position(a, row);
    for (int64_t j = lane; j < pairs; j += team) {
        const int64_t one = (a.interleaved ? 2 * j : j), other = (a.interleaved ? 2 * j + 1 : j + pairs);
        const R       u = gm_get(x[one * a.x.step]), v = gm_get(x[other * a.x.step]);
        R             s, c;
        gm_turn(position * (double)((const R *)a.frequency.data)[j * a.frequency.step], &s, &c);
        s *= (R)(a.inverse ? -a.alpha : a.alpha);
        c *= (R)a.alpha;
        y[one * a.y.step] = gm_put<T>(u * c - v * s);
        y[other * a.y.step] = gm_put<T>(v * c + u * s);
    }
    for (int64_t j = 2 * pairs + lane; j < a.width; j += team) y[j * a.y.step] = x[j * a.x.step];
}

GM_KERNELS(gm_rotary, gm_rotary_args)
