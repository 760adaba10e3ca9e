/* map.h - a map: one index space over up to four tensors of any strides, for kernels that work element by element.
 * Operand 0 is the output. The file is C for host and kernels; gm_map_place is for kernels.
 *
 * The host (map.c) drops dimensions of size 1, sorts the others by the output's strides, since elementwise work has no
 * order, and joins neighbours that have no gap in any operand. Tensors without gaps become one dimension; broadcasts
 * and windows keep several. An item is one element, or `lanes` consecutive elements if all operands can load and store
 * them as 16 bytes. An input may also repeat one element in an item (step 0). */
#ifndef GM_CUDA_ELEMENTWISE_MAP_H
#define GM_CUDA_ELEMENTWISE_MAP_H

#include "../../tensor.h"

#define GM_MAP_OPERANDS 4

/* i / d = (i * multiply / 2^32 + i) / 2^shift, for i and d from 0 (d: 1) to 2^31 - 1. Granlund, Montgomery 1994. */
typedef struct gm_divider {
    uint32_t multiply, shift;
} gm_divider;

typedef struct gm_map {
    int64_t    n;                     /* items */
    int64_t    tail;                  /* elements behind the last item, if there is one dimension: fewer than lanes */
    int32_t    ndim;                  /* 1 or more */
    int32_t    wide;                  /* 2^31 items or more, which need plain divisions */
    int32_t    step[GM_MAP_OPERANDS]; /* distance between the elements of an item: 1, or 0 */
    int64_t    shape[GM_MAX_DIMS];
    gm_divider by[GM_MAX_DIMS];
    int64_t    stride[GM_MAP_OPERANDS][GM_MAX_DIMS]; /* between items, in elements */
} gm_map;

typedef struct gm_map_args {
    gm_map      map;
    const void *in[3];
    void       *out;
    double      alpha, beta;        /* alpha: also the value of a function */
    int32_t     function, from, to; /* gm_function, gm_dtype */
    uint64_t    pattern[2];         /* of fill: 16 bytes */
} gm_map_args;

#ifdef GM_KERNEL
/* Gives the offsets of item i in each operand, in elements: at[operands]. */
GM_DEVICE void gm_map_place(const gm_map *m, int operands, int64_t i, int64_t *at)
{
    for (int o = 0; o < operands; o++) at[o] = 0;
    GM_ROLLED for (int d = m->ndim - 1; d > 0; d--)
    {
        int64_t rest;
        if (m->wide) {
            rest = i / m->shape[d];
        } else {
            uint32_t j = (uint32_t)i;
            rest = (uint32_t)(((uint64_t)j * m->by[d].multiply >> 32) + j) >> m->by[d].shift;
        }
        int64_t k = i - rest * m->shape[d];
        i = rest;
        for (int o = 0; o < operands; o++) at[o] += k * m->stride[o][d];
    }
    for (int o = 0; o < operands; o++) at[o] += i * m->stride[o][0];
}
#else
#include "../runtime/cuda.h"

/* Makes a map over one shape, with strides for each operand. Items are elements. */
void gm_map_of(gm_map *m, int ndim, const int64_t *shape, int operands, int64_t (*stride)[GM_MAX_DIMS]);
/* Makes a map over tensors, which are broadcast to the first one, the output. */
void gm_map_tensors(gm_map *m, int operands, const gm_tensor *const *t);
/* Turns items into `lanes` elements each, if all operands allow it. address[o]: the first element of operand o;
 * size[o]: the bytes of its elements; 0: the operand is not memory, and its lanes must only be consecutive. False:
 * items stay elements. */
bool gm_map_vectors(gm_map *m, int operands, int lanes, const void *const *address, const size_t *size);
/* A grid with threads for the items and for the tail. */
gm_cuda_grid gm_map_grid(const gm_device *dev, const gm_map *m);
#endif

#endif
