/* array_dataset.c - samples along the first dimension of two arrays of files, see dataset.h: npy, npz, safetensors. */
#include "dataset.h"

#include <stdlib.h>

#include "../arrays/arrays.h"

typedef struct side {
    gm_arrays      *file;
    const gm_array *a;
    int             ndim; /* of a sample */
    int64_t         stride[GM_MAX_DIMS];
} side;

typedef struct array_dataset {
    gm_dataset base;
    side       x, y;
} array_dataset;

/* Sample i of an array as `to`. */
static gm_status read_side(const side *s, int64_t i, gm_dtype to, void *out)
{
    gm_extent box = {.ndim = s->a->ndim, .offset = {i}, .shape = {1}};
    for (int d = 1; d < s->a->ndim; d++) box.shape[d] = s->a->shape[d];
    return gm_arrays_read(s->file, s->a, &box, to, out, s->stride);
}

static gm_status array_sample(const gm_dataset *base, uint64_t epoch, int64_t i, void *x, int64_t *y)
{
    (void)epoch;
    const array_dataset *d = (const array_dataset *)base;
    GM_TRY(read_side(&d->x, i, base->x_dtype, x));
    if (!d->y.a) {
        *y = 0;
        return GM_OK;
    }
    GM_TRY(read_side(&d->y, i, base->y_real ? GM_F64 : GM_I64, y));
    int64_t n = base->y_real || !base->classes ? 0 : gm_dataset_y_numel(base);
    for (int64_t k = 0; k < n; k++)
        if ((y[k] < 0 || y[k] >= base->classes) && y[k] != GM_TARGET_IGNORED)
            return GM_FAIL(GM_ECORRUPT, "%s: label %lld of sample %lld is not a class from 0 to %lld", d->y.file->path,
                           (long long)y[k], (long long)i + 1, (long long)base->classes - 1);
    return GM_OK;
}

static const char *array_file(const gm_dataset *base, int64_t i)
{
    (void)i;
    return ((const array_dataset *)base)->x.file->path;
}

static void array_free(gm_dataset *base)
{
    array_dataset *d = (array_dataset *)base;
    gm_arrays_close(d->x.file);
    gm_arrays_close(d->y.file);
    free(d);
}

/* The array of this name, or the only one. */
static gm_status find(side *s, const char *path, const char *name)
{
    GM_TRY(gm_arrays_open(path, &s->file));
    if (name) s->a = gm_arrays_find(s->file, name);
    else if (s->file->n == 1) s->a = &s->file->list[0];
    if (s->a && s->a->ndim > 0) {
        int64_t stride = 1;
        for (int d = s->a->ndim - 1; d >= 0; d--) s->stride[d] = stride, stride *= s->a->shape[d];
        return GM_OK;
    }
    if (s->a) return GM_FAIL(GM_ESHAPE, "%s: a single number is no array of samples", path);
    if (name) return GM_FAIL(GM_EINVAL, "%s: has no array '%s'", path, name);
    return GM_FAIL(GM_EINVAL, "%s: has %d arrays; say which, as PATH:NAME", path, s->file->n);
}

static bool is_whole(gm_element e) { return e >= GM_ELEMENT_I64 && e <= GM_ELEMENT_BOOL; }

/* The shape of a sample: of bytes (height, width) become one channel, and a number alone becomes (1). */
static void fit_x(gm_dataset *base, const gm_array *a, bool tokens)
{
    base->length = a->shape[0];
    base->x_dtype = tokens ? GM_I64 : a->element == GM_ELEMENT_U8 ? GM_U8 : GM_F64;
    if (a->ndim == 1 || (a->ndim == 3 && base->x_dtype == GM_U8)) base->x_shape[base->x_ndim++] = 1;
    for (int d = 1; d < a->ndim; d++) base->x_shape[base->x_ndim++] = a->shape[d];
}

gm_status gm_array_dataset_new(const char *x, const char *x_name, const char *y, const char *y_name,
                               const gm_array_options *o, gm_dataset **out)
{
    gm_status      st;
    array_dataset *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    d->base = (gm_dataset){
        .refs = 1, .classes = o->classes, .sample = array_sample, .file = array_file, .free = array_free};
    GM_TRY_OR(find(&d->x, x, x_name), st, failed);
    if (d->x.a->ndim >= GM_MAX_DIMS)
        GM_TRY_OR(GM_FAIL(GM_ESHAPE, "%s: has %d dimensions; at most %d", x, d->x.a->ndim, GM_MAX_DIMS - 1), st,
                  failed);
    fit_x(&d->base, d->x.a, o->tokens);
    if (y) {
        GM_TRY_OR(find(&d->y, y, y_name), st, failed);
        if (d->y.a->shape[0] != d->base.length)
            GM_TRY_OR(GM_FAIL(GM_ESHAPE, "%s holds %lld samples, %s holds %lld: do they belong together?", x,
                              (long long)d->base.length, y, (long long)d->y.a->shape[0]),
                      st, failed);
        d->base.y_real = !is_whole(d->y.a->element);
        for (int k = 1; k < d->y.a->ndim; k++) d->base.y_shape[d->base.y_ndim++] = d->y.a->shape[k];
    }
    *out = &d->base;
    return GM_OK;
failed:
    array_free(&d->base);
    return st;
}
