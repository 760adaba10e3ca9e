/* graph.h - attention and its gradient as cuDNN's composite operation graphs, which its fused kernels match.
 *
 * cuDNN's single SDPA operations lack the causal mask and the gradient (9.19), so the formulas are written out. What is
 * written follows the patterns that its engines look for: changing an operation or a dtype between two of them makes
 * plans impossible or slow, without an error before the plan is built. What is taken is in gm_dnn_takes, and
 * spec/cuda/dnn_spec.lua has cuDNN check the graph of each kind. b batches, h heads, s queries, t keys. */
#ifndef GM_CUDA_DNN_GRAPH_H
#define GM_CUDA_DNN_GRAPH_H

#include "../../dtype.h"
#include "build.h"

/* Strides of batch, row and head, in elements; the last dimension has stride 1. */
typedef struct gm_dnn_strides {
    int64_t batch, row, head;
} gm_dnn_strides;

/* An attention: q, o, g, dq (b, s, h, d); k, v, dk, dv (b, t, hk, d). The key of the cache of plans, compared as bytes:
 * begin with zeros. */
typedef struct gm_dnn_problem {
    int64_t        b, h, hk, s, t, d;
    gm_dnn_strides q, k, v, o, g, dq, dk, dv; /* the last four: of a gradient */
    int32_t        dtype;                     /* gm_dtype */
    int32_t        arch;                      /* of the GPU: 90 for sm_90 */
    int32_t        causal, gradient;          /* causal: query i sees keys j <= i + (t - s) */
} gm_dnn_problem;

/* What the caller gives under these UIDs. */
typedef enum gm_dnn_uid {
    GM_DNN_Q = 1,
    GM_DNN_K,
    GM_DNN_V,
    GM_DNN_O,
    GM_DNN_LSE, /* f32 (b, h, s) */
    GM_DNN_G,   /* from here on of a gradient */
    GM_DNN_DQ,
    GM_DNN_DK,
    GM_DNN_DV,
    GM_DNN_DELTA,  /* f32 (b, h, s), room for cuDNN's own sums */
    GM_DNN_DQ_SUM, /* f32 (b, h, s, d), the same */
    GM_DNN_SCALE,  /* f32 from here on, from the host */
    GM_DNN_HIDDEN, /* -inf */
    GM_DNN_ONE,
    GM_DNN_LATER, /* i32 from the host: t - s */
    GM_DNN_UIDS,
} gm_dnn_uid;

/* Can cuDNN do it? A function of the problem alone; *why, if not NULL, is set to what it cannot. Strides are of a
 * multiple of 16 bytes and positive. */
bool gm_dnn_takes(const gm_dnn_problem *p, const char **why);

/* Writes the operations of the problem into b, which is empty. */
void gm_dnn_graph(gm_dnn_builder *b, const gm_dnn_problem *p);

#endif
