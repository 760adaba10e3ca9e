/* recurrent.c - the cells of recurrent layers, forward and backward. */
#include "loops.h"

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* A tensor (..., count h) as rows of `count` parts; element i of part k of row r. NULL: zeros. */
static double part(const gm_tensor *t, int count, int64_t h, int64_t r, int k, int64_t i)
{
    return t ? ref_get(t, (r * count + k) * h + i) : 0;
}

static void set_part(const gm_tensor *t, int count, int64_t h, int64_t r, int k, int64_t i, double v)
{
    if (t) ref_set(t, (r * count + k) * h + i, v);
}

static void lstm_element(const gm_call *call, int64_t h, int64_t r, int64_t i)
{
    double v[4];
    for (int k = 0; k < 4; k++) v[k] = part(call->in[0], 4, h, r, k, i) + part(call->in[1], 4, h, r, k, i);
    for (int k = 0; k < 4; k++) v[k] = k == 2 ? tanh(v[k]) : sigmoid(v[k]);
    double next = v[1] * part(call->in[2], 1, h, r, 0, i) + v[0] * v[2];
    set_part(call->out[0], 1, h, r, 0, i, v[3] * tanh(next));
    set_part(call->out[1], 1, h, r, 0, i, next);
    for (int k = 0; k < 4; k++) set_part(call->out[2], 4, h, r, k, i, v[k]);
}

gm_status gm_ref_lstm_cell(gm_device *dev, const gm_call *call)
{
    int64_t h = call->out[0]->shape[call->out[0]->ndim - 1];
    (void)dev;
    for (int64_t at = 0, n = gm_tensor_numel(call->out[0]); at < n; at++) lstm_element(call, h, at / h, at % h);
    return GM_OK;
}

static void lstm_grad_element(const gm_call *call, int64_t h, int64_t r, int64_t i)
{
    const gm_tensor *gates = call->in[3];
    double           s[4], in[6], d[4];
    for (int k = 0; k < 4; k++) s[k] = part(gates, 4, h, r, k, i);
    for (int k = 0; k < 6; k++) in[k] = k == 3 ? 0 : part(call->in[k], 1, h, r, 0, i);
    double g = in[0] + in[1], t = tanh(in[5]), gc = in[2] + g * s[3] * (1 - t * t);
    d[0] = gc * s[2] * s[0] * (1 - s[0]);
    d[1] = gc * in[4] * s[1] * (1 - s[1]);
    d[2] = gc * s[0] * (1 - s[2] * s[2]);
    d[3] = g * t * s[3] * (1 - s[3]);
    for (int k = 0; k < 4; k++) set_part(call->out[0], 4, h, r, k, i, d[k]);
    set_part(call->out[1], 1, h, r, 0, i, gc * s[1]);
}

gm_status gm_ref_lstm_cell_grad(gm_device *dev, const gm_call *call)
{
    int64_t h = call->in[5]->shape[call->in[5]->ndim - 1];
    (void)dev;
    for (int64_t at = 0, n = gm_tensor_numel(call->in[5]); at < n; at++) lstm_grad_element(call, h, at / h, at % h);
    return GM_OK;
}

static void gru_element(const gm_call *call, int64_t h, int64_t r, int64_t i)
{
    double x[3], m[3];
    for (int k = 0; k < 3; k++) x[k] = part(call->in[0], 3, h, r, k, i);
    for (int k = 0; k < 3; k++) m[k] = part(call->in[1], 3, h, r, k, i);
    double reset = sigmoid(x[0] + m[0]), z = sigmoid(x[1] + m[1]), n = tanh(x[2] + reset * m[2]);
    double all[4] = {reset, z, n, m[2]};
    set_part(call->out[0], 1, h, r, 0, i, (1 - z) * n + z * part(call->in[2], 1, h, r, 0, i));
    for (int k = 0; k < 4; k++) set_part(call->out[1], 4, h, r, k, i, all[k]);
}

gm_status gm_ref_gru_cell(gm_device *dev, const gm_call *call)
{
    int64_t h = call->out[0]->shape[call->out[0]->ndim - 1];
    (void)dev;
    for (int64_t at = 0, n = gm_tensor_numel(call->out[0]); at < n; at++) gru_element(call, h, at / h, at % h);
    return GM_OK;
}

static void gru_grad_element(const gm_call *call, int64_t h, int64_t r, int64_t i)
{
    double s[4], d[3];
    for (int k = 0; k < 4; k++) s[k] = part(call->in[2], 4, h, r, k, i);
    double g = part(call->in[0], 1, h, r, 0, i) + part(call->in[1], 1, h, r, 0, i);
    d[1] = g * (part(call->in[3], 1, h, r, 0, i) - s[2]) * s[1] * (1 - s[1]);
    d[2] = g * (1 - s[1]) * (1 - s[2] * s[2]);
    d[0] = d[2] * s[3] * s[0] * (1 - s[0]);
    for (int k = 0; k < 3; k++) set_part(call->out[0], 3, h, r, k, i, d[k]);
    d[2] *= s[0];
    for (int k = 0; k < 3; k++) set_part(call->out[1], 3, h, r, k, i, d[k]);
    set_part(call->out[2], 1, h, r, 0, i, g * s[1]);
}

gm_status gm_ref_gru_cell_grad(gm_device *dev, const gm_call *call)
{
    const gm_tensor *gates = call->in[2];
    int64_t          h = gates->shape[gates->ndim - 1] / 4;
    (void)dev;
    for (int64_t at = 0, n = gm_tensor_numel(gates) / 4; at < n; at++) gru_grad_element(call, h, at / h, at % h);
    return GM_OK;
}
