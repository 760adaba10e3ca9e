/* dataset.c - what all datasets share; see dataset.h. */
#include "dataset.h"

#include <stdlib.h>
#include <zlib.h>

static int64_t product(int n, const int64_t *shape)
{
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= shape[i];
    return p;
}

int64_t gm_dataset_x_numel(const gm_dataset *d) { return product(d->x_ndim, d->x_shape); }
int64_t gm_dataset_y_numel(const gm_dataset *d) { return product(d->y_ndim, d->y_shape); }

static gm_status check_number(const gm_dataset *d, int64_t i)
{
    if (i >= 0 && i < d->length) return GM_OK;
    return GM_FAIL(GM_EINVAL, "sample %lld of a dataset with %lld (they count from 0)", (long long)i,
                   (long long)d->length);
}

gm_status gm_dataset_read(const gm_dataset *d, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    GM_TRY(check_number(d, i));
    return d->sample(d, epoch, i, x, y);
}

#define DAMAGED_MOST 100 /* in a row */

gm_status gm_dataset_image(const gm_dataset *d, uint64_t epoch, int64_t i, const gm_window_rule *rule, gm_image *x,
                           int64_t *y)
{
    int64_t most = d->length < DAMAGED_MOST ? d->length : DAMAGED_MOST;
    GM_TRY(check_number(d, i));
    for (int64_t k = 0; k < most; k++) {
        int64_t   at = (i + k) % d->length;
        gm_status st = d->image(d, epoch, at, rule, x, y);
        if (st != GM_ECORRUPT || !d->damage) return st;
        gm_damage_note(d->damage, at, gm_last_error());
    }
    return GM_FAIL(GM_ECORRUPT, "%lld pictures in a row are damaged, from sample %lld on", (long long)most,
                   (long long)i + 1);
}

gm_status gm_dataset_checksum(const gm_dataset *d, uint32_t *sum)
{
    if (d->checksum) return d->checksum(d, sum);
    int64_t   targets = gm_dataset_y_numel(d), n = d->length;
    size_t    x_bytes = (size_t)gm_dataset_x_numel(d) * gm_dtype_size(d->x_dtype), y_bytes = (size_t)targets * 8;
    char     *x = malloc(x_bytes + 1);
    int64_t  *y = malloc(y_bytes + 1);
    gm_status st = x && y ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a sample of a dataset");
    if (n > 1024 && (double)n * (double)(x_bytes + y_bytes) > 16e6) n = 1024;
    *sum = 0;
    for (int64_t k = 0; st == GM_OK && k < n; k++) {
        int64_t i = n == 1 ? 0 : (int64_t)((double)k * (double)(d->length - 1) / (double)(n - 1));
        st = gm_dataset_read(d, 0, i, x, y);
        if (st != GM_OK) break;
        *sum = (uint32_t)crc32_z(*sum, (const unsigned char *)x, x_bytes);
        *sum = (uint32_t)crc32_z(*sum, (const unsigned char *)y, y_bytes);
    }
    free(x);
    free(y);
    return st;
}

void gm_dataset_retain(gm_dataset *d) { d->refs++; }

void gm_dataset_release(gm_dataset *d)
{
    if (d && --d->refs == 0) d->free(d);
}
