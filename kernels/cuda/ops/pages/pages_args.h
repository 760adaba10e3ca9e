/* pages_args.h - arguments of the kernels of pages.cu. */
#ifndef GM_CUDA_PAGES_ARGS_H
#define GM_CUDA_PAGES_ARGS_H

#include <stdint.h>

#include "../../runtime/refusal.h"

#define GM_PAGES_WARPS  4   /* of the block of a query: each takes every fourth key */
#define GM_PAGES_WRITE  128 /* threads of a block that writes */
#define GM_PAGES_NARROW 64  /* numbers of a head that two registers of a lane hold */
#define GM_PAGES_WIDE   256

/* Where a position of a row is. */
typedef struct gm_pages_view {
    const void *index, *count;
    int64_t     index_stride[2], count_stride; /* in elements */
    int64_t     each, pages, page;             /* pages of a row, of the pool; positions of a page */
    gm_refusal *refusal;
    int32_t     narrow, op; /* narrow: index is i32 */
} gm_pages_view;

typedef struct gm_pages_write_args {
    gm_pages_view p;
    const void   *x;
    void         *pool;
    int64_t       x_stride[3], pool_stride[3]; /* row, position, head; page, head, place */
    int64_t       positions, heads, size, n;   /* n: elements of x */
} gm_pages_write_args;

typedef struct gm_pages_args {
    gm_pages_view p;
    const void   *q, *k, *v;
    void         *o;
    int64_t       q_stride[3], o_stride[4];            /* row, position, head; element */
    int64_t       k_stride[3], v_stride[3];            /* page, head, place */
    int64_t       queries, heads, group, size, window; /* window: 0: all keys up to the query's own */
    double        scale, softcap;                      /* softcap: 0: none */
} gm_pages_args;

#endif
