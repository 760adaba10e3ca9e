/* sort.c - see sort.h. */
#include "sort.h"

static void exchange(int32_t **a, int32_t **b)
{
    int32_t *c = *a;
    *a = *b;
    *b = c;
}

gm_status gm_sort_begin(gm_device *dev, const char *op, gm_sort_args *a, gm_block **block)
{
    const int64_t of_block = GM_SORT_THREADS * GM_SORT_EACH;
    void         *room;
    if (a->n >= INT32_MAX || a->rows >= INT32_MAX)
        return GM_FAIL(GM_EINVAL, "%s: %lld positions to sort by %lld keys are more than 2^31 - 2", op, (long long)a->n,
                       (long long)a->rows);
    a->blocks = (a->n + of_block - 1) / of_block;
    size_t numbers = (size_t)(4 * a->n + GM_SORT_DIGITS * a->blocks + a->rows + 1);
    GM_TRY(gm_cuda_scratch(dev, numbers * sizeof(int32_t), &room, block));
    a->key = room;
    a->position = a->key + a->n;
    a->key_out = a->position + a->n;
    a->position_out = a->key_out + a->n;
    a->count = a->position_out + a->n;
    a->start = a->count + GM_SORT_DIGITS * a->blocks;
    return GM_OK;
}

gm_status gm_sort_entries(gm_device *dev, gm_sort_args *a)
{
    gm_cuda_grid blocks = {.x = a->blocks, .block = GM_SORT_THREADS, .shared = GM_SORT_SHARED};
    gm_cuda_grid one = {.x = 1, .block = GM_SCAN_THREADS, .shared = GM_SCAN_THREADS * sizeof(int32_t)};
    for (a->shift = 0; a->n > 1 && a->shift < 32 && a->rows >> a->shift; a->shift += 8) {
        GM_TRY(GM_LAUNCH(dev, "gm_sort_count", blocks, *a));
        GM_TRY(GM_LAUNCH(dev, "gm_sort_scan", one, *a));
        GM_TRY(GM_LAUNCH(dev, "gm_sort_place", blocks, *a));
        exchange(&a->key, &a->key_out);
        exchange(&a->position, &a->position_out);
    }
    return GM_OK;
}

gm_status gm_sort(gm_device *dev, gm_sort_args *a)
{
    GM_TRY(gm_sort_entries(dev, a));
    return GM_LAUNCH(dev, "gm_sort_starts", gm_cuda_over(dev, a->n + 1, 1, 256), *a);
}
