/* map.h - how kernels go over tensors of any strides, element by element: one index space for up to four
 * tensors (operand 0 is the output). C for both sides; gm_map_place is for kernels.
 *
 * The host (map.c) drops dimensions of size 1, sorts the others by the output's strides, since elementwise
 * work has no order, and joins neighbours that all operands have without gaps: tensors without gaps become one
 * dimension, and what is left are broadcasts and windows. Items are elements, or `lanes` elements in a row where all
 * operands allow to load and store them as 16 bytes (inputs may also repeat one element: step 0). */
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
    int32_t    wide;                  /* 2^31 items or more: divided the slow way */
    int32_t    step[GM_MAP_OPERANDS]; /* between the elements of an item: 1, or 0 */
    int64_t    shape[GM_MAX_DIMS];
    gm_divider by[GM_MAX_DIMS];
    int64_t    stride[GM_MAP_OPERANDS][GM_MAX_DIMS]; /* in elements, between items */
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
/* Offsets of item i, in elements, into at[operands]. */
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

/* A map of `operands` strides over one shape. Items are elements. */
void gm_map_of(gm_map *m, int ndim, const int64_t *shape, int operands, int64_t (*stride)[GM_MAX_DIMS]);
/* The same with the strides of tensors, broadcast to the first: the output. */
void gm_map_tensors(gm_map *m, int operands, const gm_tensor *const *t);
/* Makes items of `lanes` elements where all operands allow it: address[o] starts operand o, whose elements have size[o]
 * bytes (0: it is no memory, and the lanes must only follow each other). False: items stay elements. */
bool gm_map_vectors(gm_map *m, int operands, int lanes, const void *const *address, const size_t *size);
/* Threads for the items, and for the tail. */
gm_cuda_grid gm_map_grid(const gm_device *dev, const gm_map *m);
#endif

#endif
