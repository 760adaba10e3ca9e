/* graph.c - see graph.h. Shapes here are (b, h, rows, columns), as cuDNN has them. */
#include "graph.h"

#define ADD CUDNN_POINTWISE_ADD
#define SUB CUDNN_POINTWISE_SUB
#define MUL CUDNN_POINTWISE_MUL
#define F32 CUDNN_DATA_FLOAT

typedef struct graph {
    gm_dnn_builder       *b;
    const gm_dnn_problem *p;
    cudnnDataType_t       half;
    gm_dnn_shape          scores, row; /* (b, h, s, t), (b, h, s, 1) */
    gm_dnn_tensor         scale;
} graph;

/* What plans were built for, with cuDNN 9.19, for sm_80, sm_90 and sm_100. */
static const char *what_it_cannot(const gm_dnn_problem *p)
{
    if (!gm_dtype_is_narrow((gm_dtype)p->dtype)) return "numbers of more than 16 bits";
    if (p->b < 1 || p->h < 1 || p->s < 1 || p->t < 1) return "no elements";
    if (p->hk < 1 || p->h % p->hk) return "query heads that are no multiple of the key heads";
    if (p->d < 8 || p->d % 8) return "a head size that is no multiple of 8";
    if (p->arch < 80) return "GPUs before sm_80";
    if (p->d > (p->arch == 90 ? 256 : 128)) return "heads as large as this on this GPU";
    if (!p->causal || p->s == p->t) return NULL;
    if (p->s > p->t) return "causal with more queries than keys: the first of them see nothing";
    return p->s % 64 || p->t % 64 ? "causal with unequal numbers that are no multiples of 64" : NULL;
}

bool gm_dnn_takes(const gm_dnn_problem *p, const char **why)
{
    const char *cannot = what_it_cannot(p);
    if (why) *why = cannot;
    return !cannot;
}

/* (b, h, rows, d) of a tensor of ours, (b, rows, h, d) with these strides. */
static gm_dnn_shape laid(const gm_dnn_problem *p, int64_t heads, int64_t rows, gm_dnn_strides at)
{
    return (gm_dnn_shape){{p->b, heads, rows, p->d}, {at.batch, at.head, at.row, 1}};
}

static gm_dnn_shape of_queries(const gm_dnn_problem *p, gm_dnn_strides at) { return laid(p, p->h, p->s, at); }
static gm_dnn_shape of_keys(const gm_dnn_problem *p, gm_dnn_strides at) { return laid(p, p->hk, p->t, at); }

static gm_dnn_tensor like_scores(graph *g) { return gm_dnn_virtual(g->b, F32, g->scores); }
static gm_dnn_tensor like_row(graph *g) { return gm_dnn_virtual(g->b, F32, g->row); }

static gm_dnn_tensor binary(graph *g, cudnnPointwiseMode_t mode, gm_dnn_tensor x, gm_dnn_tensor w)
{
    gm_dnn_tensor y = gm_dnn_virtual(g->b, F32, x.shape);
    gm_dnn_binary(g->b, mode, F32, x, w, y);
    return y;
}

static gm_dnn_tensor exponential(graph *g, gm_dnn_tensor x)
{
    gm_dnn_tensor y = gm_dnn_virtual(g->b, F32, x.shape);
    gm_dnn_unary(g->b, CUDNN_POINTWISE_EXP, x, y);
    return y;
}

/* x (b, h, s, t) with -inf where query i does not see key j: i + (t - s) >= j must hold. */
static gm_dnn_tensor masked(graph *g, gm_dnn_tensor x)
{
    gm_dnn_builder *b = g->b;
    if (!g->p->causal) return x;
    gm_dnn_tensor hidden = gm_dnn_number(b, GM_DNN_HIDDEN, F32);
    gm_dnn_tensor i = gm_dnn_virtual(b, CUDNN_DATA_INT32, x.shape), j = gm_dnn_virtual(b, CUDNN_DATA_INT32, x.shape);
    gm_dnn_tensor seen = gm_dnn_virtual(b, CUDNN_DATA_BOOLEAN, x.shape), y = like_scores(g);
    gm_dnn_index(b, 2, x, i);
    if (g->p->s != g->p->t) {
        gm_dnn_tensor first = i, later = gm_dnn_number(b, GM_DNN_LATER, CUDNN_DATA_INT32);
        i = gm_dnn_virtual(b, CUDNN_DATA_INT32, x.shape);
        gm_dnn_binary(b, ADD, CUDNN_DATA_INT32, first, later, i);
    }
    gm_dnn_index(b, 3, x, j);
    gm_dnn_binary(b, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, i, j, seen);
    gm_dnn_select(b, seen, x, hidden, y);
    return y;
}

/* scale q k^T */
static gm_dnn_tensor scores(graph *g, gm_dnn_tensor q, gm_dnn_tensor k_turned)
{
    gm_dnn_tensor raw = like_scores(g);
    gm_dnn_matmul(g->b, q, k_turned, raw);
    return binary(g, MUL, raw, g->scale);
}

static void forward(graph *g)
{
    gm_dnn_builder       *b = g->b;
    const gm_dnn_problem *p = g->p;
    gm_dnn_tensor         q = gm_dnn_given(b, GM_DNN_Q, g->half, of_queries(p, p->q));
    gm_dnn_tensor         k = gm_dnn_given(b, GM_DNN_K, g->half, gm_dnn_turned(of_keys(p, p->k)));
    gm_dnn_tensor         v = gm_dnn_given(b, GM_DNN_V, g->half, of_keys(p, p->v));
    gm_dnn_tensor         o = gm_dnn_given(b, GM_DNN_O, g->half, of_queries(p, p->o));
    gm_dnn_tensor         lse = gm_dnn_given(b, GM_DNN_LSE, F32, g->row);
    gm_dnn_tensor         x = masked(g, scores(g, q, k));
    gm_dnn_tensor         most = like_row(g), sum = like_row(g), log = like_row(g);
    gm_dnn_tensor         probability = gm_dnn_virtual(b, g->half, g->scores);
    gm_dnn_reduce(b, CUDNN_REDUCE_TENSOR_MAX, x, most);
    gm_dnn_tensor e = exponential(g, binary(g, SUB, x, most));
    gm_dnn_reduce(b, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    gm_dnn_unary(b, CUDNN_POINTWISE_LOG, sum, log);
    gm_dnn_binary(b, ADD, F32, most, log, lse);
    gm_dnn_binary(b, CUDNN_POINTWISE_DIV, F32, e, sum, probability);
    gm_dnn_matmul(b, probability, v, o);
}

/* delta = sum over d of g o: (b, h, s, 1), which cuDNN wants stored. */
static gm_dnn_tensor delta(graph *g, gm_dnn_tensor grad)
{
    gm_dnn_builder *b = g->b;
    gm_dnn_tensor   o = gm_dnn_given(b, GM_DNN_O, g->half, of_queries(g->p, g->p->o)), sum = like_row(g);
    gm_dnn_tensor   stored = gm_dnn_given(b, GM_DNN_DELTA, F32, g->row);
    gm_dnn_reduce(b, CUDNN_REDUCE_TENSOR_ADD, binary(g, MUL, grad, o), sum);
    gm_dnn_binary(b, MUL, F32, sum, gm_dnn_number(b, GM_DNN_ONE, F32), stored);
    return stored;
}

/* to (b, hk, t, d) = x^T w summed over the queries' heads that share a key's: x (b, h, s, t), w (b, h, s, d). */
static void to_keys(graph *g, gm_dnn_tensor x, gm_dnn_tensor w, gm_dnn_tensor to)
{
    gm_dnn_builder       *b = g->b;
    const gm_dnn_problem *p = g->p;
    gm_dnn_tensor         turned = gm_dnn_virtual(b, g->half, gm_dnn_turned(g->scores));
    gm_dnn_reshape(b, x, turned);
    if (p->h == p->hk) {
        gm_dnn_matmul(b, turned, w, to);
        return;
    }
    gm_dnn_tensor each = gm_dnn_virtual(b, g->half, gm_dnn_packed(p->b, p->h, p->t, p->d));
    gm_dnn_matmul(b, turned, w, each);
    gm_dnn_reduce(b, CUDNN_REDUCE_TENSOR_ADD, each, to);
}

static void backward(graph *g)
{
    gm_dnn_builder       *b = g->b;
    const gm_dnn_problem *p = g->p;
    gm_dnn_tensor         q = gm_dnn_given(b, GM_DNN_Q, g->half, of_queries(p, p->q));
    gm_dnn_tensor         k = gm_dnn_given(b, GM_DNN_K, g->half, gm_dnn_turned(of_keys(p, p->k)));
    gm_dnn_tensor         v = gm_dnn_given(b, GM_DNN_V, g->half, gm_dnn_turned(of_keys(p, p->v)));
    gm_dnn_tensor         grad = gm_dnn_given(b, GM_DNN_G, g->half, of_queries(p, p->g));
    gm_dnn_tensor         lse = gm_dnn_given(b, GM_DNN_LSE, F32, g->row);
    gm_dnn_tensor         sums = delta(g, grad);
    gm_dnn_tensor         probability = exponential(g, masked(g, binary(g, SUB, scores(g, q, k), lse)));
    to_keys(g, probability, grad, gm_dnn_given(b, GM_DNN_DV, g->half, of_keys(p, p->dv)));
    gm_dnn_tensor dp = like_scores(g);
    gm_dnn_matmul(b, grad, v, dp);
    gm_dnn_tensor ds = binary(g, MUL, binary(g, MUL, binary(g, SUB, dp, sums), probability), g->scale);
    to_keys(g, ds, q, gm_dnn_given(b, GM_DNN_DK, g->half, of_keys(p, p->dk)));
    gm_dnn_tensor upright = gm_dnn_virtual(b, F32, of_keys(p, p->k));
    gm_dnn_tensor dq_sum = gm_dnn_given(b, GM_DNN_DQ_SUM, F32, gm_dnn_packed(p->b, p->h, p->s, p->d));
    gm_dnn_reshape(b, k, upright);
    gm_dnn_matmul(b, ds, upright, dq_sum);
    gm_dnn_unary(b, CUDNN_POINTWISE_IDENTITY, dq_sum, gm_dnn_given(b, GM_DNN_DQ, g->half, of_queries(p, p->dq)));
}

static void write_down(gm_dnn_builder *b, const void *problem)
{
    const gm_dnn_problem *p = problem;
    graph                 g = {
                        .b = b,
                        .p = p,
                        .half = p->dtype == GM_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
                        .scores = gm_dnn_packed(p->b, p->h, p->s, p->t),
                        .row = gm_dnn_packed(p->b, p->h, p->s, 1),
                        .scale = gm_dnn_number(b, GM_DNN_SCALE, F32),
    };
    if (p->gradient) backward(&g);
    else forward(&g);
}

gm_dnn_writing gm_dnn_of_attention(const gm_dnn_problem *p)
{
    return (gm_dnn_writing){"attention", write_down, p, GM_DNN_UIDS, false};
}
