/* blas.c - see blas.h.
 *
 * cuBLASLt stores matrices by columns, at a distance of ld elements; we store them by rows. Our product y = a b is its
 * D = A B with A = b', B = a', D = y', where ' is the same memory read as the transposed matrix; D has n rows and m
 * columns. Only key.c does this translation. The bias of cuBLASLt goes along the rows of D, our columns. Our sums of a
 * are its bias gradient of B, one for each column of D. It sets bias gradients, whatever beta is. */
#include "blas.h"

#include <stdlib.h>
#include <string.h>

#include "../runtime/counts.h"
#include "../runtime/hash.h"
#include "library.h"
#include "../runtime/driver.h"
#include "key.h"
#include "../../float8.h"

#define WORKSPACE  ((uint64_t)32 << 20) /* what a product may take at most; NVIDIA's advice for sm_90 */
#define ANSWERS    8                    /* of the algorithms it has, those that are timed, where that is wanted */
#define MOST_CALLS 16                   /* a batch of more than one dimension is that many calls at most */

static const gm_blas_library *lt; /* set when a device makes its first product */

typedef struct plan {
    plan_key                         key;
    bool                             invalid;
    cublasLtMatmulDesc_t             product;
    cublasLtMatrixLayout_t           matrix[MATRICES];
    int                              asked, n; /* how many algorithms were asked for; how many there are */
    cublasLtMatmulHeuristicResult_t *algorithms;
} plan;

struct gm_blas {
    cublasLtHandle_t handle;
    plan           **plans; /* a table by hash of the key; slots: a power of two, at most half of them used */
    size_t           used, slots;
};

/* ---- the library ---- */

static gm_status failed(cublasStatus_t s, const char *file, int line, const char *what)
{
    return gm_fail(s == CUBLAS_STATUS_ALLOC_FAILED ? GM_ENOMEM : GM_EIO, file, line, "cuBLASLt failed: %s in %s",
                   lt->cublasLtGetStatusName(s), what);
}
#define GM_LT(call)                                                                    \
    do {                                                                               \
        cublasStatus_t s_ = lt->call;                                                  \
        if (s_ != CUBLAS_STATUS_SUCCESS) return failed(s_, __FILE__, __LINE__, #call); \
    } while (0)

/* NULL where the library is not wanted. */
static gm_status blas_of(gm_cuda *cu, gm_blas **out)
{
    *out = cu->blas;
    if (cu->blas || !strcmp(cu->driver->blas, "none")) return GM_OK;
    GM_TRY(gm_blas_load(cu->driver->blas, &lt));
    gm_blas *blas = calloc(1, sizeof *blas);
    if (!blas) return GM_FAIL(GM_ENOMEM, "no memory for cuBLASLt's plans");
    cublasStatus_t s = lt->cublasLtCreate(&blas->handle);
    if (s != CUBLAS_STATUS_SUCCESS) {
        free(blas);
        return failed(s, __FILE__, __LINE__, "cublasLtCreate");
    }
    *out = cu->blas = blas;
    return GM_OK;
}

gm_status gm_blas_open(gm_cuda *cu)
{
    gm_blas *blas;
    return blas_of(cu, &blas);
}

/* ---- plans ---- */

static cudaDataType_t type_of(int32_t dtype)
{
    return dtype == GM_BF16 ? CUDA_R_16BF : dtype == GM_F16 ? CUDA_R_16F : CUDA_R_32F;
}

/* Of matrix i. Codes of 8 bits: our b, which is A, has the format E4M3. */
static cudaDataType_t type_of_matrix(const plan_key *key, int i)
{
    if (i == D) return type_of(key->to);
    if (key->dtype != GM_U8) return type_of(key->dtype);
    return i == B && key->format == GM_FLOAT8_E5M2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
}

static gm_status set_of_product(plan *pl, cublasLtMatmulDescAttributes_t what, const void *value, size_t size)
{
    GM_LT(cublasLtMatmulDescSetAttribute(pl->product, what, value, size));
    return GM_OK;
}

/* Addresses: each call's own. */
static gm_status set_addresses(plan *pl, const void *vector, const void *aux, const void *const *scale)
{
    if (scale[0]) GM_TRY(set_of_product(pl, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scale[0], sizeof scale[0]));
    if (scale[1]) GM_TRY(set_of_product(pl, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale[1], sizeof scale[1]));
    if (vector) GM_TRY(set_of_product(pl, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector));
    if (aux) GM_TRY(set_of_product(pl, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux));
    return GM_OK;
}

/* Our b is A, and a is B. */
static gm_status set_scales(plan *pl)
{
    int32_t of_b = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, of_a = of_b;
    if (pl->key.scaling == GM_SCALES_ONE) return GM_OK;
    if (pl->key.scaling == GM_SCALES_SQUARE) of_b = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    GM_TRY(set_of_product(pl, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &of_b, sizeof of_b));
    return set_of_product(pl, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &of_a, sizeof of_a);
}

static gm_status describe_product(plan *pl, const gm_gemm_args *p)
{
    const plan_key *key = &pl->key;
    uint32_t        epilogue = (uint32_t)key->epilogue;
    int32_t         type = (int32_t)type_of(key->to),
            vector_type = (int32_t)type_of(key->dtype == GM_U8 ? key->to : key->dtype);
    bool vector = gm_blas_vector(p) != NULL;
    GM_LT(cublasLtMatmulDescCreate(&pl->product, key->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                   CUDA_R_32F));
    for (int i = A; i <= B; i++) {
        int32_t turn = key->transposed[i] ? CUBLAS_OP_T : CUBLAS_OP_N;
        GM_TRY(
            set_of_product(pl, i == A ? CUBLASLT_MATMUL_DESC_TRANSA : CUBLASLT_MATMUL_DESC_TRANSB, &turn, sizeof turn));
    }
    GM_TRY(set_scales(pl));
    GM_TRY(set_of_product(pl, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (vector) GM_TRY(set_of_product(pl, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &vector_type, sizeof vector_type));
    if (p->pre) {
        GM_TRY(set_of_product(pl, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &key->ld[AUX], sizeof key->ld[AUX]));
        GM_TRY(
            set_of_product(pl, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &key->step[AUX], sizeof key->step[AUX]));
        GM_TRY(set_of_product(pl, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, &type, sizeof type));
    }
    /* not read from: they only say how the addresses of all calls are aligned */
    return set_addresses(pl, vector ? (void *)(uintptr_t)key->align[BIAS] : NULL,
                         p->pre ? (void *)(uintptr_t)key->align[AUX] : NULL, p->scale);
}

/* The matrix as it lies in memory. */
static gm_status describe_matrix(plan *pl, int i)
{
    const plan_key *key = &pl->key;
    int64_t         rows = i == B ? key->depth : key->rows, columns = i == A ? key->depth : key->columns;
    bool            turned = i != D && key->transposed[i];
    GM_LT(cublasLtMatrixLayoutCreate(&pl->matrix[i], type_of_matrix(key, i), (uint64_t)(turned ? columns : rows),
                                     (uint64_t)(turned ? rows : columns), key->ld[i]));
    GM_LT(cublasLtMatrixLayoutSetAttribute(pl->matrix[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &key->count,
                                           sizeof key->count));
    GM_LT(cublasLtMatrixLayoutSetAttribute(pl->matrix[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &key->step[i],
                                           sizeof key->step[i]));
    return GM_OK;
}

static gm_status set_preferences(cublasLtMatmulPreference_t wish, const plan_key *key)
{
    static const cublasLtMatmulPreferenceAttributes_t of[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    static const int which[] = {A, B, D, D};
    uint64_t         workspace = WORKSPACE;
    uint32_t         sums = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    GM_LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                               sizeof workspace));
    GM_LT(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums));
    for (int i = 0; i < 4; i++) {
        uint32_t align = (uint32_t)key->align[which[i]];
        GM_LT(cublasLtMatmulPreferenceSetAttribute(wish, of[i], &align, sizeof align));
    }
    return GM_OK;
}

static bool same_algorithm(const cublasLtMatmulAlgo_t *a, const cublasLtMatmulAlgo_t *b)
{
    return !memcmp(a->data, b->data, sizeof a->data);
}

static int place_of(const plan *pl, const cublasLtMatmulAlgo_t *algorithm)
{
    for (int i = 0; i < pl->n; i++)
        if (same_algorithm(&pl->algorithms[i].algo, algorithm)) return i;
    return -1;
}

static gm_status add_algorithm(plan *pl, const cublasLtMatmulHeuristicResult_t *result)
{
    if (place_of(pl, &result->algo) >= 0) return GM_OK;
    void *grown = realloc(pl->algorithms, ((size_t)pl->n + 1) * sizeof *result);
    if (!grown) return GM_FAIL(GM_ENOMEM, "no memory for cuBLASLt's plans");
    pl->algorithms = grown;
    pl->algorithms[pl->n++] = *result;
    return GM_OK;
}

/* Asks how; that there is no way is an answer too. The first is what cuBLASLt holds to be the fastest. */
static gm_status ask(gm_blas *blas, plan *pl, cublasLtMatmulPreference_t wish, int wanted)
{
    cublasLtMatmulHeuristicResult_t results[ANSWERS];
    int                             found = 0;
    GM_TRY(set_preferences(wish, &pl->key));
    cublasStatus_t s = lt->cublasLtMatmulAlgoGetHeuristic(blas->handle, pl->product, pl->matrix[A], pl->matrix[B],
                                                          pl->matrix[D], pl->matrix[D], wish, wanted, results, &found);
    pl->asked = wanted;
    pl->invalid = s == CUBLAS_STATUS_INVALID_VALUE; /* so it says of some epilogues that it has for other sizes only */
    if (s == CUBLAS_STATUS_NOT_SUPPORTED || pl->invalid) return GM_OK;
    if (s != CUBLAS_STATUS_SUCCESS) return failed(s, __FILE__, __LINE__, "cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; i < found; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS) GM_TRY(add_algorithm(pl, &results[i]));
    return GM_OK;
}

/* After that the plan has as many algorithms as are wanted, or all that there are. */
static gm_status ask_for(gm_blas *blas, plan *pl, int wanted)
{
    cublasLtMatmulPreference_t wish;
    if (pl->asked >= wanted) return GM_OK;
    GM_LT(cublasLtMatmulPreferenceCreate(&wish));
    gm_status st = ask(blas, pl, wish, wanted);
    lt->cublasLtMatmulPreferenceDestroy(wish);
    return st;
}

/* The place of an algorithm that an earlier run was given; -1: this library does not take it for this product. */
static gm_status find_algorithm(gm_blas *blas, plan *pl, const cublasLtMatmulAlgo_t *algorithm, int *place)
{
    cublasLtMatmulHeuristicResult_t result = {0};
    *place = place_of(pl, algorithm);
    if (*place >= 0) return GM_OK;
    cublasStatus_t s = lt->cublasLtMatmulAlgoCheck(blas->handle, pl->product, pl->matrix[A], pl->matrix[B],
                                                   pl->matrix[D], pl->matrix[D], algorithm, &result);
    if (s != CUBLAS_STATUS_SUCCESS || result.workspaceSize > WORKSPACE) return GM_OK;
    result.algo = *algorithm;
    GM_TRY(add_algorithm(pl, &result));
    *place = pl->n - 1;
    return GM_OK;
}

static void free_plan(plan *pl)
{
    if (!pl) return;
    for (int i = 0; i < MATRICES; i++)
        if (pl->matrix[i]) lt->cublasLtMatrixLayoutDestroy(pl->matrix[i]);
    if (pl->product) lt->cublasLtMatmulDescDestroy(pl->product);
    free(pl->algorithms);
    free(pl);
}

static gm_status fill_plan(gm_blas *blas, plan *pl, const gm_gemm_args *p, int wanted)
{
    GM_TRY(describe_product(pl, p));
    for (int i = 0; i < MATRICES; i++) GM_TRY(describe_matrix(pl, i));
    return ask_for(blas, pl, wanted);
}

/* The slot of the key, or the free one where it belongs. */
static plan **slot_of(plan **plans, size_t slots, const plan_key *key)
{
    size_t i = gm_hash_bytes(key, sizeof *key) & (slots - 1);
    while (plans[i] && memcmp(&plans[i]->key, key, sizeof *key)) i = (i + 1) & (slots - 1);
    return &plans[i];
}

static gm_status grow(gm_blas *blas)
{
    size_t slots = blas->slots ? 2 * blas->slots : 64;
    plan **plans = calloc(slots, sizeof *plans);
    if (!plans) return GM_FAIL(GM_ENOMEM, "no memory for cuBLASLt's plans");
    for (size_t i = 0; i < blas->slots; i++)
        if (blas->plans[i]) *slot_of(plans, slots, &blas->plans[i]->key) = blas->plans[i];
    free(blas->plans);
    blas->plans = plans;
    blas->slots = slots;
    return GM_OK;
}

/* wanted: how many algorithms, at least. */
static gm_status plan_of(gm_blas *blas, const plan_key *key, const gm_gemm_args *p, int wanted, plan **out)
{
    if (2 * blas->used >= blas->slots) GM_TRY(grow(blas));
    plan **slot = slot_of(blas->plans, blas->slots, key);
    if (!*slot) {
        plan *pl = calloc(1, sizeof *pl);
        if (!pl) return GM_FAIL(GM_ENOMEM, "no memory for a plan of cuBLASLt");
        pl->key = *key;
        gm_status st = fill_plan(blas, pl, p, wanted);
        if (st != GM_OK) {
            free_plan(pl);
            return st;
        }
        *slot = pl;
        blas->used++;
    }
    *out = *slot;
    return ask_for(blas, *slot, wanted);
}

void gm_blas_free(gm_blas *blas)
{
    if (!blas) return;
    for (size_t i = 0; i < blas->slots; i++) free_plan(blas->plans[i]);
    free(blas->plans);
    lt->cublasLtDestroy(blas->handle);
    free(blas);
}

/* ---- products ---- */

typedef struct addresses {
    const char *a, *b;
    char       *y, *pre;
} addresses;

/* Of call i: the place of the batch's dimensions but the last. */
static addresses addresses_of(const gm_gemm_args *p, int64_t i, size_t size, size_t size_to)
{
    addresses at = {p->a, p->b, p->y, p->pre};
    for (int d = p->ndim - 2; d >= 0; d--) {
        const gm_gemm_dim *dim = &p->dim[d];
        int64_t            k = i % dim->n;
        i /= dim->n;
        at.a += k * dim->a * (int64_t)size;
        at.b += k * dim->b * (int64_t)size;
        at.y += k * dim->y * (int64_t)size_to;
        if (at.pre) at.pre += k * dim->pre * (int64_t)size_to;
    }
    return at;
}

static gm_status queue(gm_cuda *cu, plan *pl, int which, const gm_gemm_args *p, addresses at, void *workspace)
{
    const cublasLtMatmulHeuristicResult_t *how = &pl->algorithms[which];
    float                                  alpha = (float)p->alpha, beta = p->accumulate ? 1 : 0;
    GM_TRY(set_addresses(pl, gm_blas_vector(p), at.pre, p->scale));
    gm_cuda_count_library();
    GM_LT(cublasLtMatmul(cu->blas->handle, pl->product, &alpha, at.b, pl->matrix[A], at.a, pl->matrix[B], &beta, at.y,
                         pl->matrix[D], at.y, pl->matrix[D], &how->algo, workspace, how->workspaceSize,
                         (cudaStream_t)cu->stream));
    return GM_OK;
}

/* ---- the product ---- */

static int64_t calls_of(const gm_gemm_args *p)
{
    int64_t n = 1;
    for (int d = 0; d + 1 < p->ndim; d++) n *= p->dim[d].n;
    return n;
}

/* Our kernels make what cuBLASLt holds to be no product at all; that is said, once for each. */
static void note_invalid(gm_device *dev, plan *pl)
{
    char            text[256];
    const plan_key *k = &pl->key;
    snprintf(text, sizeof text,
             "cuBLASLt calls a product of (%lld, %lld) and (%lld, %lld), %s, epilogue %d, invalid: it runs on our own "
             "kernels, slower (CUBLASLT_LOG_LEVEL=5 says more)",
             (long long)k->columns, (long long)k->depth, (long long)k->depth, (long long)k->rows,
             gm_dtype_name((gm_dtype)k->dtype), (int)k->epilogue);
    gm_device_note(dev, text);
    pl->invalid = false;
}

static gm_status queue_all(gm_device *dev, gm_cuda *cu, plan *pl, int which, const gm_product *p,
                           const gm_gemm_args *args)
{
    gm_status st = GM_OK;
    gm_block *block = NULL;
    void     *workspace = NULL;
    size_t    size = gm_dtype_size(p->dtype), size_to = gm_dtype_size(p->to);
    size_t    bytes = pl->algorithms[which].workspaceSize;
    if (bytes) GM_TRY(gm_cuda_scratch(dev, bytes, &workspace, &block));
    for (int64_t i = 0; i < calls_of(args) && st == GM_OK; i++)
        st = queue(cu, pl, which, args, addresses_of(args, i, size, size_to), workspace);
    if (block) gm_pool_release(dev->pool, block);
    return st;
}

/* *out NULL: cuBLASLt is not there, or cannot be asked. args: with what stands for db. */
static gm_status plan_for(gm_device *dev, const gm_product *p, const gm_gemm_args *args, int wanted, gm_cuda **cu,
                          plan **out)
{
    gm_blas *blas;
    plan_key key;
    *out = NULL;
    if (!args->m || !args->n || !args->k || p->dtype == GM_F64) return GM_OK;
    if (calls_of(args) > MOST_CALLS || !gm_blas_key(args, p->dtype, p->to, &key)) return GM_OK;
    key.tf32 = p->dtype == GM_F32 && dev->tf32;
    GM_TRY(gm_cuda_enter(dev, cu));
    GM_TRY(blas_of(*cu, &blas));
    if (!blas) return GM_OK;
    GM_TRY(plan_of(blas, &key, args, wanted, out));
    if ((*out)->invalid) note_invalid(dev, *out);
    return GM_OK;
}

static gm_status make(gm_device *dev, const gm_product *p, const gm_gemm_args *args, const gm_variant *v, bool *served)
{
    gm_cuda             *cu;
    plan                *pl;
    int                  which = 0;
    cublasLtMatmulAlgo_t algorithm;
    *served = false;
    GM_TRY(plan_for(dev, p, args, 1, &cu, &pl));
    if (pl && v) {
        memcpy(algorithm.data, v->word, sizeof algorithm.data);
        GM_TRY(find_algorithm(cu->blas, pl, &algorithm, &which));
    }
    *served = pl && which >= 0 && which < pl->n;
    return *served ? queue_all(dev, cu, pl, which, p, args) : GM_OK;
}

/* cuBLASLt sets sums: where they are added to db, or db has gaps, they go by way of a vector of their own. */
static gm_status run(gm_device *dev, const gm_product *p, const gm_variant *v, bool *served)
{
    gm_tensor   *sums = NULL, *db = p->db;
    gm_attrs     attrs = gm_attrs_default();
    gm_gemm_args args = p->args;
    if (!db) return make(dev, p, &args, v, served);
    bool straight = !args.accumulate && gm_tensor_is_contiguous(db);
    if (!straight) GM_TRY(gm_tensor_new(dev, db->dtype, 1, db->shape, &sums));
    args.sums = gm_tensor_data(straight ? db : sums);
    gm_status st = make(dev, p, &args, v, served);
    gm_call   c = {.op = GM_OP_axpy, .n_in = 1, .n_out = 1, .in = &sums, .out = &db, .attrs = &attrs};
    if (st == GM_OK && *served && !straight) st = args.accumulate ? cuda_axpy(dev, &c) : cuda_copy(dev, &c);
    gm_tensor_release(sums);
    return st;
}

static gm_status offers(gm_device *dev, const gm_product *p, int most, gm_variant *out, int *n)
{
    gm_cuda     *cu;
    plan        *pl;
    gm_gemm_args args = p->args;
    if (p->db) args.sums = gm_tensor_data(p->db);
    *n = 0;
    GM_TRY(plan_for(dev, p, &args, ANSWERS, &cu, &pl));
    for (int i = 0; pl && i < pl->n && i < ANSWERS && *n < most; i++, ++*n)
        memcpy(out[*n].word, pl->algorithms[i].algo.data, sizeof out[*n].word);
    return GM_OK;
}

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(gm_variant), "a variant is an algorithm of cuBLASLt");

static char *about(const gm_device *dev, char *buf, size_t size)
{
    if (gm_cuda_of(dev)->blas) snprintf(buf, size, ", cuBLASLt %zu", lt->cublasLtGetVersion());
    else snprintf(buf, size, ", without cuBLASLt");
    return buf;
}

const gm_way gm_way_cublaslt = {"cublaslt", offers, run, about};
