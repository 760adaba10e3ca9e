/* plan.c - see plan.h. */
#include "plan.h"

#include <string.h>

#define MOST_ENGINES 16

typedef struct target {
    cudnnHandle_t            handle;
    cudnnBackendDescriptor_t device; /* NULL if handle is not */
} target;

static target target_of(gm_dnn_builder *b, cudnnHandle_t handle, const char *device)
{
    target t = {handle, NULL};
    if (!device) return t;
    t.device = gm_dnn_make(b, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    gm_dnn_set(b, t.device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(device),
               device);
    gm_dnn_finalize(b, t.device, "a description of a device");
    return t;
}

static cudnnBackendDescriptor_t checked_graph(gm_dnn_builder *b, const gm_dnn_writing *p, target to)
{
    p->write(b, p->problem);
    cudnnBackendDescriptor_t graph = gm_dnn_make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    gm_dnn_set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, b->n_ops, b->ops);
    if (to.handle) gm_dnn_set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &to.handle);
    gm_dnn_finalize(b, graph, p->what);
    return graph;
}

/* The engines that cuDNN thinks of, best first -> how many. */
static int64_t ask(gm_dnn_builder *b, const gm_dnn_writing *p, cudnnBackendDescriptor_t graph, target to,
                   cudnnBackendDescriptor_t *configs)
{
    cudnnBackendHeurMode_t   mode = CUDNN_HEUR_MODE_A;
    int64_t                  n = 0;
    cudnnBackendDescriptor_t heuristic = gm_dnn_make(b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    gm_dnn_set_part(b, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    gm_dnn_set(b, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (to.device) gm_dnn_set_part(b, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, to.device);
    gm_dnn_finalize(b, heuristic, p->what);
    for (int i = 0; i < MOST_ENGINES; i++) configs[i] = gm_dnn_make(b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (b->st != GM_OK) return 0;
    cudnnStatus_t s = b->lib->cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_ENGINES, &n, configs);
    if (s != CUDNN_STATUS_SUCCESS) b->st = gm_dnn_failed(b->lib, s, __FILE__, __LINE__, p->what);
    return b->st == GM_OK ? n : 0;
}

static gm_status engine_notes(gm_dnn_builder *b, cudnnBackendDescriptor_t config, gm_dnn_plan *out)
{
    cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t  behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t                     n = 0, m = 0;
    const gm_dnn_library       *lib = b->lib;
    cudnnBackendDescriptor_t    engine = gm_dnn_make(b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    GM_TRY(b->st);
    GM_CUDNN(lib, cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                           &engine));
    GM_CUDNN(lib,
             cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &out->engine));
    GM_CUDNN(lib, cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                           CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, numerical));
    GM_CUDNN(lib, cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                           CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &m, behaviour));
    out->deterministic = true;
    out->graphs = false;
    for (int64_t i = 0; i < n; i++) out->deterministic &= numerical[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    for (int64_t i = 0; i < m; i++) out->graphs |= behaviour[i] == CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API;
    return GM_OK;
}

/* Builds the plan of one engine; out->plan stays NULL where it cannot be. */
static gm_status try_engine(gm_dnn_builder *b, cudnnBackendDescriptor_t config, target to, gm_dnn_plan *out)
{
    int64_t n = 0;
    GM_TRY(engine_notes(b, config, out));
    cudnnBackendDescriptor_t plan = gm_dnn_make(b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    gm_dnn_set_part(b, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (to.handle) gm_dnn_set(b, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &to.handle);
    if (to.device) gm_dnn_set_part(b, plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, to.device);
    GM_TRY(b->st);
    if (b->lib->cudnnBackendFinalize(plan) != CUDNN_STATUS_SUCCESS) return GM_OK;
    GM_CUDNN(b->lib, cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                              &out->workspace));
    out->plan = plan;
    return GM_OK;
}

static bool is_better(const gm_dnn_plan *one, const gm_dnn_plan *than, bool long_sum)
{
    if (!one->plan || !than->plan) return one->plan;
    if (one->deterministic != than->deterministic) return one->deterministic;
    return long_sum && one->engine == than->engine && one->workspace > than->workspace;
}

static gm_status choose(gm_dnn_builder *b, const gm_dnn_writing *p, target to, gm_dnn_plan *out)
{
    cudnnBackendDescriptor_t configs[MOST_ENGINES];
    gm_dnn_plan              any = {.plan = NULL};
    cudnnBackendDescriptor_t graph = checked_graph(b, p, to);
    int64_t                  n = ask(b, p, graph, to, configs);
    GM_TRY(b->st);
    for (int64_t i = 0; i < n && (p->long_sum || !any.plan || !any.deterministic); i++) {
        gm_dnn_plan one = {.plan = NULL};
        GM_TRY(try_engine(b, configs[i], to, &one));
        if (is_better(&one, &any, p->long_sum)) any = one;
    }
    if (!any.plan)
        return GM_FAIL(GM_EINVAL,
                       "cuDNN has no engine for %s of these sizes: none of %d that it offers can be built; "
                       "GANYMEDE_CUDA_DNN=none takes our kernel",
                       p->what, (int)n);
    gm_dnn_builder owned = *b;
    *out = any;
    out->owned = owned;
    return GM_OK;
}

gm_status gm_dnn_check_graph(const gm_dnn_library *lib, const gm_dnn_writing *p, const char *device, int *ops)
{
    gm_dnn_builder b;
    gm_dnn_begin(&b, lib, p->uids);
    checked_graph(&b, p, target_of(&b, NULL, device));
    *ops = b.n_ops;
    gm_dnn_end(&b);
    return b.st;
}

gm_status gm_dnn_plan_new(const gm_dnn_library *lib, const gm_dnn_writing *p, cudnnHandle_t handle, const char *device,
                          gm_dnn_plan *out)
{
    gm_dnn_builder b;
    gm_dnn_begin(&b, lib, p->uids);
    target    to = target_of(&b, handle, device);
    gm_status st = choose(&b, p, to, out);
    if (st != GM_OK) gm_dnn_end(&b);
    return st;
}

void gm_dnn_plan_close(gm_dnn_plan *plan)
{
    if (plan->owned.lib) gm_dnn_end(&plan->owned);
}
