/* graph.h - attention and its gradient as cuDNN's composite operation graphs, which its fused kernels match.
 *
 * cuDNN's single SDPA operations lack the causal mask and the gradient (version 9.19), so the formulas are written as
 * graphs of operations. The graphs follow the patterns that cuDNN's engines look for. A change of an operation, or of a
 * dtype between two operations, makes plans impossible or slow, and no error shows it before the plan is built.
 * gm_dnn_takes says which problems are taken. spec/cuda/dnn_spec.lua lets cuDNN check the graph of each kind. There are
 * b batches, h heads, s queries and t keys. */
#ifndef GM_CUDA_DNN_GRAPH_H
#define GM_CUDA_DNN_GRAPH_H

#include "../../dtype.h"
#include "plan.h"

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

/* The tensors that the caller gives, by UID. */
typedef enum gm_dnn_uid {
    GM_DNN_Q = 1,
    GM_DNN_K,
    GM_DNN_V,
    GM_DNN_O,
    GM_DNN_LSE, /* f32 (b, h, s) */
    GM_DNN_G,   /* this and the next five: of a gradient */
    GM_DNN_DQ,
    GM_DNN_DK,
    GM_DNN_DV,
    GM_DNN_DELTA,  /* f32 (b, h, s): room for cuDNN's own sums */
    GM_DNN_DQ_SUM, /* f32 (b, h, s, d): room for cuDNN's own sums */
    GM_DNN_SCALE,  /* this and the next two: f32 numbers from the host */
    GM_DNN_HIDDEN, /* -inf */
    GM_DNN_ONE,
    GM_DNN_LATER, /* i32 from the host: t - s */
    GM_DNN_UIDS,
} gm_dnn_uid;

/* Tells whether cuDNN takes the problem; this depends on the problem alone. If it does not, *why, unless why is NULL,
 * becomes the reason. Strides must be positive and multiples of 16 bytes. */
bool gm_dnn_takes(const gm_dnn_problem *p, const char **why);

/* The problem, which must stay, as a graph of operations. */
gm_dnn_writing gm_dnn_of_attention(const gm_dnn_problem *p);

#endif
