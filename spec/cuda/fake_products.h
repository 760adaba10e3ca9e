/* fake_products.h - the products that fake_cublas.c knows, and which of them NVIDIA's documentation says there are. */
#ifndef GM_FAKE_PRODUCTS_H
#define GM_FAKE_PRODUCTS_H

#include <stdlib.h>

#include "fake_types.h"

#define AUX 128u /* the bit of epilogues that have an auxiliary buffer */

typedef struct product {
    int32_t  compute, scale, transpose[2], bias_type, aux_type, mode[2]; /* mode: what scales of A and B are of */
    uint32_t epilogue;
    void    *bias, *aux, *factor[2]; /* factor: scales of A and B */
    int64_t  aux_ld, aux_step;
} product;

typedef struct matrix {
    int32_t  type, count;
    uint64_t rows, columns;
    int64_t  ld, step;
} matrix;

static inline bool is_tf32(const product *p) { return p->compute == CUBLAS_COMPUTE_32F_FAST_TF32; }

#define SIDE 128 /* of blocks with a scale */

static inline uint64_t blocks_of(uint64_t n) { return (n + SIDE - 1) / SIDE; }

/* How many scales a factor of rows along the sum has: "Scaling factors layouts" of the documentation. */
static inline uint64_t scales_of(int32_t mode, uint64_t rows, uint64_t depth)
{
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return rows * blocks_of(depth);
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) return (blocks_of(depth) + 3) / 4 * 4 * blocks_of(rows);
    return 1;
}

/* The place of the scale of element (row, l): VEC128 has rows beside each other, BLK128x128 the blocks along the sum,
 * in columns that are multiples of 4 long. */
static inline uint64_t place_of_scale(int32_t mode, uint64_t rows, uint64_t depth, uint64_t row, uint64_t l)
{
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return row + l / SIDE * rows;
    if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
        return l / SIDE + row / SIDE * ((blocks_of(depth) + 3) / 4 * 4);
    return 0;
}

/* Modes of scales: the table of "128-element 1D and 128x128 2D Block Scaling For FP8 Data Types". */
static inline const char *wrong_modes(const product *p, const matrix *d)
{
    const int32_t vec = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, blk = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    const int32_t one = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, *mode = p->mode;
    if (mode[0] == one && mode[1] == one) return NULL;
    for (int i = 0; i < 2; i++)
        if (mode[i] != vec && mode[i] != blk) return "a mode of scales, or one beside another kind";
    if (mode[0] == blk && mode[1] == blk) return "two factors with scales of squares";
    if (d->rows % 4 || d->columns % 4) return "scales of blocks of rows that are no multiple of 4";
    return (uintptr_t)p->factor[0] % 16 || (uintptr_t)p->factor[1] % 16 ? "scales that are not aligned to 16 bytes"
                                                                        : NULL;
}

/* Floats of 8 bits: the table for them, and the order of operands that Ada and Hopper ask for. */
static inline const char *wrong_float8(const product *p, const matrix *a, const matrix *b, const matrix *d)
{
    bool bf16 = d->type == CUDA_R_16BF || d->type == CUDA_R_32F;
    if (!is_float8(a->type) || !is_float8(b->type)) return "a factor of 8 bits alone";
    if (a->type == CUDA_R_8F_E5M2 && b->type == CUDA_R_8F_E5M2) return "two factors in E5M2";
    if (!bf16 && d->type != CUDA_R_16F) return "a type of the result";
    if (p->transpose[0] != CUBLAS_OP_T || p->transpose[1] != CUBLAS_OP_N) return "another order than TN";
    if (!p->factor[0] || !p->factor[1]) return "no scale";
    if (a->ld % 16 || b->ld % 16) return "rows that do not begin at multiples of 16 bytes";
    if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT && p->epilogue != CUBLASLT_EPILOGUE_BIAS)
        return "an epilogue that this does not know of factors of 8 bits";
    if (p->bias && p->bias_type != (bf16 ? CUDA_R_16BF : CUDA_R_16F)) return "a type of the bias";
    return wrong_modes(p, d);
}

/* The table of types of cublasLtMatmul for CUBLAS_COMPUTE_32F and its fast form, as far as f32, bf16 and f16 go. */
static inline const char *wrong_types(const product *p, const matrix *a, const matrix *b, const matrix *d)
{
    if (p->scale != CUDA_R_32F) return "sums that are not in f32";
    if (is_tf32(p) && a->type != CUDA_R_32F) return "TF32 of operands that are not f32";
    if (!is_tf32(p) && p->compute != CUBLAS_COMPUTE_32F) return "sums that are not in f32";
    if (is_float8(a->type) || is_float8(b->type)) return wrong_float8(p, a, b, d);
    if (p->factor[0] || p->factor[1] || p->mode[0] || p->mode[1]) return "scales of types that have none";
    if (a->type != b->type) return "factors of two types";
    if (a->type != CUDA_R_32F && a->type != CUDA_R_16BF && a->type != CUDA_R_16F) return "a type of factors";
    if (d->type != a->type && d->type != CUDA_R_32F) return "a type of the result";
    return NULL;
}

static inline const char *wrong_matrix(const matrix *m)
{
    if (!m->rows || !m->columns) return "an empty matrix";
    if (m->ld < (int64_t)m->rows) return "a leading dimension below the number of rows";
    if (m->count < 1) return "an empty batch";
    return NULL;
}

/* The matrix after its transpose. */
static inline void turned(const product *p, int i, const matrix *m, uint64_t *rows, uint64_t *columns)
{
    bool t = p->transpose[i] == CUBLAS_OP_T;
    *rows = t ? m->columns : m->rows;
    *columns = t ? m->rows : m->columns;
}

static inline const char *wrong_shapes(const product *p, const matrix *a, const matrix *b, const matrix *d)
{
    uint64_t rows, depth, depth_b, columns;
    turned(p, 0, a, &rows, &depth);
    turned(p, 1, b, &depth_b, &columns);
    if (rows != d->rows || columns != d->columns || depth != depth_b) return "shapes that do not fit";
    if (a->count != d->count || b->count != d->count) return "batches that do not fit";
    if (d->count > 1 && llabs(d->step) < d->ld * (int64_t)(d->columns - 1) + (int64_t)d->rows)
        return "results that lie over each other";
    return NULL;
}

/* Has it a vector, at the address of the bias: one that is added, or that of sums? */
static inline bool has_vector(const product *p)
{
    return p->epilogue & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADB);
}

static inline const char *wrong_vector(const product *p, const matrix *a, const matrix *d)
{
    if (!p->bias) return "no bias, or place for its gradient";
    if (p->epilogue & CUBLASLT_EPILOGUE_BGRADB) {
        if (d->count > 1) return "a bias gradient of a batch";
        return p->bias_type == -1 || p->bias_type == d->type ? NULL : "a type of the bias gradient";
    }
    return p->bias_type == -1 || p->bias_type == a->type || p->bias_type == d->type ? NULL : "a type of the bias";
}

static inline const char *wrong_epilogue(const product *p, const matrix *a, const matrix *d)
{
    switch (p->epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_BGRADB: break;
    default: return "an epilogue that this does not know";
    }
    const char *why = has_vector(p) ? wrong_vector(p, a, d) : NULL;
    if (why || !(p->epilogue & AUX)) return why;
    if (!p->aux) return "no auxiliary buffer";
    if (p->aux_ld < (int64_t)d->rows || p->aux_ld % 8 || p->aux_step % 8) return "the layout of the auxiliary buffer";
    return p->aux_type == -1 || p->aux_type == d->type ? NULL : "a type of the auxiliary buffer";
}

static inline const char *wrong(const product *p, const matrix *a, const matrix *b, const matrix *d)
{
    const matrix *all[] = {a, b, d};
    const char   *why = wrong_types(p, a, b, d);
    for (int i = 0; i < 3 && !why; i++) why = wrong_matrix(all[i]);
    if (!why) why = wrong_shapes(p, a, b, d);
    return why ? why : wrong_epilogue(p, a, d);
}

/* The type of a bias or of its gradient. */
static inline int32_t vector_type(const product *p, const matrix *d)
{
    return p->bias_type == -1 ? d->type : p->bias_type;
}

#endif
