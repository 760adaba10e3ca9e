/* plan.h - makes a plan, which can run, from a graph: cuDNN's heuristics choose an engine for it.
 *
 * The plan is for the device of a handle or, on a machine without a device, for a device that cuDNN's JSON describes.
 * In the second case the libraries still need a CUDA driver to be present, but do not use it. */
#ifndef GM_CUDA_DNN_PLAN_H
#define GM_CUDA_DNN_PLAN_H

#include "build.h"

/* How a problem is written down as a graph. */
typedef struct gm_dnn_writing {
    const char *what;                                      /* "attention", for messages */
    void (*write)(gm_dnn_builder *b, const void *problem); /* into b, which is empty */
    const void *problem;
    int64_t     uids;     /* above the UIDs of all tensors that the caller gives */
    bool        long_sum; /* few results, each a sum over very many terms: it should be split */
} gm_dnn_writing;

typedef struct gm_dnn_plan {
    gm_dnn_builder           owned; /* owns all descriptors */
    cudnnBackendDescriptor_t plan;
    int64_t                  workspace;     /* bytes */
    int64_t                  engine;        /* cuDNN's number, for people */
    bool                     deterministic; /* it gives the same bits each time */
    bool                     graphs;        /* it can be captured in a CUDA graph */
} gm_dnn_plan;

/* Lets cuDNN check the graph alone, which needs no driver. *ops: the number of operations. */
gm_status gm_dnn_check_graph(const gm_dnn_library *lib, const gm_dnn_writing *p, const char *device, int *ops);
/* Makes a plan; the caller closes it. Either handle or device (JSON) is NULL. It takes the first engine that can be
 * built, and prefers deterministic ones. Of a long sum it takes the form of this engine with the most workspace, which
 * holds the parts of sums: cuDNN's first answer splits too little (0.47 ms beside 0.24 for the weights of the first
 * convolution of a ResNet on an H200). GM_EINVAL: no engine can compute the problem. After a failure there is nothing
 * to close. */
gm_status gm_dnn_plan_new(const gm_dnn_library *lib, const gm_dnn_writing *p, cudnnHandle_t handle, const char *device,
                          gm_dnn_plan *out);
void      gm_dnn_plan_close(gm_dnn_plan *plan);

#endif
