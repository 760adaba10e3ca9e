/* sort.cu - the kernels of sort.h: a stable counting sort of 8 bits in each pass, and the begin of the entries of each
 * key. An index outside of the table is refused (refusal.h) and gets the key of entries without a row. */
#include "../../common/rows.cuh"
#include "sort.h"

/* key and position of each entry, from the indices */
GM_KERNEL(gm_sort_keys, gm_sort_args)
{
    GM_GRID_LOOP(i, a.n) {
        int64_t row = gm_row_index(&a.index, a.narrow, i);
        int     inside = row >= 0 && row < a.rows;
        if (!inside && !a.part) gm_refuse(a.refusal, a.op, row, i, a.rows);
        a.key[i] = (int32_t)(inside && row != a.padding ? row : a.rows);
        a.position[i] = (int32_t)i;
    }
}

/* count[digit][thread] of the entries of each thread of the block */
GM_DEVICE void gm_sort_tally(const gm_sort_args *a, uint16_t *count)
{
    const int64_t first = (gm_block_x * GM_SORT_THREADS + gm_thread) * GM_SORT_EACH;
    for (int d = 0; d < GM_SORT_DIGITS; d++) count[d * GM_SORT_THREADS + gm_thread] = 0;
    for (int64_t i = first; i < first + GM_SORT_EACH && i < a->n; i++)
        count[(a->key[i] >> a->shift & (GM_SORT_DIGITS - 1)) * GM_SORT_THREADS + gm_thread]++;
    GM_SYNC();
}

/* How many entries of each digit the block has. */
GM_KERNEL(gm_sort_count, gm_sort_args)
{
    GM_SHARED(uint16_t, count);
    gm_sort_tally(&a, count);
    for (int d = gm_thread; d < GM_SORT_DIGITS; d += GM_SORT_THREADS) {
        int32_t all = 0;
        for (int t = 0; t < GM_SORT_THREADS; t++) all += count[d * GM_SORT_THREADS + (t + gm_thread) % GM_SORT_THREADS];
        a.count[d * a.blocks + gm_block_x] = all;
    }
}

/* count becomes the number of entries before each, in order of digit and block: one block for all. */
GM_KERNEL(gm_sort_scan, gm_sort_args)
{
    GM_SHARED(int32_t, sums);
    const int64_t n = GM_SORT_DIGITS * a.blocks, each = (n + GM_SCAN_THREADS - 1) / GM_SCAN_THREADS;
    const int64_t first = gm_thread * each, end = first + each < n ? first + each : n;
    int32_t       sum = 0;
    for (int64_t i = first; i < end; i++) sum += a.count[i];
    sums[gm_thread] = sum;
    for (int step = 1; step < GM_SCAN_THREADS; step *= 2) {
        GM_SYNC();
        int32_t more = gm_thread >= step ? sums[gm_thread - step] : 0;
        GM_SYNC();
        sums[gm_thread] += more;
    }
    sum = sums[gm_thread] - sum;
    for (int64_t i = first; i < end; i++) {
        int32_t mine = a.count[i];
        a.count[i] = sum;
        sum += mine;
    }
}

/* Each entry to its place: after those of lower digits, of earlier blocks, threads and entries. */
GM_KERNEL(gm_sort_place, gm_sort_args)
{
    GM_SHARED(uint16_t, count);
    int32_t      *base = (int32_t *)(void *)(count + GM_SORT_DIGITS * GM_SORT_THREADS);
    const int64_t first = (gm_block_x * GM_SORT_THREADS + gm_thread) * GM_SORT_EACH;
    gm_sort_tally(&a, count);
    for (int d = gm_thread; d < GM_SORT_DIGITS; d += GM_SORT_THREADS) {
        int before = 0;
        base[d] = a.count[d * a.blocks + gm_block_x];
        for (int t = 0; t < GM_SORT_THREADS; t++) {
            int mine = count[d * GM_SORT_THREADS + t];
            count[d * GM_SORT_THREADS + t] = (uint16_t)before;
            before += mine;
        }
    }
    GM_SYNC();
    for (int64_t i = first; i < first + GM_SORT_EACH && i < a.n; i++) {
        int     d = a.key[i] >> a.shift & (GM_SORT_DIGITS - 1);
        int32_t to = base[d] + count[d * GM_SORT_THREADS + gm_thread]++;
        a.key_out[to] = a.key[i];
        a.position_out[to] = a.position[i];
    }
}

/* start[r]: how many entries have keys below r; each entry fills in those between its key and the one before. */
GM_KERNEL(gm_sort_starts, gm_sort_args)
{
    GM_GRID_LOOP(i, a.n + 1) {
        int32_t before = i > 0 ? a.key[i - 1] : -1, key = i < a.n ? a.key[i] : (int32_t)a.rows;
        for (int32_t r = before + 1; r <= key; r++) a.start[r] = (int32_t)i;
    }
}
