/* image_dataset.c - datasets of labelled images in files: IDX pairs and fixed records (CIFAR). */
#include "array_file.h"
#include "dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static gm_status check_label(const char *path, double label, int64_t sample, int64_t classes)
{
    if (label >= 0 && label < (double)classes && label == floor(label)) return GM_OK;
    return GM_FAIL(GM_ECORRUPT, "%s: label %.17g of sample %lld is not a class from 0 to %lld", path, label,
                   (long long)sample, (long long)classes - 1);
}

/* ---- IDX ---- */

typedef struct idx_dataset {
    gm_dataset    base;
    gm_array_file images, labels;
    int64_t       numel; /* of one image */
} idx_dataset;

static gm_status idx_sample(const gm_dataset *base, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    (void)epoch;
    const idx_dataset *d = (const idx_dataset *)base;
    double             label;
    GM_TRY(base->x_dtype == GM_U8 ? gm_array_read_u8(&d->images, i * d->numel, d->numel, x)
                                  : gm_array_read_f64(&d->images, i * d->numel, d->numel, x));
    GM_TRY(gm_array_read_f64(&d->labels, i, 1, &label));
    GM_TRY(check_label(d->labels.bytes.path, label, i, base->classes));
    *y = (int64_t)label;
    return GM_OK;
}

static const char *idx_file(const gm_dataset *base, int64_t i)
{
    (void)i;
    return ((const idx_dataset *)base)->images.bytes.path;
}

static void idx_free(gm_dataset *base)
{
    idx_dataset *d = (idx_dataset *)base;
    gm_array_close(&d->images);
    gm_array_close(&d->labels);
    free(d);
}

static gm_status idx_fit(idx_dataset *d)
{
    const gm_array_file *x = &d->images, *y = &d->labels;
    gm_dataset          *base = &d->base;
    if (x->ndim < 2) return GM_FAIL(GM_ESHAPE, "%s: images need at least 2 dimensions, it has 1", x->bytes.path);
    if (y->ndim != 1) return GM_FAIL(GM_ESHAPE, "%s: labels need 1 dimension, it has %d", y->bytes.path, y->ndim);
    if (x->shape[0] != y->shape[0])
        return GM_FAIL(GM_ESHAPE, "%s holds %lld samples, %s holds %lld labels: do they belong together?",
                       x->bytes.path, (long long)x->shape[0], y->bytes.path, (long long)y->shape[0]);
    base->length = x->shape[0];
    base->x_dtype = x->type == GM_IDX_U8 ? GM_U8 : GM_F64;
    if (x->ndim == 3) base->x_shape[base->x_ndim++] = 1; /* (h, w): one channel */
    for (int i = 1; i < x->ndim; i++) base->x_shape[base->x_ndim++] = x->shape[i];
    d->numel = gm_dataset_x_numel(base);
    return GM_OK;
}

gm_status gm_idx_dataset_new(const char *images, const char *labels, int64_t classes, gm_dataset **out)
{
    gm_status    st;
    idx_dataset *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    d->base = (gm_dataset){.refs = 1, .classes = classes, .sample = idx_sample, .file = idx_file, .free = idx_free};
    GM_TRY_OR(gm_array_open(images, &d->images), st, failed);
    GM_TRY_OR(gm_array_open(labels, &d->labels), st, failed);
    GM_TRY_OR(idx_fit(d), st, failed);
    *out = &d->base;
    return GM_OK;
failed:
    idx_free(&d->base);
    return st;
}

/* ---- records ---- */

typedef struct record_dataset {
    gm_dataset       base;
    gm_record_layout layout;
    size_t           x_bytes;
    int              n;
    gm_bytes        *files;
} record_dataset;

static gm_status record_sample(const gm_dataset *base, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    (void)epoch;
    const record_dataset *d = (const record_dataset *)base;
    const gm_bytes       *f = d->files;
    size_t                k = (size_t)i, size = d->layout.record;
    unsigned char         label;
    for (; k >= f->size / size; f++) k -= f->size / size;
    GM_TRY(gm_bytes_copy(f, k * size + d->layout.x_offset, d->x_bytes, x));
    GM_TRY(gm_bytes_copy(f, k * size + d->layout.label_offset, 1, &label));
    GM_TRY(check_label(f->path, label, (int64_t)k, base->classes));
    *y = label;
    return GM_OK;
}

static const char *record_file(const gm_dataset *base, int64_t i)
{
    const record_dataset *d = (const record_dataset *)base;
    const gm_bytes       *f = d->files;
    size_t                size = d->layout.record;
    for (size_t k = (size_t)i; k >= f->size / size; f++) k -= f->size / size;
    return f->path;
}

static void record_free(gm_dataset *base)
{
    record_dataset *d = (record_dataset *)base;
    for (int i = 0; i < d->n; i++) gm_bytes_close(&d->files[i]);
    free(d->files);
    free(d);
}

static gm_status record_open(record_dataset *d, const char *path)
{
    gm_bytes *f = &d->files[d->n];
    GM_TRY(gm_bytes_map(path, GM_ACCESS_RANDOM, f));
    d->n++;
    if (!f->size || f->size % d->layout.record)
        return GM_FAIL(GM_ECORRUPT, "%s: %zu bytes are no whole number of %zu-byte records; fetch it again", path,
                       f->size, d->layout.record);
    if (d->layout.records && f->size / d->layout.record != d->layout.records)
        return GM_FAIL(GM_ECORRUPT,
                       "%s: %zu records were found, %zu expected as the published file has; fetch it again, or say "
                       "whole = false for files of your own",
                       path, f->size / d->layout.record, d->layout.records);
    d->base.length += (int64_t)(f->size / d->layout.record);
    return GM_OK;
}

gm_status gm_record_dataset_new(const char *const *paths, int n, const gm_record_layout *layout, gm_dataset **out)
{
    gm_status       st = GM_OK;
    record_dataset *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    d->base = (gm_dataset){.refs = 1,
                           .x_dtype = GM_U8,
                           .x_ndim = layout->x_ndim,
                           .classes = layout->classes,
                           .sample = record_sample,
                           .file = record_file,
                           .free = record_free};
    d->layout = *layout;
    memcpy(d->base.x_shape, layout->x_shape, sizeof layout->x_shape);
    d->x_bytes = (size_t)gm_dataset_x_numel(&d->base);
    if (layout->label_offset >= layout->record || layout->x_offset > layout->record ||
        d->x_bytes > layout->record - layout->x_offset)
        st = GM_FAIL(GM_EINVAL, "label and image do not fit into records of %zu bytes", layout->record);
    else if (!(d->files = calloc((size_t)n, sizeof *d->files))) st = GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    for (int i = 0; st == GM_OK && i < n; i++) st = record_open(d, paths[i]);
    if (st == GM_OK) *out = &d->base;
    else record_free(&d->base);
    return st;
}
