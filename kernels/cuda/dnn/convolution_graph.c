/* convolution_graph.c - see convolution_graph.h. */
#include "convolution_graph.h"

static const char *what_it_cannot(const gm_dnn_convolution *p)
{
    int64_t groups = p->w[1] ? p->x[1] / p->w[1] : 0;
    if (!gm_dtype_is_narrow((gm_dtype)p->dtype)) return "numbers of more than 16 bits";
    for (int d = 0; d < 4; d++)
        if (p->x[d] < 1 || p->w[d] < 1 || p->y[d] < 1) return "no elements";
    for (int d = 0; d < 2; d++)
        if (p->low[d] != p->high[d]) return "padding that is not the same on both sides";
    if (p->arch < 80) return "GPUs before sm_80";
    if (groups > 1 && groups == p->x[1]) return "depthwise convolutions";
    return p->w[1] % 8 || p->w[0] / groups % 8 ? "groups whose channels or outputs are no multiple of 8" : NULL;
}

bool gm_dnn_takes_convolution(const gm_dnn_convolution *p, const char **why)
{
    const char *cannot = what_it_cannot(p);
    if (why) *why = cannot;
    return !cannot;
}

/* (n, c, h, w) that lies in memory as (n, h, w, c) */
static gm_dnn_shape with_channels_last(const int64_t *n)
{
    return (gm_dnn_shape){{n[0], n[1], n[2], n[3]}, {n[1] * n[2] * n[3], 1, n[1] * n[3], n[1]}};
}

static void write_down(gm_dnn_builder *b, const void *problem)
{
    const gm_dnn_convolution *p = problem;
    cudnnDataType_t           type = p->dtype == GM_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    const int64_t            *size[3] = {p->x, p->w, p->y};
    static const int          place[] = {2, 0, 1}; /* of what is computed, among x, w and y */
    gm_dnn_tensor             t[3];
    for (int i = 0; i < 3; i++)
        t[i] = gm_dnn_given(b, GM_DNN_CONVOLUTION_X + i, type,
                            p->channels_last[i] ? with_channels_last(size[i])
                                                : gm_dnn_packed(size[i][0], size[i][1], size[i][2], size[i][3]));
    gm_dnn_convolve(b, place[p->side], p->low, p->high, p->stride, p->dilation, p->accumulate, t);
}

gm_dnn_writing gm_dnn_of_convolution(const gm_dnn_convolution *p)
{
    return (gm_dnn_writing){"a convolution", write_down, p, GM_DNN_CONVOLUTION_UIDS, p->long_sum};
}
