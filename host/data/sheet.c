/* sheet.c - see sheet.h. */
#include "sheet.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../image/resample.h"

#define GAP 2 /* pixels between pictures */

typedef struct sheet {
    const gm_dataset *d;
    int64_t           columns, size;
    gm_image          all, one, small;
    gm_resampler      resampler;
    void             *raw;
    int64_t          *y;
} sheet;

/* Numbers to bytes, from the least to the largest. */
static void to_bytes(const double *v, int64_t n, uint8_t *out)
{
    double least = INFINITY, most = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (v[i] < least) least = v[i];
        if (v[i] > most) most = v[i];
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = most > least && isfinite(v[i]) ? (uint8_t)(255 * ((v[i] - least) / (most - least)) + 0.5) : 0;
}

static gm_status read_one(sheet *s, int64_t i)
{
    const gm_dataset *d = s->d;
    if (d->image) return gm_dataset_image(d, 0, i, NULL, &s->one, s->y);
    GM_TRY(gm_image_shape(&s->one, d->x_shape[0], d->x_shape[1], d->x_shape[2]));
    GM_TRY(gm_dataset_read(d, 0, i, s->raw, s->y));
    if (d->x_dtype == GM_U8) memcpy(s->one.pixels, s->raw, (size_t)gm_dataset_x_numel(d));
    else to_bytes(s->raw, gm_dataset_x_numel(d), s->one.pixels);
    return GM_OK;
}

/* Fits a length into `size`: larger ones shrink, smaller ones grow a whole number of times. */
static double factor_of(int64_t longer, int64_t size)
{
    return longer > size ? (double)size / (double)longer : (double)(size / longer);
}

static gm_status place(sheet *s, int64_t k)
{
    const gm_image *one = &s->one;
    double          f = factor_of(one->height > one->width ? one->height : one->width, s->size);
    int64_t         h = (int64_t)((double)one->height * f), w = (int64_t)((double)one->width * f);
    int64_t         step = s->size + GAP, plane = s->all.height * s->all.width;
    if (h < 1) h = 1;
    if (w < 1) w = 1;
    GM_TRY(gm_image_shape(&s->small, one->channels, h, w));
    GM_TRY(gm_resample(&s->resampler, one->pixels, one->channels, one->height, one->width, s->small.pixels, h, w));
    int64_t top = k / s->columns * step + GAP + (s->size - h) / 2,
            left = k % s->columns * step + GAP + (s->size - w) / 2;
    for (int64_t c = 0; c < 3; c++)
        for (int64_t y = 0; y < h; y++)
            memcpy(s->all.pixels + c * plane + (top + y) * s->all.width + left,
                   s->small.pixels + ((one->channels == 3 ? c : 0) * h + y) * w, (size_t)w);
    return GM_OK;
}

static gm_status draw(sheet *s, const int64_t *samples, int64_t n)
{
    const gm_dataset *d = s->d;
    int64_t           rows = (n + s->columns - 1) / s->columns, step = s->size + GAP;
    s->raw = malloc(d->image ? 1 : (size_t)gm_dataset_x_numel(d) * 8 + 1);
    s->y = malloc((size_t)gm_dataset_y_numel(d) * 8 + 8);
    if (!s->raw || !s->y) return GM_FAIL(GM_ENOMEM, "no memory for a sample");
    GM_TRY(gm_image_shape(&s->all, 3, rows * step + GAP, s->columns * step + GAP));
    memset(s->all.pixels, 255, (size_t)(3 * s->all.height * s->all.width));
    for (int64_t k = 0; k < n; k++) {
        GM_TRY(read_one(s, samples[k]));
        GM_TRY(place(s, k));
    }
    return GM_OK;
}

gm_status gm_sheet_write(const char *path, const gm_dataset *d, const int64_t *samples, int64_t n, int64_t columns,
                         int64_t size)
{
    char text[96];
    if (n < 1 || n > GM_SHEET_MOST || columns < 1 || columns > 256 || size < 8 || size > 1024)
        return GM_FAIL(GM_EINVAL, "a sheet has 1 to %d pictures in 1 to 256 columns, each of 8 to 1024 pixels",
                       GM_SHEET_MOST);
    if (d->x_ndim != 3 || (d->x_shape[0] != 1 && d->x_shape[0] != 3) || d->x_dtype == GM_I64)
        return GM_FAIL(GM_ESHAPE, "a sheet needs pictures (1 or 3, height, width); these samples are %s",
                       gm_shape_describe(d->x_ndim, d->x_shape, text, sizeof text));
    sheet     s = {.d = d, .columns = n < columns ? n : columns, .size = size};
    gm_status st = draw(&s, samples, n);
    if (st == GM_OK) st = gm_image_write_png(path, &s.all);
    gm_resampler_free(&s.resampler);
    gm_image_free(&s.all);
    gm_image_free(&s.one);
    gm_image_free(&s.small);
    free(s.raw);
    free(s.y);
    return st;
}
