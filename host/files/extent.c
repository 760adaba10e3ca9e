/* extent.c - see extent.h. */
#include "extent.h"

#include <string.h>

int64_t gm_extent_numel(const gm_extent *b)
{
    int64_t n = 1;
    for (int i = 0; i < b->ndim; i++) n *= b->shape[i];
    return n;
}

bool gm_extent_inside(const gm_extent *b, const int64_t *shape)
{
    for (int i = 0; i < b->ndim; i++)
        if (b->offset[i] < 0 || b->shape[i] < 0 || b->shape[i] > shape[i] || b->offset[i] > shape[i] - b->shape[i])
            return false;
    return true;
}

bool gm_extent_meet(const gm_extent *a, const gm_extent *b, gm_extent *out)
{
    out->ndim = a->ndim;
    for (int i = 0; i < a->ndim; i++) {
        int64_t begin = a->offset[i] > b->offset[i] ? a->offset[i] : b->offset[i];
        int64_t end_a = a->offset[i] + a->shape[i], end_b = b->offset[i] + b->shape[i];
        int64_t end = end_a < end_b ? end_a : end_b;
        if (end <= begin) return false;
        out->offset[i] = begin, out->shape[i] = end - begin;
    }
    return true;
}

/* Disjoint boxes inside the shape whose volumes add up to it leave no hole. */
bool gm_extents_cover(const gm_extent *boxes, int n, int ndim, const int64_t *shape, const char **why)
{
    gm_extent all = {.ndim = ndim}, common;
    int64_t   held = 0;
    for (int i = 0; i < ndim; i++) all.shape[i] = shape[i];
    for (int i = 0; i < n; i++) {
        held += gm_extent_numel(&boxes[i]);
        for (int k = 0; k < i; k++)
            if (gm_extent_meet(&boxes[i], &boxes[k], &common)) {
                *why = "overlap";
                return false;
            }
    }
    *why = "leave a hole";
    return held == gm_extent_numel(&all);
}

int64_t gm_extent_run(const gm_extent *part, const gm_extent *box)
{
    int64_t n = 1;
    for (int i = part->ndim - 1; i >= 0; i--) {
        n *= part->shape[i];
        if (part->shape[i] != box->shape[i]) break;
    }
    return n;
}

int64_t gm_extent_place(const gm_extent *part, const gm_extent *box, int64_t at)
{
    int64_t where = 0, stride = 1;
    for (int i = part->ndim - 1; i >= 0; i--) {
        where += (part->offset[i] - box->offset[i] + at % part->shape[i]) * stride;
        at /= part->shape[i], stride *= box->shape[i];
    }
    return where;
}

void gm_extent_copy(const gm_extent *part, int64_t first, int64_t n, size_t size, char *run, char *data,
                    const int64_t *stride, const int64_t *origin, bool to_run)
{
    int nd = part->ndim;
    if (n <= 0) return; /* nothing, also where a size is 0 */
    int64_t at[GM_MAX_DIMS], row = nd ? part->shape[nd - 1] : 1;
    for (int64_t i = nd - 1, rest = first; i >= 0; rest /= part->shape[i], i--) at[i] = rest % part->shape[i];
    while (n > 0) {
        int64_t left = nd ? row - at[nd - 1] : 1, m = left < n ? left : n, where = 0;
        int64_t step = nd ? stride[nd - 1] : 1;
        for (int i = 0; i < nd; i++) where += (part->offset[i] + at[i] - origin[i]) * stride[i];
        char *block = data + where * (int64_t)size;
        if (step == 1) memcpy(to_run ? run : block, to_run ? block : run, (size_t)m * size);
        else
            for (int64_t k = 0; k < m; k++) {
                char *e = block + k * step * (int64_t)size, *r = run + (size_t)k * size;
                memcpy(to_run ? r : e, to_run ? e : r, size);
            }
        run += (size_t)m * size, n -= m;
        if (!nd) return;
        at[nd - 1] += m;
        for (int i = nd - 1; i > 0 && at[i] == part->shape[i]; i--) at[i] = 0, at[i - 1]++;
    }
}

void gm_extent_clear_rest(const gm_tensor *t, void *elements, const int64_t *held)
{
    static const char zeros[4096];
    const int64_t     origin[GM_MAX_DIMS] = {0};
    for (int d = 0; d < t->ndim; d++) { /* one slab for each padded dimension */
        gm_extent slab = {.ndim = t->ndim};
        memcpy(slab.shape, t->shape, sizeof slab.shape);
        slab.offset[d] = held[d], slab.shape[d] = t->shape[d] - held[d];
        size_t  size = gm_dtype_size(t->dtype);
        int64_t n = gm_extent_numel(&slab), most = (int64_t)(sizeof zeros / size);
        for (int64_t at = 0; at < n; at += most)
            gm_extent_copy(&slab, at, n - at < most ? n - at : most, size, (char *)(uintptr_t)zeros, elements,
                           t->stride, origin, false);
    }
}
