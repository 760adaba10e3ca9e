/* fake_dnn.c - cuDNN's graph interface for machines without a GPU: libgm_fake_cudnn.so, which specs name in
 * GANYMEDE_CUDA_DNN beside the fake driver. It keeps descriptors as bags of attributes and runs a graph operation by
 * operation over the memory of the fake driver (fake_dnn_op.c), so that what the graphs mean, and what they are given,
 * can be compared with ref. It takes any graph of the operations there: whether cuDNN has an engine for one is shown
 * with the real library (dnn_trial.c). */
#include "fake_dnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_driver.h"

char gm_fake_dnn_words[512];

cudnnStatus_t gm_fake_dnn_refuse(cudnnStatus_t s, const char *why)
{
    snprintf(gm_fake_dnn_words, sizeof gm_fake_dnn_words, "%s", why);
    return s;
}

size_t      cudnnGetVersion(void) { return getenv("FAKE_DNN") ? (size_t)atol(getenv("FAKE_DNN")) : CUDNN_VERSION; }
const char *cudnnGetErrorString(cudnnStatus_t s) { return s == CUDNN_STATUS_SUCCESS ? "success" : "refused"; }
void        cudnnGetLastErrorString(char *message, size_t size) { snprintf(message, size, "%s", gm_fake_dnn_words); }

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
    if (!handle || !stream) return gm_fake_dnn_refuse(CUDNN_STATUS_BAD_PARAM, "no stream");
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
    if (d->final || d->n == MOST_ATTRIBUTES)
        return gm_fake_dnn_refuse(CUDNN_STATUS_BAD_PARAM, "set after it was finalized");
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < n; i++)
            if (!((bag *const *)values)[i]->final)
                return gm_fake_dnn_refuse(CUDNN_STATUS_BAD_PARAM, "a part is not finalized");
    if (!(copy = malloc(bytes + 1))) return CUDNN_STATUS_ALLOC_FAILED;
    memcpy(copy, values, bytes);
    d->list[d->n++] = (attribute){name, n, copy, type == CUDNN_TYPE_BACKEND_DESCRIPTOR};
    return CUDNN_STATUS_SUCCESS;
}

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
    for (int64_t i = 0; i < q->ops->n && ok; i++) ok = gm_fake_dnn_run(&q->pack, ((bag **)q->ops->data)[i]);
    for (int64_t i = 0; i < q->ops->n; i++) gm_fake_dnn_forget(((bag **)q->ops->data)[i]);
    if (!ok) snprintf(error, size, "cudnnBackendExecute: %s", gm_fake_dnn_words);
}

/* Looks through the pack; what it gives by value is copied. */
static bool take_operand(queued *q, const bag *t)
{
    if (is_virtual(t)) return true;
    if (!gm_fake_dnn_is_there(&q->pack, t)) return false;
    if (!is_by_value(t)) return true;
    void  **data = gm_fake_dnn_entry(&q->pack, t);
    double *cell = &q->by_value[data - (void **)find(&q->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->data];
    if (*data != cell) memcpy(cell, *data, gm_dtype_size(gm_fake_dnn_dtype(t)));
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
    if (!handle || why) return gm_fake_dnn_refuse(CUDNN_STATUS_BAD_PARAM, why ? why : "no handle");
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
