/* plan.h - from a graph to what can be run: an engine of cuDNN's, chosen by its heuristics.
 *
 * The plan is for the device of a handle or, on a machine without one, for a device described by cuDNN's JSON (the
 * libraries then still want a CUDA driver to be there, but ask nothing of it). */
#ifndef GM_CUDA_DNN_PLAN_H
#define GM_CUDA_DNN_PLAN_H

#include "graph.h"

typedef struct gm_dnn_plan {
    gm_dnn_builder           owned; /* of all descriptors */
    cudnnBackendDescriptor_t plan;
    int64_t                  workspace;     /* bytes */
    int64_t                  engine;        /* cuDNN's number, for people */
    bool                     deterministic; /* the same bits each time */
    bool                     graphs;        /* can be captured in a CUDA graph */
} gm_dnn_plan;

/* The graph alone, checked by cuDNN: needs no driver. */
gm_status gm_dnn_check_graph(const gm_dnn_library *lib, const gm_dnn_problem *p, const char *device, int *ops);
/* One of handle and device (JSON) is NULL. Of the engines offered the first that can be built is taken, of those that
 * are deterministic if there are any. GM_EINVAL: no engine does it. On failure nothing is to be closed. */
gm_status gm_dnn_plan_new(const gm_dnn_library *lib, const gm_dnn_problem *p, cudnnHandle_t handle, const char *device,
                          gm_dnn_plan *out);
void      gm_dnn_plan_close(gm_dnn_plan *plan);

#endif
