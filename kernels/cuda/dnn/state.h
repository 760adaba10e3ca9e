/* state.h - what attention and convolutions share of cuDNN on a device: the library, plans by their problems, running a
 * plan. Private to this folder. */
#ifndef GM_CUDA_DNN_STATE_H
#define GM_CUDA_DNN_STATE_H

#include "../runtime/cuda.h"
#include "convolution_graph.h"
#include "graph.h"
#include "plan.h"

typedef union gm_dnn_key {
    gm_dnn_problem     attention;
    gm_dnn_convolution convolution;
} gm_dnn_key;

struct gm_dnn {
    gm_dnn_library  lib;
    bool            there;        /* false: there is no cuDNN to use */
    char            missing[200]; /* then why */
    cudnnHandle_t   handle;
    int             arch; /* 90: sm_90 */
    struct planned *plans;
};

/* What a plan is given: addresses of device memory, and of the host's for the numbers. */
typedef struct gm_dnn_pack {
    int64_t uid[GM_DNN_UIDS];
    void   *data[GM_DNN_UIDS];
    int     n;
} gm_dnn_pack;

/* The device's cuDNN, opened when it is first asked for. */
gm_status gm_dnn_enter(gm_device *dev, struct gm_dnn **out);
/* The plan of this problem, built when it first comes; how->problem points to `size` bytes. */
gm_status gm_dnn_find_plan(struct gm_dnn *dnn, const gm_dnn_writing *how, size_t size, const gm_dnn_plan **out);
void      gm_dnn_give(gm_dnn_pack *k, int64_t uid, const void *data);
gm_status gm_dnn_execute(struct gm_dnn *dnn, const gm_dnn_plan *plan, const gm_dnn_pack *k, void *workspace,
                         const char *what);

#endif
