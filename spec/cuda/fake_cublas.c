/* fake_cublas.c - the part of cuBLASLt that kernels/cuda/blas/blas.c uses, in plain loops over what NVIDIA documents
 * that the descriptors mean: libgm_fake_cublas.so, which specs name in GANYMEDE_CUDA_BLAS. It computes in double, in
 * the order of the stream.
 *
 * It refuses what the real one refuses: combinations of types that the documentation does not list, leading dimensions
 * that are too small, epilogues without their bias or auxiliary buffer, and at the product addresses that are not
 * aligned as was promised when the algorithm was asked for. A type of attribute that blas.c does not set is refused
 * too, so that nothing goes through unseen. */
#include <cublasLt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_dots.h"
#include "fake_driver.h"
#include "fake_epilogues.h"
#include "fake_products.h"

#define API __attribute__((visibility("default")))

/* The structs that the opaque ones of the header are here are product and matrix (fake_products.h), and this. */
typedef struct wish {
    uint64_t workspace;
    uint32_t sums, align[4];
} wish;

/* What an algorithm remembers of the question that it is the answer to. */
typedef struct answer {
    uint64_t marker, hash;
    uint32_t align[4], aux_align, bias_align, number;
} answer;

#define ANSWERS 3 /* to each question; they do the same */

#define MARKER 0x67616e796d656465u

_Static_assert(sizeof(answer) <= sizeof(cublasLtMatmulAlgo_t), "an answer fits into an algorithm");

static product *product_of(cublasLtMatmulDesc_t d) { return (product *)(void *)d; }
static matrix  *matrix_of(cublasLtMatrixLayout_t d) { return (matrix *)(void *)d; }
static wish    *wish_of(cublasLtMatmulPreference_t d) { return (wish *)(void *)d; }

static cublasStatus_t refuse(const char *why)
{
    if (getenv("GANYMEDE_CUDA_SAY")) fprintf(stderr, "fake cuBLASLt refuses: %s\n", why);
    return CUBLAS_STATUS_INTERNAL_ERROR; /* the real one's answer, INVALID_VALUE, is one that we go round */
}

static cublasStatus_t new_of(void **out, const void *from, size_t size)
{
    *out = malloc(size);
    if (!*out) return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(*out, from, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *field, size_t room, const void *value, size_t size)
{
    if (size != room) return refuse("an attribute of another size");
    memcpy(field, value, size);
    return CUBLAS_STATUS_SUCCESS;
}
#define SET(field) return set(&(field), sizeof(field), value, size)

/* ---- descriptors ---- */

static int handles;

API cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = (cublasLtHandle_t)(void *)&handles;
    handles++;
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    (void)handle;
    return --handles < 0 ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_SUCCESS;
}

/* Of a rank that mpirun started; else 0. The process has forgotten the variable, but not the text it began with. */
static int rank_here(void)
{
    static int  rank = -1;
    static char text[1 << 16];
    if (rank >= 0) return rank;
    rank = 0;
    FILE  *file = fopen("/proc/self/environ", "rb");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    for (const char *at = text; at < text + n; at += strlen(at) + 1)
        if (!strncmp(at, "OMPI_COMM_WORLD_RANK=", 21)) rank = atoi(at + 21);
    return rank;
}

/* A variable of the environment; of "1,2" the first on rank 0, the second on all ranks above. NULL: it is not there. */
static const char *of_rank(const char *name)
{
    const char *text = getenv(name), *comma = text ? strchr(text, ',') : NULL;
    return comma && rank_here() > 0 ? comma + 1 : text;
}

/* GANYMEDE_FAKE_CUBLAS_VERSION: another one, by rank. */
API size_t cublasLtGetVersion(void)
{
    const char *other = of_rank("GANYMEDE_FAKE_CUBLAS_VERSION");
    return other ? (size_t)atol(other) : 130000;
}

API const char *cublasLtGetStatusName(cublasStatus_t s)
{
    switch (s) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    default: return "another CUBLAS_STATUS";
    }
}

API cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType_t scale)
{
    product p = {.compute = (int32_t)compute, .scale = (int32_t)scale, .bias_type = -1, .aux_type = -1};
    p.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return new_of((void **)d, &p, sizeof p);
}

API cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what,
                                                  const void *value, size_t size)
{
    product *p = product_of(d);
    switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: SET(p->transpose[0]);
    case CUBLASLT_MATMUL_DESC_TRANSB: SET(p->transpose[1]);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: SET(p->epilogue);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: SET(p->factor[0]);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: SET(p->factor[1]);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: SET(p->mode[0]);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: SET(p->mode[1]);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: SET(p->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: SET(p->bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: SET(p->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: SET(p->aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: SET(p->aux_step);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: SET(p->aux_type);
    default: return refuse("an attribute of a product that this does not know");
    }
}

API cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *d, cudaDataType type, uint64_t rows,
                                              uint64_t columns, int64_t ld)
{
    matrix m = {.type = (int32_t)type, .count = 1, .rows = rows, .columns = columns, .ld = ld};
    return new_of((void **)d, &m, sizeof m);
}

API cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t d)
{
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t d, cublasLtMatrixLayoutAttribute_t what,
                                                    const void *value, size_t size)
{
    matrix *m = matrix_of(d);
    switch (what) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: SET(m->count);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: SET(m->step);
    default: return refuse("an attribute of a matrix that this does not know");
    }
}

API cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *d)
{
    wish w = {.sums = CUBLASLT_REDUCTION_SCHEME_MASK, .align = {256, 256, 256, 256}};
    return new_of((void **)d, &w, sizeof w);
}

API cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t d)
{
    free(d);
    return CUBLAS_STATUS_SUCCESS;
}

API cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t           d,
                                                        cublasLtMatmulPreferenceAttributes_t what, const void *value,
                                                        size_t size)
{
    wish *w = wish_of(d);
    switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: SET(w->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: SET(w->sums);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: SET(w->align[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: SET(w->align[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: SET(w->align[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: SET(w->align[3]);
    default: return refuse("a preference that this does not know");
    }
}

/* ---- answers ---- */

/* Of all that the answer depends on, but for addresses. */
static uint64_t hash_of(const product *p, const matrix *a, const matrix *b, const matrix *d)
{
    const matrix *all[] = {a, b, d};
    int64_t       of_product[] = {p->transpose[0], p->transpose[1], p->epilogue, p->aux_ld,
                                  p->aux_step,     p->compute,      p->mode[0],  p->mode[1]};
    uint64_t      h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < sizeof of_product / sizeof *of_product; i++)
        h = (h ^ (uint64_t)of_product[i]) * 0x100000001B3u;
    for (int i = 0; i < 3; i++) {
        int64_t of_matrix[] = {all[i]->type, all[i]->count, (int64_t)all[i]->rows, (int64_t)all[i]->columns,
                               all[i]->ld,   all[i]->step};
        for (size_t k = 0; k < sizeof of_matrix / sizeof *of_matrix; k++)
            h = (h ^ (uint64_t)of_matrix[k]) * 0x100000001B3u;
    }
    return h;
}

static uint32_t align_of(const void *p)
{
    uintptr_t bits = (uintptr_t)p | 256;
    return (uint32_t)(bits & -bits);
}

API cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product_,
                                                  cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                  cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                  cublasLtMatmulPreference_t wish_, int asked,
                                                  cublasLtMatmulHeuristicResult_t results[], int *found)
{
    const product *p = product_of(product_);
    const wish    *w = wish_of(wish_);
    const char    *why = handle ? wrong(p, matrix_of(a), matrix_of(b), matrix_of(d)) : "no handle";
    answer         mine = {.marker = MARKER, .aux_align = align_of(p->aux), .bias_align = align_of(p->bias)};
    *found = 0;
    if (why || asked < 1 || c != d) return refuse(why ? why : "a question without an answer");
    if (w->sums & CUBLASLT_REDUCTION_SCHEME_INPLACE) return refuse("sums in place, whose order is not fixed");
    if (getenv("GANYMEDE_FAKE_CUBLAS_INVALID") && (int)p->epilogue == atoi(getenv("GANYMEDE_FAKE_CUBLAS_INVALID")))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (p->epilogue & AUX && mine.aux_align < 16) return CUBLAS_STATUS_NOT_SUPPORTED;
    const matrix *result = matrix_of(d);
    if (is_float8(matrix_of(a)->type) && (result->rows * size_of(result->type) % 16 || matrix_of(a)->rows % 16 ||
                                          w->align[0] < 16 || w->align[1] < 16 || w->align[3] < 16))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < 4; i++) {
        mine.align[i] = w->align[i];
        if (w->align[i] < size_of(matrix_of(i == 0 ? a : i == 1 ? b : d)->type)) return refuse("no alignment");
    }
    mine.hash = hash_of(p, matrix_of(a), matrix_of(b), matrix_of(d));
    for (*found = 0; *found < asked && *found < ANSWERS; ++*found) {
        cublasLtMatmulHeuristicResult_t *r = &results[*found];
        mine.number = (uint32_t)*found;
        memset(r, 0, sizeof *r);
        memcpy(&r->algo, &mine, sizeof mine);
        r->workspaceSize = w->workspace < 4096 ? 0 : 4096;
        r->state = CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* Whether it is an answer to this question, whatever was promised of addresses. */
API cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t product_,
                                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                           cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
                                           cublasLtMatmulHeuristicResult_t *result)
{
    answer mine;
    memcpy(&mine, algorithm, sizeof mine);
    if (!handle || c != d) return refuse("a question without an answer");
    if (mine.marker != MARKER || mine.number >= ANSWERS ||
        mine.hash != hash_of(product_of(product_), matrix_of(a), matrix_of(b), matrix_of(d)))
        return CUBLAS_STATUS_INVALID_VALUE;
    result->workspaceSize = 4096;
    result->state = CUBLAS_STATUS_SUCCESS;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ---- */

static const char *outside(const matrix *m, const void *p)
{
    int64_t last = (m->count - 1) * m->step + m->ld * (int64_t)(m->columns - 1) + (int64_t)m->rows;
    return gm_fake_outside(p, (size_t)last * size_of(m->type));
}

static const char *wrong_addresses(const product *p, const matrix *m[3], const void *const *at, const answer *mine,
                                   const void *workspace, size_t bytes)
{
    static const int of[3] = {0, 1, 3};
    const char      *why = NULL;
    for (int i = 0; i < 3 && !why; i++) {
        if (align_of(at[i]) < mine->align[of[i]]) return "an address that is not aligned as was promised";
        why = outside(m[i], at[i]);
    }
    if (why) return why;
    if (p->epilogue & AUX) {
        matrix aux = {m[2]->type, m[2]->count, m[2]->rows, m[2]->columns, p->aux_ld, p->aux_step};
        if (align_of(p->aux) < mine->aux_align) return "an auxiliary buffer that is not aligned as was promised";
        if ((why = outside(&aux, p->aux))) return why;
    }
    if (has_vector(p)) {
        uint64_t length = p->epilogue & CUBLASLT_EPILOGUE_BGRADB ? m[2]->columns : m[2]->rows;
        if (align_of(p->bias) < mine->bias_align) return "a bias that is not aligned as was promised";
        if ((why = gm_fake_outside(p->bias, length * size_of(vector_type(p, m[2]))))) return why;
    }
    for (int i = 0; i < 2; i++) {
        uint64_t rows = i ? m[2]->columns : m[2]->rows, columns, depth;
        turned(p, 0, m[0], &columns, &depth);
        if (p->factor[i] && (why = gm_fake_outside(p->factor[i], scales_of(p->mode[i], rows, depth) * sizeof(float))))
            return why;
    }
    if ((uintptr_t)workspace % 256) return "a workspace that does not begin at a multiple of 256 bytes";
    return bytes >= 4096 ? gm_fake_outside(workspace, bytes) : "a workspace that is too small";
}

static void finish(const product *p, const matrix *d, void *result, int64_t batch, int64_t row, int64_t column,
                   double v, float beta)
{
    int64_t i = batch * d->step + row + column * d->ld, aux = batch * p->aux_step + row + column * p->aux_ld;
    if (beta != 0) v += (double)beta * element(d->type, result, i);
    if (p->epilogue & CUBLASLT_EPILOGUE_BIAS) v += element(vector_type(p, d), p->bias, row);
    if (p->epilogue == CUBLASLT_EPILOGUE_DGELU) v *= gelu_slope(element(d->type, p->aux, aux));
    else if (p->epilogue & AUX) put(d->type, p->aux, aux, v);
    put(d->type, result, i, activation(p->epilogue, v));
}

static void multiply(const product *p, const matrix *m[3], const void *const *at, void *result, float alpha, float beta)
{
    const matrix *d = m[2];
    double       *sums = malloc(d->rows * sizeof *sums);
    if (!sums) abort();
    for (int64_t batch = 0; batch < d->count; batch++) {
        operand a = read_operand(p, 0, m[0], at[0], batch), b = read_operand(p, 1, m[1], at[1], batch);
        for (int64_t column = 0; column < (int64_t)d->columns; column++) {
            dots(&a, &b, column, sums);
            for (int64_t row = 0; row < (int64_t)d->rows; row++)
                finish(p, d, result, batch, row, column, (double)alpha * sums[row], beta);
        }
        free_operand(&a);
        free_operand(&b);
    }
    free(sums);
}

/* The bias gradient of B: its columns' sums over the depth, after its transpose. They are set. */
static void sum_columns(const product *p, const matrix *m[3], const void *b)
{
    uint64_t depth, columns;
    turned(p, 1, m[1], &depth, &columns);
    for (int64_t column = 0; column < (int64_t)columns; column++) {
        double sum = 0;
        for (int64_t l = 0; l < (int64_t)depth; l++) sum += element(m[1]->type, b, place_in_b(p, m[1], l, column));
        put(m[2]->type, p->bias, column, sum);
    }
}

/* All that a product needs when its turn comes. */
typedef struct queued {
    product     how;
    matrix      m[3];
    const void *at[3];
    void       *result;
    float       alpha, beta;
    uint32_t    number; /* of the answer that is followed */
} queued;

/* GANYMEDE_FAKE_CUBLAS_FAST: by rank, the answer by which products are made at once; by others they take a second.
 * GANYMEDE_FAKE_CUBLAS_SLOW: an epilogue whose products all take two seconds more. */
static void take_time(const product *p, uint32_t number)
{
    const char *fast = of_rank("GANYMEDE_FAKE_CUBLAS_FAST"), *slow = getenv("GANYMEDE_FAKE_CUBLAS_SLOW");
    if (fast && (uint32_t)atoi(fast) != number) gm_fake_spend(1);
    if (slow && atoi(slow) == (int)p->epilogue) gm_fake_spend(2);
}

/* GANYMEDE_FAKE_CUBLAS_BITS: each answer has other last bits, by this factor alpha. */
static double factor_of(uint32_t number) { return getenv("GANYMEDE_FAKE_CUBLAS_BITS") ? 1 + 1e-6 * number : 1; }

static void run_queued(const void *context, char *error, size_t size)
{
    const queued *q = context;
    const matrix *m[3] = {&q->m[0], &q->m[1], &q->m[2]};
    (void)error;
    (void)size;
    take_time(&q->how, q->number);
    multiply(&q->how, m, q->at, q->result, (float)((double)q->alpha * factor_of(q->number)), q->beta);
    if (q->how.epilogue & CUBLASLT_EPILOGUE_BGRADB) sum_columns(&q->how, m, q->at[1]);
}

static const char *scales_in_words(const product *p)
{
    if (!p->mode[0]) return "";
    return p->mode[0] == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F ? " squares of A" : " rows of A and B";
}

API cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product_, const void *alpha,
                                  const void *a, cublasLtMatrixLayout_t a_, const void *b, cublasLtMatrixLayout_t b_,
                                  const void *beta, const void *c, cublasLtMatrixLayout_t c_, void *d,
                                  cublasLtMatrixLayout_t d_, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                                  size_t bytes, cudaStream_t stream)
{
    const product *p = product_of(product_);
    const matrix  *m[3] = {matrix_of(a_), matrix_of(b_), matrix_of(d_)};
    const void    *at[3] = {a, b, d};
    answer         mine;
    char           line[160];
    const char    *why = wrong(p, m[0], m[1], m[2]);
    memcpy(&mine, algorithm, sizeof mine);
    if (!handle || !stream) return refuse("no handle, or the default stream");
    if (why || c != d || c_ != d_) return refuse(why ? why : "another C than D");
    if (mine.marker != MARKER || mine.hash != hash_of(p, m[0], m[1], m[2]))
        return refuse("an algorithm that was the answer to another question");
    if ((why = wrong_addresses(p, m, at, &mine, workspace, bytes))) return refuse(why);
    snprintf(line, sizeof line, "cublasLtMatmul %llu %llu %llu batch %d epilogue %u answer %u%s%s",
             (unsigned long long)m[2]->columns, (unsigned long long)m[2]->rows,
             (unsigned long long)(p->transpose[0] == CUBLAS_OP_T ? m[0]->rows : m[0]->columns), m[2]->count,
             p->epilogue, mine.number, is_tf32(p) ? " tf32" : "", scales_in_words(p));
    queued q = {*p, {*m[0], *m[1], *m[2]}, {a, b, d}, d, *(const float *)alpha, *(const float *)beta, mine.number};
    void  *context = NULL;
    if (new_of(&context, &q, sizeof q) != CUBLAS_STATUS_SUCCESS) return CUBLAS_STATUS_ALLOC_FAILED;
    int failed = gm_fake_queue(stream, line, (gm_fake_call){.run = run_queued, .drop = free, .context = context});
    return failed ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
