/* map.c - index spaces of elementwise work (map.h). */
#include "map.h"

#include <string.h>

#define THREADS 256
#define EACH    2 /* items a thread has under way at once: kernels load two before they store one */

typedef struct axis {
    int64_t size, stride[GM_MAP_OPERANDS];
} axis;

/* Before b, when going from the outermost to the innermost: by the output's stride, then by the inputs'. */
static bool stands_outside(const axis *a, const axis *b, int operands)
{
    for (int o = 0; o < operands; o++)
        if (a->stride[o] != b->stride[o]) return a->stride[o] > b->stride[o];
    return false;
}

static void sort(axis *list, int n, int operands)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && stands_outside(&list[k], &list[k - 1], operands); k--) {
            axis t = list[k];
            list[k] = list[k - 1];
            list[k - 1] = t;
        }
}

static bool joins(const axis *outer, const axis *inner, int operands)
{
    for (int o = 0; o < operands; o++)
        if (outer->stride[o] != inner->stride[o] * inner->size) return false;
    return true;
}

static gm_divider divider_of(int64_t d)
{
    uint32_t shift = 0;
    if (d < 1 || d > INT32_MAX) return (gm_divider){0, 0}; /* of no use: the map is wide or empty */
    while (((int64_t)1 << shift) < d) shift++;
    uint64_t rest = ((uint64_t)1 << shift) - (uint64_t)d;
    return (gm_divider){(uint32_t)((rest << 32) / (uint64_t)d + 1), shift};
}

static void finish(gm_map *m)
{
    m->n = 1;
    for (int d = 0; d < m->ndim; d++) m->n *= m->shape[d];
    m->wide = m->n > INT32_MAX;
    for (int d = 0; d < m->ndim; d++) m->by[d] = divider_of(m->shape[d]);
}

void gm_map_of(gm_map *m, int ndim, const int64_t *shape, int operands, int64_t (*stride)[GM_MAX_DIMS])
{
    axis list[GM_MAX_DIMS];
    int  n = 0, kept = 0;
    memset(m, 0, sizeof *m);
    for (int d = 0; d < ndim; d++) {
        if (shape[d] == 1) continue;
        list[n].size = shape[d];
        for (int o = 0; o < operands; o++) list[n].stride[o] = stride[o][d];
        n++;
    }
    sort(list, n, operands);
    for (int i = 1; i < n; i++) {
        axis *outer = &list[kept], inner = list[i];
        if (joins(outer, &inner, operands)) inner.size *= outer->size;
        else kept++;
        list[kept] = inner;
    }
    if (n == 0) {
        list[0].size = 1;
        for (int o = 0; o < operands; o++) list[0].stride[o] = 1;
    }
    m->ndim = kept + 1;
    for (int d = 0; d < m->ndim; d++) {
        m->shape[d] = list[d].size;
        for (int o = 0; o < operands; o++) m->stride[o][d] = list[d].stride[o];
    }
    finish(m);
}

void gm_map_tensors(gm_map *m, int operands, const gm_tensor *const *t)
{
    const gm_tensor *y = t[0];
    int64_t          stride[GM_MAP_OPERANDS][GM_MAX_DIMS] = {{0}};
    for (int o = 0; o < operands; o++)
        for (int d = 0; d < t[o]->ndim; d++)
            if (t[o]->shape[d] != 1) stride[o][y->ndim - t[o]->ndim + d] = t[o]->stride[d];
    gm_map_of(m, y->ndim, y->shape, operands, stride);
}

static bool allows(const gm_map *m, int o, int lanes, const void *address, size_t size)
{
    int inner = m->ndim - 1;
    if (m->stride[o][inner] == 0 && o > 0) return true;
    if (m->stride[o][inner] != 1) return false;
    if (!size) return true;
    if ((uintptr_t)address % ((size_t)lanes * size)) return false;
    for (int d = 0; d < inner; d++)
        if (m->stride[o][d] % lanes) return false;
    return true;
}

bool gm_map_vectors(gm_map *m, int operands, int lanes, const void *const *address, const size_t *size)
{
    int inner = m->ndim - 1;
    if (lanes < 2 || (m->ndim > 1 && m->shape[inner] % lanes)) return false;
    for (int o = 0; o < operands; o++)
        if (!allows(m, o, lanes, address[o], size[o])) return false;
    m->tail = m->shape[inner] % lanes;
    m->shape[inner] /= lanes;
    for (int o = 0; o < operands; o++) {
        m->step[o] = (int32_t)m->stride[o][inner];
        m->stride[o][inner] *= lanes;
    }
    finish(m);
    return true;
}

gm_cuda_grid gm_map_grid(const gm_device *dev, const gm_map *m)
{
    gm_cuda_grid g = gm_cuda_over(dev, m->n, EACH, THREADS);
    if (g.x == 0 && m->tail) g.x = 1;
    return g;
}
