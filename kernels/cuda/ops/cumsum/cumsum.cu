/* cumsum.cu - sums of the elements up to each along one dimension. A block has a line, and goes along it in pieces of
 * an element a thread: sums within a piece in log2 steps (Hillis, Steele 1986), and what came before it. Short lines
 * have a thread each. Sums are f32, f64 for f64; their order does not depend on the grid. */
#include "../../common/map.cuh"
#include "cumsum_args.h"

template <class T, class R = gm_real<T>> GM_DEVICE void gm_cumsum_short(const gm_cumsum_args a)
{
    GM_GRID_LOOP(line, a.lines.n) {
        int64_t at[2];
        R       sum = 0;
        gm_map_place(&a.lines, 2, line, at);
        for (int64_t i = 0; i < a.n; i++) {
            const int64_t k = a.inverse ? a.n - 1 - i : i;
            sum += gm_at<T>(a.x, at[1] + k * a.x_step);
            gm_set<T>(a.y, at[0] + k * a.y_step, sum);
        }
    }
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_cumsum_long(const gm_cumsum_args a)
{
    GM_SHARED(R, sums);
    int64_t at[2];
    R       before = 0;
    gm_map_place(&a.lines, 2, gm_block_x, at);
    for (int64_t first = 0; first < a.n; first += gm_block_size) {
        const int64_t i = first + gm_thread, k = a.inverse ? a.n - 1 - i : i;
        R             sum = i < a.n ? gm_at<T>(a.x, at[1] + k * a.x_step) : (R)0;
        sums[gm_thread] = sum;
        for (int step = 1; step < gm_block_size; step *= 2) {
            GM_SYNC();
            const R more = gm_thread >= step ? sums[gm_thread - step] : (R)0;
            GM_SYNC();
            sum += more;
            sums[gm_thread] = sum;
        }
        if (i < a.n) gm_set<T>(a.y, at[0] + k * a.y_step, before + sum);
        GM_SYNC();
        before += sums[gm_block_size - 1];
        GM_SYNC();
    }
}

GM_KERNELS(gm_cumsum_short, gm_cumsum_args)
GM_KERNELS(gm_cumsum_long, gm_cumsum_args)
