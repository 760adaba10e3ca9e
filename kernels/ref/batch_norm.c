/* batch_norm.c - batch norm in steps. Element i of x (n, c, ...) belongs to channel i / inner % c. */
#include "loops.h"

typedef struct channels {
    int64_t n, c, inner; /* inner: the elements behind a channel */
} channels;

static channels channels_of(const gm_tensor *x)
{
    channels k = {x->shape[0], x->shape[1], 1};
    for (int d = 2; d < x->ndim; d++) k.inner *= x->shape[d];
    return k;
}

static int64_t channel_of(const channels *k, int64_t i) { return i / k->inner % k->c; }

/* Of a channel: where its i-th element is in x. */
static int64_t place(const channels *k, int64_t channel, int64_t i)
{
    return (i / k->inner * k->c + channel) * k->inner + i % k->inner;
}

gm_status gm_ref_batch_norm_sums(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0];
    channels         k = channels_of(x);
    int64_t          count = k.n * k.inner;
    (void)dev;
    for (int64_t c = 0; c < k.c; c++) {
        double mean = 0, m2 = 0;
        for (int64_t i = 0; i < count; i++) mean += ref_get(x, place(&k, c, i)) / (double)count;
        for (int64_t i = 0; i < count; i++) {
            double d = ref_get(x, place(&k, c, i)) - mean;
            m2 += d * d;
        }
        ref_set(call->out[0], c, mean);
        ref_set(call->out[1], c, m2);
    }
    return GM_OK;
}

static double hat(const gm_tensor *x, const gm_tensor *mean, const gm_tensor *rstd, int64_t i, int64_t c)
{
    return (ref_get(x, i) - ref_get(mean, c)) * ref_get(rstd, c);
}

gm_status gm_ref_batch_norm_apply(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0], *w = call->in[1], *b = call->in[2];
    channels         k = channels_of(x);
    (void)dev;
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++) {
        int64_t c = channel_of(&k, i);
        double  v = hat(x, call->in[3], call->in[4], i, c);
        ref_set(call->out[0], i, v * (w ? ref_get(w, c) : 1) + (b ? ref_get(b, c) : 0));
    }
    return GM_OK;
}

gm_status gm_ref_batch_norm_grad_sums(gm_device *dev, const gm_call *call)
{
    const gm_tensor *g = call->in[0], *x = call->in[1];
    channels         k = channels_of(x);
    (void)dev;
    for (int64_t c = 0; c < k.c; c++) {
        double h = 0, h_hat = 0;
        for (int64_t i = 0; i < k.n * k.inner; i++) {
            int64_t at = place(&k, c, i);
            h += ref_get(g, at);
            h_hat += ref_get(g, at) * hat(x, call->in[2], call->in[3], at, c);
        }
        ref_set(call->out[0], c, h);
        ref_set(call->out[1], c, h_hat);
    }
    return GM_OK;
}

gm_status gm_ref_batch_norm_grad_apply(gm_device *dev, const gm_call *call)
{
    const gm_tensor *g = call->in[0], *x = call->in[1], *w = call->in[2], *rstd = call->in[4];
    const gm_tensor *mean_h = call->in[5], *mean_h_hat = call->in[6];
    channels         k = channels_of(x);
    (void)dev;
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++) {
        int64_t c = channel_of(&k, i);
        double  d = ref_get(g, i) * (w ? ref_get(w, c) : 1);
        if (mean_h) d -= ref_get(mean_h, c) + hat(x, call->in[3], rstd, i, c) * ref_get(mean_h_hat, c);
        ref_set(call->out[0], i, d * ref_get(rstd, c));
    }
    return GM_OK;
}
