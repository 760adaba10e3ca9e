/* dataset.c - what all datasets share; see dataset.h. */
#include "dataset.h"

static int64_t product(int n, const int64_t *shape)
{
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= shape[i];
    return p;
}

int64_t gm_dataset_x_numel(const gm_dataset *d) { return product(d->x_ndim, d->x_shape); }
int64_t gm_dataset_y_numel(const gm_dataset *d) { return product(d->y_ndim, d->y_shape); }

gm_status gm_dataset_read(const gm_dataset *d, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    if (i < 0 || i >= d->length)
        return GM_FAIL(GM_EINVAL, "sample %lld of a dataset with %lld (they count from 0)", (long long)i,
                       (long long)d->length);
    return d->sample(d, epoch, i, x, y);
}

void gm_dataset_retain(gm_dataset *d) { d->refs++; }

void gm_dataset_release(gm_dataset *d)
{
    if (d && --d->refs == 0) d->free(d);
}
