/* fake_dnn.c - cuDNN's graph interface for machines without a GPU: libgm_fake_cudnn.so, which specs name in
 * GANYMEDE_CUDA_DNN beside the fake driver. It keeps descriptors as bags of attributes and runs a graph operation by
 * operation in plain loops over the memory of the fake driver, so that what the graphs mean, and what they are given,
 * can be compared with ref. It takes any graph of the operations below: whether cuDNN has an engine for one is shown
 * with the real library (dnn_trial.c).
 *
 * Every tensor of four dimensions becomes an array of double, rounded to its dtype when it is written. An index of a
 * smaller size stands for a group of those of a larger one: 1 for all, a key's head for its queries' heads. */
#include <cudnn_graph.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/dtype.h"
#include "fake_driver.h"

#define MOST_ATTRIBUTES 16

typedef struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t                     n;
    void                       *data;
    bool                        parts; /* descriptors */
} attribute;

typedef struct bag {
    cudnnBackendDescriptorType_t type;
    attribute                    list[MOST_ATTRIBUTES];
    int                          n;
    bool                         final;
    double                      *values; /* of a tensor while its graph runs */
} bag;

static char words[512];

static cudnnStatus_t refuse(cudnnStatus_t s, const char *why)
{
    snprintf(words, sizeof words, "%s", why);
    return s;
}

size_t      cudnnGetVersion(void) { return getenv("FAKE_DNN") ? (size_t)atol(getenv("FAKE_DNN")) : CUDNN_VERSION; }
const char *cudnnGetErrorString(cudnnStatus_t s) { return s == CUDNN_STATUS_SUCCESS ? "success" : "refused"; }
void        cudnnGetLastErrorString(char *message, size_t size) { snprintf(message, size, "%s", words); }

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    return (*handle = calloc(1, sizeof(cudaStream_t))) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_ALLOC_FAILED;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (!handle || !stream) return refuse(CUDNN_STATUS_BAD_PARAM, "no stream");
    *(cudaStream_t *)(void *)handle = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    bag *d = calloc(1, sizeof *d);
    if (!d) return CUDNN_STATUS_ALLOC_FAILED;
    d->type = type;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    bag *d = descriptor;
    for (int i = 0; i < d->n; i++) free(d->list[i].data);
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

static size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64: return sizeof(int64_t);
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
    default: return sizeof(int); /* enums */
    }
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    bag   *d = descriptor;
    size_t bytes = (size_t)n * size_of(type);
    void  *copy;
    if (d->final || d->n == MOST_ATTRIBUTES) return refuse(CUDNN_STATUS_BAD_PARAM, "set after it was finalized");
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < n; i++)
            if (!((bag *const *)values)[i]->final) return refuse(CUDNN_STATUS_BAD_PARAM, "a part is not finalized");
    if (!(copy = malloc(bytes + 1))) return CUDNN_STATUS_ALLOC_FAILED;
    memcpy(copy, values, bytes);
    d->list[d->n++] = (attribute){name, n, copy, type == CUDNN_TYPE_BACKEND_DESCRIPTOR};
    return CUDNN_STATUS_SUCCESS;
}

static const attribute *find(const bag *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->n; i++)
        if (d->list[i].name == name) return &d->list[i];
    return NULL;
}

static bag *part(const bag *d, cudnnBackendAttributeName_t name)
{
    const attribute *a = find(d, name);
    return a ? *(bag **)a->data : NULL;
}

static const int64_t *numbers(const bag *d, cudnnBackendAttributeName_t name) { return find(d, name)->data; }

static int choice(const bag *d, cudnnBackendAttributeName_t name) { return *(int *)find(d, name)->data; }

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    ((bag *)descriptor)->final = true;
    return CUDNN_STATUS_SUCCESS;
}

/* One engine serves all: its configuration is told which graph it is for. */
cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *out)
{
    const bag *d = descriptor;
    (void)type;
    *n = room < 1 ? 0 : 1;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        bag *config = *(bag **)out, *graph = part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        return cudnnBackendSetAttribute(config, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                        &graph) == CUDNN_STATUS_SUCCESS
                   ? cudnnBackendFinalize(config)
                   : CUDNN_STATUS_BAD_PARAM;
    }
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) *(int64_t *)out = 0;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) *(int64_t *)out = 256;
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE || name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE) *n = 0;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- tensors ---- */

#define EACH(i, size)                                \
    for (i[0] = 0; i[0] < (size)[0]; i[0]++)         \
        for (i[1] = 0; i[1] < (size)[1]; i[1]++)     \
            for (i[2] = 0; i[2] < (size)[2]; i[2]++) \
                for (i[3] = 0; i[3] < (size)[3]; i[3]++)

static const int64_t *sizes(const bag *t) { return numbers(t, CUDNN_ATTR_TENSOR_DIMENSIONS); }

static int64_t count(const bag *t)
{
    const int64_t *n = sizes(t);
    return n[0] * n[1] * n[2] * n[3];
}

static int64_t offset(const bag *t, const int64_t *i)
{
    const int64_t *stride = numbers(t, CUDNN_ATTR_TENSOR_STRIDES);
    return i[0] * stride[0] + i[1] * stride[1] + i[2] * stride[2] + i[3] * stride[3];
}

static int64_t reach(const bag *t)
{
    const int64_t *n = sizes(t);
    return offset(t, (int64_t[]){n[0] - 1, n[1] - 1, n[2] - 1, n[3] - 1}) + 1;
}

static gm_dtype dtype(const bag *t)
{
    switch (choice(t, CUDNN_ATTR_TENSOR_DATA_TYPE)) {
    case CUDNN_DATA_FLOAT: return GM_F32;
    case CUDNN_DATA_HALF: return GM_F16;
    case CUDNN_DATA_BFLOAT16: return GM_BF16;
    case CUDNN_DATA_INT32: return GM_I32;
    default: return GM_U8;
    }
}

/* The place of element i of `of` in the array of t: dimensions that are smaller in t stand for groups. */
static int64_t place(const bag *t, const int64_t *i, const int64_t *of)
{
    const int64_t *n = sizes(t);
    int64_t        at = 0;
    for (int d = 0; d < 4; d++) at = at * n[d] + i[d] / (of[d] / n[d]);
    return at;
}

static double value(const bag *t, const int64_t *i, const int64_t *of) { return t->values[place(t, i, of)]; }

static bool is_virtual(const bag *t) { return find(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL); }
static bool is_by_value(const bag *t) { return find(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE); }

/* The entry of the pack for t, or NULL with a complaint. */
static void **entry(const bag *pack, const bag *t)
{
    const attribute *ids = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    void           **data = find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->data;
    int64_t          uid = numbers(t, CUDNN_ATTR_TENSOR_UNIQUE_ID)[0];
    for (int64_t i = 0; i < ids->n; i++)
        if (((const int64_t *)ids->data)[i] == uid) return &data[i];
    snprintf(words, sizeof words, "tensor %lld is not given", (long long)uid);
    return NULL;
}

/* May t be found where the pack says? */
static bool is_there(const bag *pack, const bag *t)
{
    void **data = entry(pack, t);
    if (!data || is_by_value(t)) return data;
    const char *why = gm_fake_outside(*data, (size_t)reach(t) * gm_dtype_size(dtype(t)));
    if (!why && (uintptr_t)*data % 16) why = "it is not aligned to 16 bytes";
    if (why)
        snprintf(words, sizeof words, "tensor %lld: %s", (long long)numbers(t, CUDNN_ATTR_TENSOR_UNIQUE_ID)[0], why);
    return !why;
}

/* Where the caller's bytes of t are; the pack was looked through when it was given. */
static void *given(const bag *pack, const bag *t) { return *entry(pack, t); }

/* The values of an operand: of a virtual one they must have been computed. */
static bool load(const bag *pack, bag *t)
{
    int64_t i[4];
    void   *data;
    if (!t || t->values) return true;
    if (is_virtual(t)) return refuse(CUDNN_STATUS_BAD_PARAM, "an operand before it is computed"), false;
    if (!(data = given(pack, t)) || !(t->values = malloc((size_t)count(t) * sizeof(double)))) return false;
    EACH(i, sizes(t)) t->values[place(t, i, sizes(t))] = gm_load(dtype(t), data, offset(t, i));
    return true;
}

/* A result: rounded to its dtype, and stored if the caller gave a place. */
static bool finish(const bag *pack, bag *t, double *values)
{
    int64_t i[4];
    void   *data = is_virtual(t) ? NULL : given(pack, t);
    t->values = values;
    if (!values || (!is_virtual(t) && !data)) return false;
    for (int64_t k = 0; k < count(t); k++) {
        double cell;
        gm_store(dtype(t), &cell, 0, values[k]);
        values[k] = gm_load(dtype(t), &cell, 0);
    }
    if (data) EACH(i, sizes(t)) gm_store(dtype(t), data, offset(t, i), value(t, i, sizes(t)));
    return true;
}

static double *room(const bag *t) { return calloc((size_t)count(t) + 1, sizeof(double)); }

/* ---- operations ---- */

static bool matmul(const bag *pack, const bag *op)
{
    bag           *a = part(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC), *b = part(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    bag           *c = part(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    const int64_t *n = sizes(c);
    int64_t        i[4], inner = sizes(a)[3];
    double        *out = room(c);
    if (sizes(b)[2] != inner || sizes(a)[2] != n[2] || sizes(b)[3] != n[3])
        return refuse(CUDNN_STATUS_BAD_PARAM, "sizes of a product"), free(out), false;
    if (!load(pack, a) || !load(pack, b)) return free(out), false;
    EACH(i, n)
    for (int64_t k = 0; k < inner; k++)
        out[place(c, i, n)] += value(a, (int64_t[]){i[0], i[1], i[2], k}, (int64_t[]){n[0], n[1], n[2], inner}) *
                               value(b, (int64_t[]){i[0], i[1], k, i[3]}, (int64_t[]){n[0], n[1], inner, n[3]});
    return finish(pack, c, out);
}

static double computed(int mode, double x, double b, bool seen, int64_t index)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_IDENTITY: return x;
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return seen ? x : b;
    case CUDNN_POINTWISE_GEN_INDEX: return (double)index;
    default: return NAN;
    }
}

static bool pointwise(const bag *pack, const bag *op)
{
    const bag *how = part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    bag       *x = part(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC), *y = part(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    bag       *b = part(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC), *t = part(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    const attribute *axis = find(how, CUDNN_ATTR_POINTWISE_AXIS);
    int              mode = choice(how, CUDNN_ATTR_POINTWISE_MODE);
    const int64_t   *n = sizes(y);
    int64_t          i[4];
    if (!load(pack, x) || !load(pack, b) || !load(pack, t)) return false;
    double *out = room(y);
    EACH(i, n)
    out[place(y, i, n)] = computed(mode, value(x, i, n), b ? value(b, i, n) : 0, t && value(t, i, n) != 0,
                                   axis ? i[*(int64_t *)axis->data] : 0);
    return finish(pack, y, out);
}

static bool reduction(const bag *pack, const bag *op)
{
    bag *x = part(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC), *y = part(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    bool largest = choice(part(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_OPERATOR) ==
                   CUDNN_REDUCE_TENSOR_MAX;
    int64_t i[4];
    if (!load(pack, x)) return false;
    double *out = room(y);
    for (int64_t k = 0; k < count(y) && largest; k++) out[k] = -INFINITY;
    EACH(i, sizes(x))
    {
        double *to = &out[place(y, i, sizes(x))], v = value(x, i, sizes(x));
        *to = largest ? fmax(*to, v) : *to + v;
    }
    return finish(pack, y, out);
}

/* The same memory seen with other sizes and strides. */
static bool reshape(const bag *pack, const bag *op)
{
    bag    *x = part(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC), *y = part(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    int64_t i[4];
    if (reach(x) != reach(y)) return refuse(CUDNN_STATUS_BAD_PARAM, "a reshape to another size"), false;
    if (!load(pack, x)) return false;
    double *memory = calloc((size_t)reach(x), sizeof *memory), *out = room(y);
    EACH(i, sizes(x)) memory[offset(x, i)] = value(x, i, sizes(x));
    EACH(i, sizes(y)) out[place(y, i, sizes(y))] = memory[offset(y, i)];
    free(memory);
    return finish(pack, y, out);
}

/* The places of x, w and y of a convolution that belong together; `made` of them gets the sums of the products of the
 * others, after what it held if beta says so. */
static bool convolve(const bag *pack, const bag *how, bag *t[3], int made, float beta)
{
    const int64_t *x = sizes(t[0]), *w = sizes(t[1]), *y = sizes(t[2]);
    const int64_t *low = numbers(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    const int64_t *high = numbers(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    const int64_t *stride = numbers(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    const int64_t *dilation = numbers(how, CUDNN_ATTR_CONVOLUTION_DILATIONS);
    int64_t        i[4], k[4], outputs = w[0] / (x[1] / w[1]);
    if (choice(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION || x[1] % w[1] || y[1] != w[0])
        return refuse(CUDNN_STATUS_BAD_PARAM, "sizes of a convolution"), false;
    for (int d = 0; d < 2; d++)
        if (y[d + 2] != (x[d + 2] + low[d] + high[d] - dilation[d] * (w[d + 2] - 1) - 1) / stride[d] + 1)
            return refuse(CUDNN_STATUS_BAD_PARAM, "sizes of the space of a convolution"), false;
    for (int j = 0; j < 3; j++)
        if ((j != made || beta != 0) && !load(pack, t[j])) return false;
    double *out = room(t[made]);
    for (int64_t n = 0; beta != 0 && n < count(t[made]); n++) out[n] = beta * t[made]->values[n];
    if (beta != 0) free(t[made]->values);
    EACH(i, y)
    EACH(k, ((int64_t[]){1, w[1], w[2], w[3]}))
    {
        int64_t at[4] = {i[0], i[1] / outputs * w[1] + k[1], i[2] * stride[0] + k[2] * dilation[0] - low[0],
                         i[3] * stride[1] + k[3] * dilation[1] - low[1]};
        int64_t of[4] = {i[1], k[1], k[2], k[3]};
        if (at[2] < 0 || at[2] >= x[2] || at[3] < 0 || at[3] >= x[3]) continue;
        double a = made == 0 ? 0 : value(t[0], at, x), b = made == 1 ? 0 : value(t[1], of, w);
        double c = made == 2 ? 0 : value(t[2], i, y);
        if (made == 0) out[place(t[0], at, x)] += b * c;
        if (made == 1) out[place(t[1], of, w)] += a * c;
        if (made == 2) out[place(t[2], i, y)] += a * b;
    }
    return finish(pack, t[made], out);
}

#define CONVOLVE(way, a, b, c, made)                                             \
    convolve(pack, part(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_CONV_DESC), \
             (bag *[]){part(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_##a),   \
                       part(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_##b),   \
                       part(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_##c)},  \
             made, *(float *)find(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_BETA)->data)

static bool run(const bag *pack, const bag *op)
{
    switch (op->type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return matmul(pack, op);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return pointwise(pack, op);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return reduction(pack, op);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return reshape(pack, op);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: return CONVOLVE(FORWARD, X, W, Y, 2);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: return CONVOLVE(BWD_DATA, DX, W, DY, 0);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: return CONVOLVE(BWD_FILTER, X, DW, DY, 1);
    default: return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an operation that the fake does not know"), false;
    }
}

/* Operands and results of an operation forget their values. */
static void forget(const bag *op)
{
    for (int i = 0; i < op->n; i++) {
        bag *t = op->list[i].parts ? *(bag **)op->list[i].data : NULL;
        if (!t || t->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) continue;
        free(t->values);
        t->values = NULL;
    }
}

/* ---- in stream order ---- */

typedef struct queued {
    const attribute *ops;
    bag              pack;     /* ids and addresses of its own */
    double          *by_value; /* the host's numbers as they were, a cell an entry */
} queued;

static void drop_queued(void *context)
{
    queued *q = context;
    for (int i = 0; i < q->pack.n; i++) free(q->pack.list[i].data);
    free(q->by_value);
    free(q);
}

static void run_queued(const void *context, char *error, size_t size)
{
    const queued *q = context;
    bool          ok = true;
    for (int64_t i = 0; i < q->ops->n && ok; i++) ok = run(&q->pack, ((bag **)q->ops->data)[i]);
    for (int64_t i = 0; i < q->ops->n; i++) forget(((bag **)q->ops->data)[i]);
    if (!ok) snprintf(error, size, "cudnnBackendExecute: %s", words);
}

/* Looks through the pack; what it gives by value is copied. */
static bool take_operand(queued *q, const bag *t)
{
    if (is_virtual(t)) return true;
    if (!is_there(&q->pack, t)) return false;
    if (!is_by_value(t)) return true;
    void  **data = entry(&q->pack, t);
    double *cell = &q->by_value[data - (void **)find(&q->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->data];
    if (*data != cell) memcpy(cell, *data, gm_dtype_size(dtype(t)));
    *data = cell;
    return true;
}

static bool take_pack(queued *q, const bag *pack)
{
    q->pack.type = pack->type;
    for (int i = 0; i < pack->n; i++) {
        const attribute *a = &pack->list[i];
        void            *copy = malloc((size_t)a->n * 8 + 1); /* numbers and addresses: 8 bytes each */
        if (!copy) return false;
        memcpy(copy, a->data, (size_t)a->n * 8);
        q->pack.list[q->pack.n++] = (attribute){a->name, a->n, copy, false};
    }
    q->by_value = calloc((size_t)find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->n + 1, sizeof *q->by_value);
    for (int64_t k = 0; q->by_value && k < q->ops->n; k++) {
        const bag *op = ((bag **)q->ops->data)[k];
        for (int i = 0; i < op->n; i++) {
            const bag *t = op->list[i].parts ? *(bag **)op->list[i].data : NULL;
            if (t && t->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && !take_operand(q, t)) return false;
        }
    }
    return q->by_value;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack)
{
    const bag       *config = part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const attribute *ops = find(part(config, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), CUDNN_ATTR_OPERATIONGRAPH_OPS);
    void            *workspace = *(void **)find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->data;
    const char      *why = gm_fake_outside(workspace, 256);
    char             line[64];
    if (!handle || why) return refuse(CUDNN_STATUS_BAD_PARAM, why ? why : "no handle");
    queued *q = calloc(1, sizeof *q);
    if (!q) return CUDNN_STATUS_ALLOC_FAILED;
    q->ops = ops;
    if (!take_pack(q, pack)) {
        drop_queued(q);
        return CUDNN_STATUS_EXECUTION_FAILED;
    }
    snprintf(line, sizeof line, "cudnnBackendExecute %lld operations", (long long)ops->n);
    bool ok = !gm_fake_queue(*(cudaStream_t *)(void *)handle, line,
                             (gm_fake_call){.run = run_queued, .drop = drop_queued, .context = q});
    return ok ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}
