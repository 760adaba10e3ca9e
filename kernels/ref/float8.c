/* float8.c - floats of 8 bits (float8.h), number by number: a code is looked for among all values of its format. With
 * scales of blocks the codes of each order are made by themselves. */
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

/* Larger codes have larger values, so the two beside a number are found by halving: specs encode millions. */
static uint8_t encoded(int format, double v)
{
    int    sign = signbit(v) ? 128 : 0, below = 0, above = (int)gm_float8_most(format);
    double size = fabs(v);
    if (isnan(v)) return GM_FLOAT8_NAN;
    if (size >= value_of(format, above)) return (uint8_t)(sign | above);
    while (above - below > 1) {
        int middle = (below + above) / 2;
        if (value_of(format, middle) <= size) below = middle;
        else above = middle;
    }
    double down = size - value_of(format, below), up = value_of(format, above) - size;
    return (uint8_t)(sign | (up < down || (up == down && above % 2 == 0) ? above : below));
}

/* The larger of `largest`, which is no NaN, and v's magnitude; infinite, if v is NaN. */
static double larger(double largest, double v)
{
    if (fabs(v) <= largest) return largest;
    return isnan(v) ? INFINITY : fabs(v);
}

static double scale_for(double largest, int format)
{
    double scale = ldexp(1, -126);
    if (largest >= ldexp(1, 128)) scale = INFINITY;
    while (largest > scale * value_of(format, (int)gm_float8_most(format))) scale *= 2;
    return scale;
}

static double scale_of(const gm_tensor *x, int format)
{
    double largest = 0;
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++) largest = larger(largest, ref_get(x, i));
    return scale_for(largest, format);
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

/* ---- blocks ---- */

/* The block of x (m, k) with rows [top, bottom) and columns [left, right): its codes into codes, place (i, l) of x at
 * i * row + l * column, and its scale. NULL: not wanted. */
typedef struct block {
    int64_t top, bottom, left, right;
} block;

static void encode_block(const gm_call *call, const block *b, int64_t k, gm_tensor *codes, int64_t row, int64_t column,
                         gm_tensor *scales, int64_t at)
{
    const gm_tensor *x = call->in[0];
    double           largest = 0;
    for (int64_t i = b->top; i < b->bottom; i++)
        for (int64_t l = b->left; l < b->right; l++) largest = larger(largest, ref_get(x, i * k + l));
    double scale = scale_for(largest, (int)call->attrs->format);
    if (scales) ref_set(scales, at, scale);
    for (int64_t i = b->top; codes && i < b->bottom; i++)
        for (int64_t l = b->left; l < b->right; l++) {
            double v = ref_get(x, i * k + l);
            ref_set(codes, i * row + l * column, encoded((int)call->attrs->format, isinf(v) ? NAN : v / scale));
        }
}

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

gm_status gm_ref_float8_block_encode(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor  *x = call->in[0];
    gm_tensor *const *out = call->out;
    const bool        square = call->attrs->square;
    const int64_t     side = GM_FLOAT8_BLOCK, k = x->shape[x->ndim - 1], m = k ? gm_tensor_numel(x) / k : 0;
    const int64_t     high = square ? side : 1, across = gm_float8_blocks(k), down = gm_float8_blocks(m);
    for (int64_t i = 0; i < m; i += high)
        for (int64_t l = 0; l < k; l += side) {
            block b = {i, at_most(m, i + high), l, at_most(k, l + side)};
            encode_block(call, &b, k, out[0], k, 1, out[1], square ? i / side * across + l / side : l / side * m + i);
        }
    for (int64_t i = 0; i < m; i += side)
        for (int64_t l = 0; l < k; l += high) {
            block b = {i, at_most(m, i + side), l, at_most(k, l + high)};
            encode_block(call, &b, k, out[2], 1, m, out[3], square ? l / side * down + i / side : i / side * k + l);
        }
    return GM_OK;
}

gm_status gm_ref_float8_block_product(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *a = call->in[0], *b = call->in[1], *bias = call->in[4], *y = call->out[0];
    int64_t          n = b->shape[0], k = b->shape[1], m = n ? gm_tensor_numel(y) / n : 0, side = GM_FLOAT8_BLOCK;
    for (int64_t i = 0; i < m * n; i++) {
        double sum = 0;
        for (int64_t p = 0; p < k; p++) {
            int64_t at = call->attrs->square ? i % n / side * gm_float8_blocks(k) + p / side : p / side * n + i % n;
            sum += decoded((int)call->attrs->format, (uint8_t)ref_get(a, i / n * k + p)) *
                   ref_get(call->in[2], p / side * m + i / n) *
                   (decoded(GM_FLOAT8_E4M3, (uint8_t)ref_get(b, i % n * k + p)) * ref_get(call->in[3], at));
        }
        ref_put(y, i, sum + (bias ? ref_get(bias, i % n) : 0), call->attrs->accumulate);
    }
    return GM_OK;
}
