/* float8.c - floats of 8 bits (float8.h), number by number: a code is looked for among all values of its format. */
#include "../float8.h"
#include "loops.h"

static double value_of(int format, int size)
{
    int fraction = gm_float8_fraction(format), bias = gm_float8_bias(format);
    int exponent = size >> fraction, digits = size & ((1 << fraction) - 1);
    return exponent ? ldexp((1 << fraction) + digits, exponent - bias - fraction) : ldexp(digits, 1 - bias - fraction);
}

static double decoded(int format, uint8_t code)
{
    int size = code & 127;
    if (size > (int)gm_float8_most(format)) return format == GM_FLOAT8_E5M2 && size == 0x7c ? INFINITY : NAN;
    return code & 128 ? -value_of(format, size) : value_of(format, size);
}

static uint8_t encoded(int format, double v)
{
    int    sign = signbit(v) ? 128 : 0, best = 0;
    double size = fabs(v);
    if (isnan(v)) return GM_FLOAT8_NAN;
    if (size >= value_of(format, (int)gm_float8_most(format))) return (uint8_t)(sign | gm_float8_most(format));
    for (int code = 1; code <= (int)gm_float8_most(format); code++) {
        double far = fabs(value_of(format, code) - size), least = fabs(value_of(format, best) - size);
        if (far < least || (far == least && code % 2 == 0)) best = code;
    }
    return (uint8_t)(sign | best);
}

static double scale_of(const gm_tensor *x, int format)
{
    double largest = 0, scale = ldexp(1, -126);
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++) {
        double v = fabs(ref_get(x, i));
        if (!(v <= largest)) largest = isnan(v) ? INFINITY : v;
    }
    if (largest >= ldexp(1, 128)) scale = INFINITY;
    while (largest > scale * value_of(format, (int)gm_float8_most(format))) scale *= 2;
    return scale;
}

gm_status gm_ref_float8_scale(gm_device *dev, const gm_call *call)
{
    (void)dev;
    ref_set(call->out[0], 0, scale_of(call->in[0], (int)call->attrs->format));
    return GM_OK;
}

gm_status gm_ref_float8_encode(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0];
    int64_t          n = gm_tensor_numel(x), k = x->shape[x->ndim - 1];
    double           scale = ref_get(call->in[1], 0), inverse = scale > 0 ? 1 / scale : 0;
    for (int64_t i = 0; i < n; i++) {
        double  v = ref_get(x, i);
        uint8_t code = encoded((int)call->attrs->format, isinf(v) ? NAN : v * inverse);
        if (call->out[0]) ref_set(call->out[0], i, code);
        if (call->out[1]) ref_set(call->out[1], i % k * (n / k) + i / k, code);
    }
    if (call->n_out > 2 && call->out[2]) {
        double needed = scale_of(x, (int)call->attrs->format), before = ref_get(call->out[2], 0);
        ref_set(call->out[2], 0, call->attrs->accumulate && before > needed ? before : needed);
    }
    return GM_OK;
}

gm_status gm_ref_float8_product(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *a = call->in[0], *b = call->in[1], *bias = call->in[4], *y = call->out[0];
    int64_t          n = b->shape[0], k = b->shape[1];
    for (int64_t i = 0, all = gm_tensor_numel(y); i < all; i++) {
        double sum = 0;
        for (int64_t p = 0; p < k; p++)
            sum += decoded((int)call->attrs->format, (uint8_t)ref_get(a, i / n * k + p)) *
                   decoded(GM_FLOAT8_E4M3, (uint8_t)ref_get(b, i % n * k + p));
        sum *= ref_get(call->in[2], 0) * ref_get(call->in[3], 0);
        ref_put(y, i, sum + (bias ? ref_get(bias, i % n) : 0), call->attrs->accumulate);
    }
    return GM_OK;
}
