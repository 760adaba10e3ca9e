/* fake_dnn_op.c - tensors and operations of the emulation's cuDNN (fake_dnn.h), in plain loops.
 *
 * Every tensor of four dimensions becomes an array of double, rounded to its dtype when it is written. An index of a
 * smaller size stands for a group of those of a larger one: 1 for all, a key's head for its queries' heads. */
#include "fake_dnn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake_driver.h"

/* ---- tensors ---- */

#define EACH(i, size)                                \
    for (i[0] = 0; i[0] < (size)[0]; i[0]++)         \
        for (i[1] = 0; i[1] < (size)[1]; i[1]++)     \
            for (i[2] = 0; i[2] < (size)[2]; i[2]++) \
                for (i[3] = 0; i[3] < (size)[3]; i[3]++)

static const int64_t *sizes(const bag *t) { return numbers(t, CUDNN_ATTR_TENSOR_DIMENSIONS); }

static int64_t count(const bag *t)
{
    const int64_t *n = sizes(t);
    return n[0] * n[1] * n[2] * n[3];
}

static int64_t offset(const bag *t, const int64_t *i)
{
    const int64_t *stride = numbers(t, CUDNN_ATTR_TENSOR_STRIDES);
    return i[0] * stride[0] + i[1] * stride[1] + i[2] * stride[2] + i[3] * stride[3];
}

static int64_t reach(const bag *t)
{
    const int64_t *n = sizes(t);
    return offset(t, (int64_t[]){n[0] - 1, n[1] - 1, n[2] - 1, n[3] - 1}) + 1;
}

gm_dtype gm_fake_dnn_dtype(const bag *t)
{
    switch (choice(t, CUDNN_ATTR_TENSOR_DATA_TYPE)) {
    case CUDNN_DATA_FLOAT: return GM_F32;
    case CUDNN_DATA_HALF: return GM_F16;
    case CUDNN_DATA_BFLOAT16: return GM_BF16;
    case CUDNN_DATA_INT32: return GM_I32;
    default: return GM_U8;
    }
}

/* The place of element i of `of` in the array of t: dimensions that are smaller in t stand for groups. */
static int64_t place(const bag *t, const int64_t *i, const int64_t *of)
{
    const int64_t *n = sizes(t);
    int64_t        at = 0;
    for (int d = 0; d < 4; d++) at = at * n[d] + i[d] / (of[d] / n[d]);
    return at;
}

static double value(const bag *t, const int64_t *i, const int64_t *of) { return t->values[place(t, i, of)]; }

void **gm_fake_dnn_entry(const bag *pack, const bag *t)
{
    const attribute *ids = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    void           **data = find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->data;
    int64_t          uid = numbers(t, CUDNN_ATTR_TENSOR_UNIQUE_ID)[0];
    for (int64_t i = 0; i < ids->n; i++)
        if (((const int64_t *)ids->data)[i] == uid) return &data[i];
    snprintf(gm_fake_dnn_words, sizeof gm_fake_dnn_words, "tensor %lld is not given", (long long)uid);
    return NULL;
}

bool gm_fake_dnn_is_there(const bag *pack, const bag *t)
{
    void **data = gm_fake_dnn_entry(pack, t);
    if (!data || is_by_value(t)) return data;
    const char *why = gm_fake_outside(*data, (size_t)reach(t) * gm_dtype_size(gm_fake_dnn_dtype(t)));
    if (!why && (uintptr_t)*data % 16) why = "it is not aligned to 16 bytes";
    if (why)
        snprintf(gm_fake_dnn_words, sizeof gm_fake_dnn_words, "tensor %lld: %s",
                 (long long)numbers(t, CUDNN_ATTR_TENSOR_UNIQUE_ID)[0], why);
    return !why;
}

/* Where the caller's bytes of t are; the pack was looked through when it was given. */
static void *given(const bag *pack, const bag *t) { return *gm_fake_dnn_entry(pack, t); }

/* The values of an operand: of a virtual one they must have been computed. */
static bool load(const bag *pack, bag *t)
{
    int64_t i[4];
    void   *data;
    if (!t || t->values) return true;
    if (is_virtual(t)) return gm_fake_dnn_refuse(CUDNN_STATUS_BAD_PARAM, "an operand before it is computed"), false;
    if (!(data = given(pack, t)) || !(t->values = malloc((size_t)count(t) * sizeof(double)))) return false;
    EACH(i, sizes(t)) t->values[place(t, i, sizes(t))] = gm_load(gm_fake_dnn_dtype(t), data, offset(t, i));
    return true;
}

/* A result: rounded to its dtype, and stored if the caller gave a place. */
static bool finish(const bag *pack, bag *t, double *values)
{
    int64_t i[4];
    void   *data = is_virtual(t) ? NULL : given(pack, t);
    t->values = values;
    if (!values || (!is_virtual(t) && !data)) return false;
    for (int64_t k = 0; k < count(t); k++) {
        double cell;
        gm_store(gm_fake_dnn_dtype(t), &cell, 0, values[k]);
        values[k] = gm_load(gm_fake_dnn_dtype(t), &cell, 0);
    }
    if (data) EACH(i, sizes(t)) gm_store(gm_fake_dnn_dtype(t), data, offset(t, i), value(t, i, sizes(t)));
    return true;
}

static double *room(const bag *t) { return calloc((size_t)count(t) + 1, sizeof(double)); }

/* ---- operations ---- */

static bool matmul(const bag *pack, const bag *op)
{
    bag           *a = part(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC), *b = part(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    bag           *c = part(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    const int64_t *n = sizes(c);
    int64_t        i[4], inner = sizes(a)[3];
    double        *out = room(c);
    if (sizes(b)[2] != inner || sizes(a)[2] != n[2] || sizes(b)[3] != n[3])
        return gm_fake_dnn_refuse(CUDNN_STATUS_BAD_PARAM, "sizes of a product"), free(out), false;
    if (!load(pack, a) || !load(pack, b)) return free(out), false;
    EACH(i, n)
    for (int64_t k = 0; k < inner; k++)
        out[place(c, i, n)] += value(a, (int64_t[]){i[0], i[1], i[2], k}, (int64_t[]){n[0], n[1], n[2], inner}) *
                               value(b, (int64_t[]){i[0], i[1], k, i[3]}, (int64_t[]){n[0], n[1], inner, n[3]});
    return finish(pack, c, out);
}

static double computed(int mode, double x, double b, bool seen, int64_t index)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_IDENTITY: return x;
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return seen ? x : b;
    case CUDNN_POINTWISE_GEN_INDEX: return (double)index;
    default: return NAN;
    }
}

static bool pointwise(const bag *pack, const bag *op)
{
    const bag *how = part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    bag       *x = part(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC), *y = part(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    bag       *b = part(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC), *t = part(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    const attribute *axis = find(how, CUDNN_ATTR_POINTWISE_AXIS);
    int              mode = choice(how, CUDNN_ATTR_POINTWISE_MODE);
    const int64_t   *n = sizes(y);
    int64_t          i[4];
    if (!load(pack, x) || !load(pack, b) || !load(pack, t)) return false;
    double *out = room(y);
    EACH(i, n)
    out[place(y, i, n)] = computed(mode, value(x, i, n), b ? value(b, i, n) : 0, t && value(t, i, n) != 0,
                                   axis ? i[*(int64_t *)axis->data] : 0);
    return finish(pack, y, out);
}

static bool reduction(const bag *pack, const bag *op)
{
    bag *x = part(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC), *y = part(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    bool largest = choice(part(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_OPERATOR) ==
                   CUDNN_REDUCE_TENSOR_MAX;
    int64_t i[4];
    if (!load(pack, x)) return false;
    double *out = room(y);
    for (int64_t k = 0; k < count(y) && largest; k++) out[k] = -INFINITY;
    EACH(i, sizes(x))
    {
        double *to = &out[place(y, i, sizes(x))], v = value(x, i, sizes(x));
        *to = largest ? fmax(*to, v) : *to + v;
    }
    return finish(pack, y, out);
}

/* The same memory seen with other sizes and strides. */
static bool reshape(const bag *pack, const bag *op)
{
    bag    *x = part(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC), *y = part(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    int64_t i[4];
    if (reach(x) != reach(y)) return gm_fake_dnn_refuse(CUDNN_STATUS_BAD_PARAM, "a reshape to another size"), false;
    if (!load(pack, x)) return false;
    double *memory = calloc((size_t)reach(x), sizeof *memory), *out = room(y);
    EACH(i, sizes(x)) memory[offset(x, i)] = value(x, i, sizes(x));
    EACH(i, sizes(y)) out[place(y, i, sizes(y))] = memory[offset(y, i)];
    free(memory);
    return finish(pack, y, out);
}

/* The places of x, w and y of a convolution that belong together; `made` of them gets the sums of the products of the
 * others, after what it held if beta says so. */
static bool convolve(const bag *pack, const bag *how, bag *t[3], int made, float beta)
{
    const int64_t *x = sizes(t[0]), *w = sizes(t[1]), *y = sizes(t[2]);
    const int64_t *low = numbers(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    const int64_t *high = numbers(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    const int64_t *stride = numbers(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    const int64_t *dilation = numbers(how, CUDNN_ATTR_CONVOLUTION_DILATIONS);
    int64_t        i[4], k[4], outputs = w[0] / (x[1] / w[1]);
    if (choice(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION || x[1] % w[1] || y[1] != w[0])
        return gm_fake_dnn_refuse(CUDNN_STATUS_BAD_PARAM, "sizes of a convolution"), false;
    for (int d = 0; d < 2; d++)
        if (y[d + 2] != (x[d + 2] + low[d] + high[d] - dilation[d] * (w[d + 2] - 1) - 1) / stride[d] + 1)
            return gm_fake_dnn_refuse(CUDNN_STATUS_BAD_PARAM, "sizes of the space of a convolution"), false;
    for (int j = 0; j < 3; j++)
        if ((j != made || beta != 0) && !load(pack, t[j])) return false;
    double *out = room(t[made]);
    for (int64_t n = 0; beta != 0 && n < count(t[made]); n++) out[n] = beta * t[made]->values[n];
    if (beta != 0) free(t[made]->values);
    EACH(i, y)
    EACH(k, ((int64_t[]){1, w[1], w[2], w[3]}))
    {
        int64_t at[4] = {i[0], i[1] / outputs * w[1] + k[1], i[2] * stride[0] + k[2] * dilation[0] - low[0],
                         i[3] * stride[1] + k[3] * dilation[1] - low[1]};
        int64_t of[4] = {i[1], k[1], k[2], k[3]};
        if (at[2] < 0 || at[2] >= x[2] || at[3] < 0 || at[3] >= x[3]) continue;
        double a = made == 0 ? 0 : value(t[0], at, x), b = made == 1 ? 0 : value(t[1], of, w);
        double c = made == 2 ? 0 : value(t[2], i, y);
        if (made == 0) out[place(t[0], at, x)] += b * c;
        if (made == 1) out[place(t[1], of, w)] += a * c;
        if (made == 2) out[place(t[2], i, y)] += a * b;
    }
    return finish(pack, t[made], out);
}

#define CONVOLVE(way, a, b, c, made)                                             \
    convolve(pack, part(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_CONV_DESC), \
             (bag *[]){part(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_##a),   \
                       part(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_##b),   \
                       part(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_##c)},  \
             made, *(float *)find(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##way##_BETA)->data)

bool gm_fake_dnn_run(const bag *pack, const bag *op)
{
    switch (op->type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return matmul(pack, op);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return pointwise(pack, op);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return reduction(pack, op);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return reshape(pack, op);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: return CONVOLVE(FORWARD, X, W, Y, 2);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: return CONVOLVE(BWD_DATA, DX, W, DY, 0);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: return CONVOLVE(BWD_FILTER, X, DW, DY, 1);
    default: return gm_fake_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "an operation that the fake does not know"), false;
    }
}

void gm_fake_dnn_forget(const bag *op)
{
    for (int i = 0; i < op->n; i++) {
        bag *t = op->list[i].parts ? *(bag **)op->list[i].data : NULL;
        if (!t || t->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR) continue;
        free(t->values);
        t->values = NULL;
    }
}
