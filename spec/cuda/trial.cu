/* trial.cu - kernels that spec/cuda/emulation_spec.lua tries the emulation itself with: right ones, and one for each
 * mistake that it promises to find. Part of the fake driver only. */
#include "../../kernels/cuda/common/kernel.cuh"

typedef struct gm_trial_args {
    float  *x;
    int64_t n;
} gm_trial_args;

/* x[i] = i, over the grid */
GM_KERNEL(gm_trial_count, gm_trial_args) { GM_GRID_LOOP(i, a.n) a.x[i] = (float)i; }

/* x[block] = the sum of 1 .. block size, by shuffles and shared memory */
GM_KERNEL(gm_trial_sum, gm_trial_args)
{
    GM_SHARED(float, scratch);
    float sum = gm_block_sum((float)(gm_thread + 1), scratch);
    if (gm_thread == 0) a.x[gm_block_x] = sum;
}

/* x[i] = x[n - 1 - i], through shared memory */
GM_KERNEL(gm_trial_turn, gm_trial_args)
{
    GM_SHARED(float, row);
    for (int i = gm_thread; i < a.n; i += gm_block_size) row[i] = a.x[i];
    GM_SYNC();
    for (int i = gm_thread; i < a.n; i += gm_block_size) a.x[i] = row[a.n - 1 - i];
}

/* the same without meeting: right in one order of threads at most */
GM_KERNEL(gm_trial_race, gm_trial_args)
{
    GM_SHARED(float, row);
    for (int i = gm_thread; i < a.n; i += gm_block_size) row[i] = a.x[i];
    for (int i = gm_thread; i < a.n; i += gm_block_size) a.x[i] = row[a.n - 1 - i];
}

GM_KERNEL(gm_trial_early_end, gm_trial_args)
{
    if (gm_thread >= a.n) return;
    GM_SYNC();
}

GM_KERNEL(gm_trial_two_places, gm_trial_args)
{
    if (gm_thread < a.n) {
        GM_SYNC();
    } else {
        GM_SYNC();
    }
}

GM_KERNEL(gm_trial_half_warp, gm_trial_args)
{
    float v = (float)gm_thread;
    if (gm_thread % 32 < 16) v = gm_shuffle_xor(v, 1);
    a.x[gm_thread] = v;
}

GM_KERNEL(gm_trial_past_shared, gm_trial_args)
{
    GM_SHARED(float, row);
    row[gm_thread] = 1;
}

/* 16 bytes at once, 4 bytes behind a place for them */
GM_KERNEL(gm_trial_misaligned, gm_trial_args)
{
    if (gm_thread == 0) a.x[0] = (float)gm_load_vector(a.x + 1).word[0];
}
