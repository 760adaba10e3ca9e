/* kind.h - what tells kinds of products apart (choices.h). */
#ifndef GM_CUDA_KIND_H
#define GM_CUDA_KIND_H

#include "product.h"

#define GM_KIND_TEXT 1024

enum { GM_KIND_A, GM_KIND_B, GM_KIND_Y, GM_KIND_PRE, GM_KIND_VECTOR, GM_KIND_OPERANDS };

/* Filled over zeros, so that kinds are compared as bytes. */
typedef struct gm_kind {
    int64_t     m, n, k;
    int64_t     step[GM_KIND_VECTOR][2]; /* between rows and between columns, in elements */
    gm_gemm_dim batch[GM_GEMM_BATCH];
    int32_t     align[GM_KIND_OPERANDS]; /* of addresses, in bytes, at most 256 */
    int32_t     ndim, dtype, to, function, format, scaling;
    int32_t     bias, pre, slope, sums, adds, tf32; /* 0 or 1 */
} gm_kind;

/* tf32: products of f32 may use it. */
void gm_kind_of(const gm_product *p, bool tf32, gm_kind *out);
/* Writes the kind for people and for files: one line, the same in each run. buf has room for GM_KIND_TEXT bytes;
 * returns buf. */
char *gm_kind_text(const gm_kind *kind, char *buf);

#endif
