/* key.c - see key.h. */
#include "key.h"

#include <cublasLt.h>
#include <string.h>

#include "../../float8.h"
#include "../../op.h"

/* The epilogue that does all that p asks for; 0: there is none. In f32 GELU is not cuBLASLt's to take: nobody says how
 * near its tanh is, and what is near enough for 16 bits is not for 24. */
static int32_t epilogue_of(const gm_gemm_args *p, gm_dtype dtype)
{
    if (dtype == GM_F32 && p->function == GM_FN_gelu_tanh) return 0;
    int32_t bias = p->bias ? CUBLASLT_EPILOGUE_BIAS : 0;
    if (p->sums) return p->ndim || bias || p->pre || p->function ? 0 : CUBLASLT_EPILOGUE_BGRADB;
    if (p->slope) /* of relu it wants a mask of bits, which the forward product did not keep */
        return p->function == GM_FN_gelu_tanh && !p->accumulate && !bias ? CUBLASLT_EPILOGUE_DGELU : 0;
    switch (p->function) {
    case GM_FN_none: return p->pre ? 0 : bias ? bias : CUBLASLT_EPILOGUE_DEFAULT;
    case GM_FN_relu: return p->pre || p->accumulate ? 0 : CUBLASLT_EPILOGUE_RELU | bias;
    case GM_FN_gelu_tanh: /* cuBLASLt's GELU is the tanh form, its AUX what goes into it */
        return p->accumulate ? 0 : (p->pre ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU) | bias;
    default: return 0;
    }
}

/* A matrix of `rows` and `columns`, given by its two strides, as cuBLASLt reads memory: as it is, or transposed. */
static bool view_of(int64_t rows, int64_t columns, int64_t row_step, int64_t column_step, int32_t *transposed,
                    int64_t *ld)
{
    *transposed = 0;
    *ld = columns == 1 ? rows : column_step;
    if ((rows == 1 || row_step == 1) && *ld >= rows) return true;
    *transposed = 1;
    *ld = rows == 1 ? columns : row_step;
    return (columns == 1 || column_step == 1) && *ld >= columns;
}

static int32_t align_of(const void *p, int64_t step, size_t size)
{
    uintptr_t bits = (uintptr_t)p | (uintptr_t)step * size | ALIGNMENT;
    return (int32_t)(bits & -bits);
}

const void *gm_blas_vector(const gm_gemm_args *p) { return p->sums ? p->sums : p->bias; }

/* The distances that the calls for a batch of several dimensions are apart: all but the last. */
static void align_operands(const gm_gemm_args *p, size_t size, size_t size_to, plan_key *key)
{
    gm_gemm_dim steps = {0};
    for (int d = 0; d + 1 < p->ndim; d++) {
        steps.a |= p->dim[d].a;
        steps.b |= p->dim[d].b;
        steps.y |= p->dim[d].y;
        steps.pre |= p->dim[d].pre;
    }
    key->align[A] = align_of(p->b, steps.b, size);
    key->align[B] = align_of(p->a, steps.a, size);
    key->align[D] = align_of(p->y, steps.y, size_to);
    key->align[AUX] = align_of(p->pre, steps.pre, size_to);
    key->align[BIAS] = align_of(gm_blas_vector(p), 0, size);
}

/* What is documented of scales of blocks: their addresses, and the rows of both factors. */
static bool takes_scales(const gm_gemm_args *p)
{
    if (p->scaling == GM_SCALES_ONE) return true;
    return p->m % 4 == 0 && p->n % 4 == 0 && (uintptr_t)p->scale[0] % 16 == 0 && (uintptr_t)p->scale[1] % 16 == 0;
}

bool gm_blas_key(const gm_gemm_args *p, gm_dtype dtype, gm_dtype to, plan_key *key)
{
    int32_t            turned[2] = {0, 0};
    const gm_gemm_dim *last = p->ndim ? &p->dim[p->ndim - 1] : NULL;
    memset(key, 0, sizeof *key);
    key->rows = p->n;
    key->columns = p->m;
    key->depth = p->k;
    key->dtype = (int32_t)dtype;
    key->to = (int32_t)to;
    key->format = p->format;
    key->scaling = p->scaling;
    key->epilogue = epilogue_of(p, dtype);
    if (!key->epilogue || (p->bias && p->n > 1 && p->bias_n != 1) || (last && last->n > INT32_MAX)) return false;
    if (!view_of(p->n, p->k, p->b_n, p->b_k, &key->transposed[A], &key->ld[A])) return false;
    if (!view_of(p->k, p->m, p->a_k, p->a_m, &key->transposed[B], &key->ld[B])) return false;
    if (!view_of(p->n, p->m, p->y_n, p->y_m, &turned[0], &key->ld[D]) || turned[0]) return false;
    if (p->pre && (!view_of(p->n, p->m, p->pre_n, p->pre_m, &turned[1], &key->ld[AUX]) || turned[1])) return false;
    key->count = last ? (int32_t)last->n : 1;
    if (last) {
        key->step[A] = last->b;
        key->step[B] = last->a;
        key->step[D] = last->y;
        key->step[AUX] = last->pre;
    }
    align_operands(p, gm_dtype_size(dtype), gm_dtype_size(to), key);
    if (dtype == GM_U8) { /* tensor cores read such rows along the sum; what is added to y is of 16 bits */
        bool even = key->align[A] >= 16 && key->align[B] >= 16 && key->ld[A] % 16 == 0 && key->ld[B] % 16 == 0;
        if (!even || !key->transposed[A] || key->transposed[B] || (p->bias && to == GM_F32)) return false;
        if (!takes_scales(p)) return false;
    }
    /* what NVIDIA documents of auxiliary buffers */
    return !p->pre || (key->ld[AUX] % 8 == 0 && key->step[AUX] % 8 == 0 && key->align[AUX] >= 16);
}
