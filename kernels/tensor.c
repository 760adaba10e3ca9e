/* tensor.c - headers and views of tensors; the bytes come from the device's pool (memory.c). */
#include "element.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "device.h"

#define MAX_BYTES ((int64_t)1 << 47)

void gm_shape_strides(int ndim, const int64_t *shape, int64_t *stride)
{
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= shape[d] ? shape[d] : 1;
    }
}

char *gm_shape_describe(int ndim, const int64_t *shape, char *buf, size_t size)
{
    int n = snprintf(buf, size, "(");
    for (int d = 0; d < ndim && n >= 0 && (size_t)n < size; d++)
        n += snprintf(buf + n, size - (size_t)n, d ? ", %" PRId64 : "%" PRId64, shape[d]);
    if (n >= 0 && (size_t)n < size) snprintf(buf + n, size - (size_t)n, ")");
    return buf;
}

char *gm_tensor_describe(const gm_tensor *t, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s ", gm_dtype_name(t->dtype));
    if (n >= 0 && (size_t)n < size) gm_shape_describe(t->ndim, t->shape, buf + n, size - (size_t)n);
    return buf;
}

static gm_status check_shape(gm_dtype dtype, int ndim, const int64_t *shape, int64_t *numel)
{
    if (ndim < 0 || ndim > GM_MAX_DIMS)
        return GM_FAIL(GM_ESHAPE, "%d dimensions; at most %d are allowed", ndim, GM_MAX_DIMS);
    int64_t n = 1, limit = MAX_BYTES / (int64_t)gm_dtype_size(dtype); /* n: sizes of 0 left out, as in the strides */
    bool    empty = false;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] < 0)
            return GM_FAIL(GM_ESHAPE, "dimension %d is %" PRId64 "; sizes are not negative", d + 1, shape[d]);
        if (shape[d] && n > limit / shape[d])
            return GM_FAIL(GM_ESHAPE, "a tensor of this shape has more than 2^47 bytes");
        n *= shape[d] ? shape[d] : 1;
        empty |= shape[d] == 0;
    }
    *numel = empty ? 0 : n;
    return GM_OK;
}

static gm_status header_new(gm_dtype dtype, int ndim, const int64_t *shape, gm_tensor **out)
{
    gm_tensor *t = calloc(1, sizeof *t);
    if (!t) return GM_FAIL(GM_ENOMEM, "no memory for a tensor header");
    t->refs = 1;
    t->dtype = dtype;
    t->ndim = ndim;
    for (int d = 0; d < ndim; d++) t->shape[d] = shape[d];
    gm_shape_strides(ndim, shape, t->stride);
    *out = t;
    return GM_OK;
}

static gm_status storage_new(gm_device *dev, size_t bytes, bool absent, gm_storage **out)
{
    gm_storage *s = calloc(1, sizeof *s);
    if (!s) return GM_FAIL(GM_ENOMEM, "no memory for a storage header");
    gm_status st = absent ? GM_OK : gm_pool_alloc(dev->pool, bytes, &s->data, &s->block);
    if (st != GM_OK) {
        free(s);
        return st;
    }
    s->refs = 1;
    s->bytes = bytes;
    s->device = dev;
    *out = s;
    return GM_OK;
}

void gm_storage_retain(gm_storage *s) { s->refs++; }

void gm_storage_release(gm_storage *s)
{
    if (--s->refs) return;
    if (s->home) s->home->gone(s->home);
    if (s->block) gm_pool_release(s->device->pool, s->block);
    free(s->known);
    free(s);
}

gm_status gm_storage_open(gm_storage *s)
{
    if (s->home) GM_TRY(s->home->open(s->home));
    s->opens++;
    return GM_OK;
}

void gm_storage_close(gm_storage *s, bool changed)
{
    s->opens--;
    if (s->home) s->home->close(s->home, changed);
}

void gm_storage_vacate(gm_storage *s)
{
    if (!s->block) return;
    gm_pool_release(s->device->pool, s->block);
    s->data = NULL;
    s->block = NULL;
}

gm_status gm_storage_occupy(gm_storage *s)
{
    return s->block ? GM_OK : gm_pool_alloc(s->device->pool, s->bytes, &s->data, &s->block);
}

static gm_status tensor_new(gm_device *dev, gm_dtype dtype, int ndim, const int64_t *shape, bool absent,
                            gm_tensor **out)
{
    int64_t     n;
    gm_storage *s = NULL;
    GM_TRY(check_shape(dtype, ndim, shape, &n));
    GM_TRY(storage_new(dev, (size_t)n * gm_dtype_size(dtype), absent, &s));
    gm_status st = header_new(dtype, ndim, shape, out);
    if (st != GM_OK) {
        gm_storage_release(s);
        return st;
    }
    (*out)->storage = s;
    return GM_OK;
}

gm_status gm_tensor_new(gm_device *dev, gm_dtype dtype, int ndim, const int64_t *shape, gm_tensor **out)
{
    return tensor_new(dev, dtype, ndim, shape, false, out);
}

gm_status gm_tensor_new_shared(gm_device *dev, gm_dtype dtype, int ndim, const int64_t *shape, gm_tensor **out)
{
    bool      before = gm_pool_want_shared(dev->pool, true);
    gm_status st = tensor_new(dev, dtype, ndim, shape, false, out);
    (void)gm_pool_want_shared(dev->pool, before);
    return st;
}

gm_status gm_tensor_new_absent(gm_device *dev, gm_dtype dtype, int ndim, const int64_t *shape, gm_tensor **out)
{
    return tensor_new(dev, dtype, ndim, shape, true, out);
}

void gm_tensor_retain(gm_tensor *t) { t->refs++; }

void gm_tensor_release(gm_tensor *t)
{
    if (!t || --t->refs) return;
    gm_storage_release(t->storage);
    free(t);
}

static gm_status view_new(gm_tensor *t, int ndim, const int64_t *shape, const int64_t *stride, int64_t offset,
                          gm_tensor **out)
{
    GM_TRY(header_new(t->dtype, ndim, shape, out));
    for (int d = 0; d < ndim; d++) (*out)->stride[d] = stride[d];
    (*out)->offset = offset;
    (*out)->storage = t->storage;
    t->storage->refs++;
    return GM_OK;
}

gm_status gm_tensor_view(gm_tensor *t, int ndim, const int64_t *shape, const int64_t *stride, int64_t offset,
                         gm_tensor **out)
{
    int64_t n, last = offset, reach;
    bool    far_out = offset < 0;
    GM_TRY(check_shape(t->dtype, ndim, shape, &n));
    for (int d = 0; d < ndim; d++) {
        if (stride[d] < 0) return GM_FAIL(GM_EINVAL, "view: strides are not negative");
        if (n)
            far_out |= __builtin_mul_overflow(shape[d] - 1, stride[d], &reach) ||
                       __builtin_add_overflow(last, reach, &last);
    }
    int64_t held = (int64_t)(t->storage->bytes / gm_dtype_size(t->dtype));
    if (far_out || (n && last >= held))
        return GM_FAIL(GM_ESHAPE, "view: it would reach past the end of a storage of %" PRId64 " elements", held);
    return view_new(t, ndim, shape, stride, offset, out);
}

/* Strides that show t under another shape, if any. Walks runs of t's dimensions that are contiguous
 * with each other and splits each run among the new dimensions. */
static bool reshape_strides(const gm_tensor *t, int ndim, const int64_t *shape, int64_t *stride)
{
    if (gm_tensor_numel(t) == 0) {
        gm_shape_strides(ndim, shape, stride);
        return true;
    }
    int old = t->ndim - 1, dim = ndim - 1;
    while (dim >= 0 || old >= 0) {
        while (old >= 0 && t->shape[old] == 1) old--;
        if (old < 0) { /* what is left has one element */
            for (; dim >= 0; dim--) stride[dim] = 1;
            break;
        }
        int64_t run = t->shape[old], step = t->stride[old], outer = step * run;
        old--;
        while (old >= 0 && (t->shape[old] == 1 || t->stride[old] == outer)) {
            run *= t->shape[old];
            if (t->shape[old] != 1) outer = t->stride[old] * t->shape[old];
            old--;
        }
        int64_t filled = 1;
        while (dim >= 0 && filled < run) {
            stride[dim] = step * filled;
            filled *= shape[dim];
            dim--;
        }
        if (filled != run) return false;
        while (dim >= 0 && shape[dim] == 1) {
            stride[dim] = step * filled;
            dim--;
        }
    }
    return true;
}

bool gm_tensor_can_reshape(const gm_tensor *t, int ndim, const int64_t *shape)
{
    int64_t stride[GM_MAX_DIMS], n = 1;
    for (int d = 0; d < ndim; d++) n *= shape[d];
    return ndim <= GM_MAX_DIMS && n == gm_tensor_numel(t) && reshape_strides(t, ndim, shape, stride);
}

gm_status gm_tensor_reshape(gm_tensor *t, int ndim, const int64_t *shape, gm_tensor **out)
{
    int64_t stride[GM_MAX_DIMS], n;
    char    from[96], to[96];
    GM_TRY(check_shape(t->dtype, ndim, shape, &n));
    if (n != gm_tensor_numel(t))
        return GM_FAIL(GM_ESHAPE, "reshape: %s has %" PRId64 " elements, %s would have %" PRId64,
                       gm_tensor_describe(t, from, sizeof from), gm_tensor_numel(t),
                       gm_shape_describe(ndim, shape, to, sizeof to), n);
    if (!reshape_strides(t, ndim, shape, stride))
        return GM_FAIL(GM_ESHAPE, "reshape: %s is not contiguous enough to be shown as %s; copy it first",
                       gm_tensor_describe(t, from, sizeof from), gm_shape_describe(ndim, shape, to, sizeof to));
    return view_new(t, ndim, shape, stride, t->offset, out);
}

gm_status gm_tensor_permute(gm_tensor *t, const int *order, gm_tensor **out)
{
    int64_t  shape[GM_MAX_DIMS] = {0}, stride[GM_MAX_DIMS] = {0};
    unsigned seen = 0;
    for (int d = 0; d < t->ndim; d++) {
        if (order[d] < 0 || order[d] >= t->ndim || seen & 1u << order[d])
            return GM_FAIL(GM_ESHAPE, "permute: the order must name each of the %d dimensions once", t->ndim);
        seen |= 1u << order[d];
        shape[d] = t->shape[order[d]];
        stride[d] = t->stride[order[d]];
    }
    return view_new(t, t->ndim, shape, stride, t->offset, out);
}

static gm_status check_dim(const gm_tensor *t, const char *op, int dim)
{
    if (dim >= 0 && dim < t->ndim) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s: dimension %d of a tensor with %d", op, dim + 1, t->ndim);
}

/* As messages count; any index will do. */
static int64_t from_one(int64_t index) { return (int64_t)((uint64_t)index + 1); }

gm_status gm_tensor_narrow(gm_tensor *t, int dim, int64_t start, int64_t length, gm_tensor **out)
{
    GM_TRY(check_dim(t, "narrow", dim));
    if (start < 0 || length < 0 || start > t->shape[dim] || length > t->shape[dim] - start)
        return GM_FAIL(GM_ESHAPE, "narrow: %" PRId64 " elements from %" PRId64 " of dimension %d, which has %" PRId64,
                       length, from_one(start), dim + 1, t->shape[dim]);
    GM_TRY(view_new(t, t->ndim, t->shape, t->stride, t->offset + start * t->stride[dim], out));
    (*out)->shape[dim] = length;
    return GM_OK;
}

gm_status gm_tensor_select(gm_tensor *t, int dim, int64_t index, gm_tensor **out)
{
    int64_t shape[GM_MAX_DIMS] = {0}, stride[GM_MAX_DIMS] = {0};
    GM_TRY(check_dim(t, "select", dim));
    if (index < 0 || index >= t->shape[dim])
        return GM_FAIL(GM_ESHAPE, "select: index %" PRId64 " of dimension %d, which has %" PRId64, from_one(index),
                       dim + 1, t->shape[dim]);
    for (int d = 0, k = 0; d < t->ndim; d++) {
        if (d == dim) continue;
        shape[k] = t->shape[d];
        stride[k++] = t->stride[d];
    }
    return view_new(t, t->ndim - 1, shape, stride, t->offset + index * t->stride[dim], out);
}

gm_status gm_tensor_expand(gm_tensor *t, int ndim, const int64_t *shape, gm_tensor **out)
{
    int64_t stride[GM_MAX_DIMS], n;
    char    from[96], to[96];
    GM_TRY(check_shape(t->dtype, ndim, shape, &n));
    int lead = ndim - t->ndim;
    for (int d = 0; d < ndim; d++) {
        int k = d - lead;
        if (lead >= 0 && k < 0) stride[d] = 0;
        else if (lead >= 0 && t->shape[k] == shape[d]) stride[d] = t->stride[k];
        else if (lead >= 0 && t->shape[k] == 1) stride[d] = 0;
        else
            return GM_FAIL(GM_ESHAPE, "expand: %s does not broadcast to %s", gm_tensor_describe(t, from, sizeof from),
                           gm_shape_describe(ndim, shape, to, sizeof to));
    }
    return view_new(t, ndim, shape, stride, t->offset, out);
}

int64_t gm_tensor_numel(const gm_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->shape[d];
    return n;
}

bool gm_tensor_is_contiguous(const gm_tensor *t)
{
    int64_t step = 1;
    if (gm_tensor_numel(t) == 0) return true;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->shape[d] != 1 && t->stride[d] != step) return false;
        step *= t->shape[d];
    }
    return true;
}

bool gm_tensor_same_shape(const gm_tensor *a, const gm_tensor *b)
{
    if (a->ndim != b->ndim) return false;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d]) return false;
    return true;
}

void *gm_tensor_data(const gm_tensor *t) { return gm_elements(t); }

bool gm_tensor_has_data(const gm_tensor *t)
{
    return t->storage->data || (t->storage->home && t->storage->device->backend->has_data);
}

void *gm_tensor_known(const gm_tensor *t)
{
    if (!t->storage || !t->storage->known) return NULL; /* a header of a shape alone has no storage */
    return (char *)t->storage->known + (size_t)t->offset * gm_dtype_size(t->dtype);
}

void *gm_tensor_know(gm_tensor *t)
{
    gm_storage *s = t->storage;
    if (!s->known && !s->device->backend->has_data && s->bytes <= GM_KNOWN_BYTES) s->known = calloc(1, s->bytes + 1);
    return gm_tensor_known(t);
}

void gm_tensor_forget(gm_tensor *t)
{
    free(t->storage->known);
    t->storage->known = NULL;
}
