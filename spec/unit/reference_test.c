/* reference_test.c - the reference kernels judge all others; here they are judged: against closed forms
 * and constants computed elsewhere, and each gradient against central differences of its forward op.
 *
 * Central differences in f64 with h = 1e-5: truncation h^2 f''' / 6 is some 1e-10, rounding eps |f| / h
 * some 1e-10 for the sums here (|f| below 50): 1e-8 is allowed. Inputs keep off kinks. */
#include <stdlib.h>

#include "../../kernels/sample.h"
#include "unit.h"

#define STEP    1e-5
#define ALLOWED 1e-8

static gm_device  *dev;
static gm_tensor  *kept[256];
static int         n_kept;
static unit_random random_state;
static gm_attrs    at;

static void begin(void)
{
    OK(gm_device_new("ref", 1, &dev));
    n_kept = 0;
    random_state.n = 99;
    at = gm_attrs_default();
}

static void end(void)
{
    while (n_kept) gm_tensor_release(kept[--n_kept]);
    assert_int_equal(gm_pool_stats(dev->pool).live, 0);
    gm_device_free(dev);
}

static gm_tensor *keep(gm_tensor *t)
{
    assert_true(n_kept < 256);
    return kept[n_kept++] = t;
}

static int64_t offset_of(const gm_tensor *t, int64_t i)
{
    int64_t offset = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
        offset += i % t->shape[d] * t->stride[d];
        i /= t->shape[d];
    }
    return offset;
}

static double get(const gm_tensor *t, int64_t i) { return gm_load(t->dtype, gm_tensor_data(t), offset_of(t, i)); }
static void   set(gm_tensor *t, int64_t i, double v) { gm_store(t->dtype, gm_tensor_data(t), offset_of(t, i), v); }

static gm_tensor *empty(gm_dtype dtype, int ndim, const int64_t *shape)
{
    gm_tensor *t = NULL;
    OK(gm_tensor_new(dev, dtype, ndim, shape, &t));
    return keep(t);
}

static gm_tensor *values(gm_dtype dtype, int ndim, const int64_t *shape, const double *v)
{
    gm_tensor *t = empty(dtype, ndim, shape);
    for (int64_t i = 0, n = gm_tensor_numel(t); i < n; i++) set(t, i, v[i]);
    return t;
}

/* Uniform in [low, high), f64; with its first two dimensions exchanged in memory, so strides matter. */
static gm_tensor *between(double low, double high, int ndim, const int64_t *shape)
{
    int64_t    turned[GM_MAX_DIMS];
    int        order[GM_MAX_DIMS];
    gm_tensor *t = NULL;
    for (int d = 0; d < ndim; d++) {
        order[d] = ndim > 1 && d < 2 ? 1 - d : d;
        turned[d] = shape[order[d]];
    }
    OK(gm_tensor_permute(empty(GM_F64, ndim, turned), order, &t));
    keep(t);
    for (int64_t i = 0, n = gm_tensor_numel(t); i < n; i++) set(t, i, unit_between(&random_state, low, high));
    return t;
}

#define VALUES(shape_, ...) values(GM_F64, shape_, (double[]){__VA_ARGS__})
#define INDEX(shape_, ...)  values(GM_I64, shape_, (double[]){__VA_ARGS__})
#define UNIT(...)           between(-1, 1, SHAPE(__VA_ARGS__))
#define IN(...) \
    (int)(sizeof((gm_tensor *[]){__VA_ARGS__}) / sizeof(gm_tensor *)), (gm_tensor *[]) { __VA_ARGS__ }
#define S(...) SHAPE(__VA_ARGS__)

/* Runs an op into the given outputs; what is NULL there and not optional, or all if given is NULL, is made
 * from inference. Returns them in out. */
static void run(gm_op op, int n_in, gm_tensor *const *in, int n_out, gm_tensor *const *given, gm_tensor **out)
{
    gm_spec spec[GM_MAX_OUT];
    gm_slot slots[GM_MAX_SLOTS];
    bool    repeats;
    int     n = gm_op_slots(gm_op_outputs(op), slots, &repeats);
    for (int i = 0; i < n_out; i++) out[i] = given ? given[i] : NULL;
    gm_call call = {op, n_in, n_out, in, out, &at};
    OK(gm_infer(&call, spec));
    for (int i = 0; i < n_out; i++)
        if (!out[i] && !(given && slots[i % n].optional)) out[i] = empty(spec[i].dtype, spec[i].ndim, spec[i].shape);
    OK(gm_run(dev, &call));
}

static void expect(const gm_tensor *t, int n, const double *want, double allowed)
{
    assert_int_equal(gm_tensor_numel(t), n);
    for (int i = 0; i < n; i++)
        if (!(fabs(get(t, i) - want[i]) <= allowed) && !(isnan(want[i]) && isnan(get(t, i))) && get(t, i) != want[i])
            fail_msg("element %d is %.17g, should be %.17g", i, get(t, i), want[i]);
}

#define EXPECT(t, allowed, ...) \
    expect(t, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__}, allowed)

/* f = the sum over outputs of weight * output. Outputs without a weight do not count. */
typedef struct forward {
    gm_op             op;
    int               n_in;
    gm_tensor *const *in;
    int               n_out;
    gm_tensor *const *weight;
} forward;

static double weighted(const forward *f)
{
    gm_tensor *out[GM_MAX_OUT];
    double     sum = 0;
    int        mark = n_kept;
    run(f->op, f->n_in, f->in, f->n_out, NULL, out);
    for (int k = 0; k < f->n_out; k++)
        for (int64_t i = 0, n = f->weight[k] ? gm_tensor_numel(out[k]) : 0; i < n; i++)
            sum += get(f->weight[k], i) * get(out[k], i);
    while (n_kept > mark) gm_tensor_release(kept[--n_kept]);
    return sum;
}

static void check_slope(const forward *f, const char *name, gm_tensor *x, const gm_tensor *have)
{
    double largest = 0;
    assert_int_equal(gm_tensor_numel(x), gm_tensor_numel(have));
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++) {
        double v = get(x, i);
        set(x, i, v + STEP);
        double above = weighted(f);
        set(x, i, v - STEP);
        double want = (above - weighted(f)) / (2 * STEP);
        set(x, i, v);
        largest = fmax(largest, fabs(want));
        if (!(fabs(get(have, i) - want) <= ALLOWED * (1 + fabs(want))))
            fail_msg("%s: gradient of %s, element %d is %.12g, differences give %.12g", gm_op_name(f->op), name, (int)i,
                     get(have, i), want);
    }
    assert_true(largest > 1e-3); /* not a test of zeros */
}

static double unary(gm_function f, double x)
{
    gm_tensor *y;
    at.function = f;
    run(GM_OP_unary, IN(VALUES(S(1), x)), 1, NULL, &y);
    return get(y, 0);
}

void gm_test_ref_elementwise(void **state)
{
    (void)state;
    gm_tensor *y;
    double     e = 1e-15;
    begin();
    /* Values from tables and from PyTorch (float64). */
    assert_true(fabs(unary(GM_FN_gelu, 1) - 0.8413447460685429) < e);
    assert_true(fabs(unary(GM_FN_gelu, -2) + 0.04550026389635842) < e);
    assert_true(fabs(unary(GM_FN_gelu_tanh, 1) - 0.8411919906082768) < e);
    assert_true(fabs(unary(GM_FN_silu, 1) - 0.7310585786300049) < e);
    assert_true(fabs(unary(GM_FN_sigmoid, -1) - 0.2689414213699951) < e);
    assert_true(fabs(unary(GM_FN_tanh, 0.5) - 0.46211715726000975) < e);
    assert_true(unary(GM_FN_sigmoid, -800) == 0 && unary(GM_FN_sigmoid, 800) == 1);
    assert_true(unary(GM_FN_relu, -1) == 0 && unary(GM_FN_relu, 2) == 2 && isnan(unary(GM_FN_relu, NAN)));
    assert_true(unary(GM_FN_neg, 2) == -2 && unary(GM_FN_square, -3) == 9 && unary(GM_FN_abs, -3) == 3);
    assert_true(unary(GM_FN_sqrt, 9) == 3 && unary(GM_FN_rsqrt, 4) == 0.5 && unary(GM_FN_reciprocal, 4) == 0.25);
    assert_true(unary(GM_FN_exp, 0) == 1 && unary(GM_FN_log, 1) == 0 && unary(GM_FN_sin, 0) == 0 &&
                unary(GM_FN_cos, 0) == 1);
    at.value = 3;
    assert_true(unary(GM_FN_power, 2) == 8);
    at.function = GM_FN_sub;
    run(GM_OP_binary, IN(VALUES(S(2, 1), 10, 20), VALUES(S(3), 1, 2, 3)), 1, NULL, &y);
    EXPECT(y, 0, 9, 8, 7, 19, 18, 17);
    at.function = GM_FN_maximum;
    run(GM_OP_binary, IN(VALUES(S(3), 1, NAN, 5), VALUES(S(3), 2, 2, NAN)), 1, NULL, &y);
    EXPECT(y, 0, 2, NAN, NAN);
    at.function = GM_FN_ge;
    run(GM_OP_compare, IN(VALUES(S(3), 1, 2, NAN), VALUES(S(1), 2)), 1, NULL, &y);
    EXPECT(y, 0, 0, 1, 0);
    run(GM_OP_where, IN(y, VALUES(S(1), 7), VALUES(S(3), 1, 2, 3)), 1, NULL, &y);
    EXPECT(y, 0, 1, 7, 3);
    at.alpha = 2, at.beta = 1;
    run(GM_OP_affine, IN(VALUES(S(2), 3, 4)), 1, NULL, &y);
    EXPECT(y, 0, 7, 9);
    run(GM_OP_axpy, IN(VALUES(S(2), 3, 4)), 1, &y, &y);
    EXPECT(y, 0, 13, 17);
    at.dtype = GM_I64; /* i64 beyond 2^53 is copied as it is */
    gm_tensor *big = empty(GM_I64, S(1));
    *(int64_t *)gm_tensor_data(big) = INT64_MAX - 2;
    run(GM_OP_copy, IN(big), 1, NULL, &y);
    assert_true(*(int64_t *)gm_tensor_data(y) == INT64_MAX - 2);
    at.dim = 1;
    gm_tensor *out[2];
    run(GM_OP_max, IN(VALUES(S(3, 3), 1, 5, 5, 2, NAN, NAN, -INFINITY, -INFINITY, -INFINITY)), 2, NULL, out);
    EXPECT(out[0], 0, 5, NAN, -INFINITY);
    EXPECT(out[1], 0, 1, 1, 0);
    run(GM_OP_min, IN(VALUES(S(2, 3), 5, 1, 1, 2, 4, NAN)), 2, NULL, out);
    EXPECT(out[0], 0, 1, NAN);
    EXPECT(out[1], 0, 1, 2);
    at.dims = 2;
    run(GM_OP_sum, IN(VALUES(S(2, 3), 1, 2, 3, 4, 5, 6)), 1, NULL, &y);
    EXPECT(y, 0, 6, 15);
    run(GM_OP_sum, IN(empty(GM_F64, S(2, 0))), 1, NULL, &y);
    EXPECT(y, 0, 0, 0);
    y = VALUES(S(2, 3), 1, 2, 3, 4, 5, 6);
    run(GM_OP_scatter, IN(INDEX(S(2), 2, 0), VALUES(S(2), 10, 20)), 1, &y, &y);
    EXPECT(y, 0, 1, 2, 13, 24, 5, 6);
    end();
}

/* Whole numbers, so sums are exact: element (i, j) of batch n by three plain loops over the values put in. */
void gm_test_ref_matmul(void **state)
{
    (void)state;
    begin();
    for (int bits = 0; bits < 8; bits++) {
        bool       ta = bits & 1, tb = bits & 2;
        double     a[2][3][4], b[4][5];
        gm_tensor *ma = ta ? empty(GM_F64, S(2, 4, 3)) : empty(GM_F64, S(2, 3, 4));
        gm_tensor *mb = tb ? empty(GM_F64, S(5, 4)) : empty(GM_F64, S(4, 5)), *y = empty(GM_F64, S(2, 3, 5));
        for (int64_t i = 0; i < 24; i++) {
            int64_t row = i / 4 % 3, k = i % 4;
            set(ma, ta ? i / 12 * 12 + k * 3 + row : i, a[i / 12][row][k] = (double)unit_below(&random_state, 19) - 9);
        }
        for (int64_t i = 0; i < 20; i++)
            set(mb, tb ? i % 5 * 4 + i / 5 : i, b[i / 5][i % 5] = (double)unit_below(&random_state, 19) - 9);
        for (int64_t i = 0; i < 30; i++) set(y, i, (double)i);
        at.transpose_a = ta, at.transpose_b = tb, at.accumulate = bits & 4, at.alpha = -2;
        run(GM_OP_matmul, IN(ma, mb), 1, &y, &y);
        for (int64_t i = 0; i < 30; i++) {
            double sum = 0;
            for (int k = 0; k < 4; k++) sum += a[i / 15][i / 5 % 3][k] * b[k][i % 5];
            assert_true(get(y, i) == -2 * sum + (at.accumulate ? (double)i : 0));
        }
    }
    end();
}

static void check_unary_gradients(void)
{
    for (gm_function f = GM_FN_relu; f <= GM_FN_power; f++) {
        bool positive = f == GM_FN_log || f == GM_FN_sqrt || f == GM_FN_rsqrt || f == GM_FN_reciprocal ||
                        f == GM_FN_power;
        gm_tensor *x = positive ? between(0.5, 2, S(2, 3)) : UNIT(2, 3), *g = UNIT(2, 3), *dx;
        for (int64_t i = 0; i < 6; i++)
            if (fabs(get(x, i)) < 0.1) set(x, i, 0.1); /* off the kinks of relu and abs */
        at.function = f;
        at.value = 2.5;
        run(GM_OP_unary_grad, IN(x, g), 1, NULL, &dx);
        check_slope(&(forward){GM_OP_unary, 1, &x, 1, &g}, gm_function_name(f), x, dx);
    }
    at = gm_attrs_default();
}

static void check_linear_gradients(void)
{
    static const gm_function functions[] = {GM_FN_none, GM_FN_relu,    GM_FN_gelu, GM_FN_gelu_tanh,
                                            GM_FN_silu, GM_FN_sigmoid, GM_FN_tanh};
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        gm_tensor *x = UNIT(2, 2, 3), *w = UNIT(4, 3), *b = UNIT(4), *out[2], *grad[2], *g = UNIT(2, 2, 4);
        gm_tensor *weight[2] = {g, NULL};
        at.function = functions[k];
        run(GM_OP_linear, IN(x, w, b), 2, NULL, out);
        run(GM_OP_bias_activation_grad, IN(g, out[1]), 2, NULL, grad);
        check_slope(&(forward){GM_OP_linear, IN(x, w, b), 2, weight}, "b", b, grad[1]);
        gm_tensor *flat = NULL, *dw, *x2 = NULL; /* dw = dpre' x */
        OK(gm_tensor_reshape(grad[0], S(4, 4), &flat));
        keep(flat);
        x2 = empty(GM_F64, S(4, 3));
        for (int64_t i = 0; i < 12; i++) set(x2, i, get(x, i));
        gm_attrs held = at;
        at = gm_attrs_default();
        at.transpose_a = true;
        run(GM_OP_matmul, IN(flat, x2), 1, NULL, &dw);
        at = held;
        check_slope(&(forward){GM_OP_linear, IN(x, w, b), 2, weight}, "w", w, dw);
    }
    at = gm_attrs_default();
}

static void check_norm_gradients(void)
{
    gm_tensor *x = UNIT(3, 5), *r = UNIT(3, 5), *w = UNIT(5), *b = UNIT(5), *g = UNIT(3, 5), *gsum = UNIT(3, 5);
    gm_tensor *out[4], *grad[3], *dw = VALUES(S(5), 1, 2, 3, 4, 5), *weight[4] = {g, gsum, NULL, NULL};
    run(GM_OP_layer_norm, IN(x, r, w, b), 4, NULL, out);
    run(GM_OP_layer_norm_grad, IN(g, gsum, out[1], w, out[2], out[3]), 3, NULL, grad);
    forward f = {GM_OP_layer_norm, IN(x, r, w, b), 4, weight};
    check_slope(&f, "x", x, grad[0]);
    check_slope(&f, "residual", r, grad[0]);
    check_slope(&f, "w", w, grad[1]);
    check_slope(&f, "b", b, grad[2]);
    at.accumulate = true;
    run(GM_OP_layer_norm_grad, IN(g, gsum, out[1], w, out[2], out[3]), 3,
        (gm_tensor *[]){NULL, dw, VALUES(S(5), 0, 0, 0, 0, 0)}, (gm_tensor *[3]){0});
    for (int i = 0; i < 5; i++) assert_true(fabs(get(dw, i) - get(grad[1], i) - (i + 1)) < 1e-14);
    at.accumulate = false;
    run(GM_OP_rms_norm, IN(x, r, w), 3, NULL, out);
    run(GM_OP_rms_norm_grad, IN(g, gsum, out[1], w, out[2]), 2, NULL, grad);
    forward rms = {GM_OP_rms_norm, IN(x, r, w), 3, weight};
    check_slope(&rms, "x", x, grad[0]);
    check_slope(&rms, "w", w, grad[1]);
    /* Closed form: (-1, 1) has mean 0, variance 1. */
    at.eps = 0;
    run(GM_OP_layer_norm, IN(VALUES(S(2), 9, 11), NULL, NULL, NULL), 4, NULL, out);
    EXPECT(out[0], 1e-15, -1, 1);
    EXPECT(out[2], 0, 10);
    EXPECT(out[3], 1e-15, 1);
    run(GM_OP_rms_norm, IN(VALUES(S(2), 3, 4), NULL, VALUES(S(2), 2, 1)), 3, NULL, out);
    EXPECT(out[0], 1e-15, 6 / sqrt(12.5), 4 / sqrt(12.5));
    at = gm_attrs_default();
}

static void check_softmax_gradients(void)
{
    for (int64_t dim = -3; dim < 3; dim++) { /* each twice: negative ones count from the end */
        gm_tensor *x = between(-3, 3, S(2, 3, 4)), *g = UNIT(2, 3, 4), *y, *dx;
        at.dim = dim;
        run(GM_OP_softmax, IN(x), 1, NULL, &y);
        run(GM_OP_softmax_grad, IN(y, g), 1, NULL, &dx);
        check_slope(&(forward){GM_OP_softmax, 1, &x, 1, &g}, "x", x, dx);
        run(GM_OP_log_softmax, IN(x), 1, NULL, &y);
        run(GM_OP_log_softmax_grad, IN(y, g), 1, NULL, &dx);
        check_slope(&(forward){GM_OP_log_softmax, 1, &x, 1, &g}, "x", x, dx);
    }
    gm_tensor *y;
    at.dim = -2; /* columns */
    run(GM_OP_softmax, IN(VALUES(S(2, 2), 0, 0, log(3), 0)), 1, NULL, &y);
    EXPECT(y, 1e-15, 0.25, 0.5, 0.75, 0.5);
    at.dim = 0;
    run(GM_OP_softmax, IN(VALUES(S(3), 1000, 1000 + log(2), -INFINITY)), 1, NULL, &y);
    EXPECT(y, 1e-13, 1.0 / 3, 2.0 / 3, 0); /* 1000 + log 2 is rounded to 1e-13 */
    at = gm_attrs_default();
}

void gm_test_ref_gradients(void **state)
{
    (void)state;
    begin();
    check_unary_gradients();
    check_linear_gradients();
    end();
    begin();
    check_norm_gradients();
    check_softmax_gradients();
    end();
}

static void check_attention_gradient(gm_tensor *mask)
{
    gm_tensor *q = UNIT(2, 3, 4, 2), *k = UNIT(2, 5, 2, 2), *v = UNIT(2, 5, 2, 2), *g = UNIT(2, 3, 4, 2);
    gm_tensor *out[2], *grad[3], *weight[2] = {g, NULL};
    run(GM_OP_attention, IN(q, k, v, mask), 2, NULL, out);
    run(GM_OP_attention_grad, IN(q, k, v, mask, out[0], out[1], g), 3, NULL, grad);
    forward f = {GM_OP_attention, IN(q, k, v, mask), 2, weight};
    check_slope(&f, "q", q, grad[0]);
    check_slope(&f, "k", k, grad[1]);
    check_slope(&f, "v", v, grad[2]);
}

void gm_test_ref_attention(void **state)
{
    (void)state;
    gm_tensor *out[2];
    begin();
    gm_tensor *one = VALUES(S(1, 2, 1, 1), 0, 0), *v = VALUES(S(1, 3, 1, 1), 1, 2, 6);
    /* Queries of zero weigh all keys they see alike. */
    run(GM_OP_attention, IN(one, v, v, NULL), 2, NULL, out);
    EXPECT(out[0], 1e-15, 3, 3);
    EXPECT(out[1], 1e-15, log(3), log(3));
    at.causal = true; /* query 0 sees keys 0 and 1 of three */
    run(GM_OP_attention, IN(one, v, v, NULL), 2, NULL, out);
    EXPECT(out[0], 1e-15, 1.5, 3);
    gm_tensor *mask = values(GM_U8, S(1, 3), (double[]){0, 0, 1});
    run(GM_OP_attention, IN(one, VALUES(S(1, 3, 1, 1), 1, NAN, 6), VALUES(S(1, 3, 1, 1), NAN, 2, 6), mask), 2, NULL,
        out);
    EXPECT(out[0], 1e-15, 0, 6); /* the first sees no key; hidden NaN do not leak */
    EXPECT(out[1], 1e-15, -INFINITY, 0);
    at.causal = false;
    at.scale = 0.5; /* one key is q k scale = log 3 above the other */
    run(GM_OP_attention,
        IN(VALUES(S(1, 1, 1, 2), 1, 1), VALUES(S(1, 2, 1, 2), log(3), log(3), 0, 0), VALUES(S(1, 2, 1, 2), 4, 8, 0, 4),
           NULL),
        2, NULL, out);
    EXPECT(out[0], 1e-14, 3, 7);
    EXPECT(out[1], 1e-15, log(4));
    at = gm_attrs_default();
    /* Four query heads share two key heads: the first two read the first. */
    v = VALUES(S(1, 1, 2, 1), 5, 7);
    run(GM_OP_attention, IN(VALUES(S(1, 1, 4, 1), 1, 2, 3, 4), v, v, NULL), 2, NULL, out);
    EXPECT(out[0], 0, 5, 5, 7, 7);
    EXPECT(out[1], 1e-14, 5, 10, 21, 28);
    check_attention_gradient(NULL);
    at.causal = true, at.p = 0.4, at.stream = (gm_stream){77, 3};
    check_attention_gradient(values(GM_U8, S(2, 5), (double[]){1, 0, 1, 1, 1, 0, 1, 1, 0, 1}));
    end();
}

void gm_test_ref_losses(void **state)
{
    (void)state;
    gm_tensor *out[2], *dx;
    begin();
    /* Logits log(1, 2, 5): probabilities 1/8, 2/8, 5/8. */
    gm_tensor *x = VALUES(S(2, 3), 0, log(2), log(5), 0, log(2), log(5)), *target = INDEX(S(2), 1, -100);
    run(GM_OP_cross_entropy, IN(x, target), 2, NULL, out);
    EXPECT(out[0], 1e-15, log(4), 0);
    EXPECT(out[1], 1e-15, log(8), log(8));
    run(GM_OP_cross_entropy_grad, IN(x, target, out[1], VALUES(S(2), 2, 2)), 1, NULL, &dx);
    EXPECT(dx, 1e-15, 0.25, -1.5, 1.25, 0, 0, 0);
    at.label_smoothing = 0.3;
    run(GM_OP_cross_entropy, IN(x, target), 2, NULL, out);
    EXPECT(out[0], 1e-15, 0.7 * log(4) + 0.1 * (log(8) + log(4) + log(1.6)), 0);
    target = INDEX(S(2, 2), 0, 3, -100, 2);
    gm_tensor *y = between(-2, 2, S(2, 2, 4)), *g = UNIT(2, 2), *weight[2] = {g, NULL};
    run(GM_OP_cross_entropy, IN(y, target), 2, NULL, out);
    run(GM_OP_cross_entropy_grad, IN(y, target, out[1], g), 1, NULL, &dx);
    check_slope(&(forward){GM_OP_cross_entropy, IN(y, target), 2, weight}, "logits", y, dx);
    gm_tensor *bad = INDEX(S(2), 0, 3);
    gm_call    call = {GM_OP_cross_entropy,
                       2,
                       2,
                       (gm_tensor *[]){x, bad},
                       (gm_tensor *[]){empty(GM_F64, S(2)), empty(GM_F64, S(2))},
                       &at};
    FAILS(GM_EINVAL, "target 3 of row 1 (from 0) is none of 3 classes", gm_run(dev, &call));

    gm_tensor *w = VALUES(S(3, 2), 1, 2, 3, 4, 5, 6), *index = values(GM_I32, S(2, 2), (double[]){2, 0, 2, 1});
    run(GM_OP_embedding, IN(w, index), 1, NULL, out);
    EXPECT(out[0], 0, 5, 6, 1, 2, 5, 6, 3, 4);
    at.padding_index = 1;
    gm_tensor *dw = VALUES(S(3, 2), 9, 9, 9, 9, 9, 9), *ge = VALUES(S(2, 2, 2), 1, 2, 3, 4, 5, 6, 7, 8);
    run(GM_OP_embedding_grad, IN(index, ge), 1, &dw, out);
    EXPECT(dw, 0, 3, 4, 0, 0, 6, 8);
    at.accumulate = true;
    run(GM_OP_embedding_grad, IN(index, ge), 1, &dw, out);
    EXPECT(dw, 0, 6, 8, 0, 0, 12, 16);
    call = (gm_call){GM_OP_embedding, 2, 1, (gm_tensor *[]){w, bad}, (gm_tensor *[]){empty(GM_F64, S(2, 2))}, &at};
    FAILS(GM_EINVAL, "index 3 at position 1 (from 0) is outside a table of 3 rows", gm_run(dev, &call));
    end();
}

static void sgd_twice(const double want[2])
{
    gm_tensor *p = VALUES(S(1), 1), *buffer = at.momentum != 0 ? VALUES(S(1), 123) : NULL, *g = VALUES(S(1), 1),
              *out[2];
    for (int k = 0; k < 2; k++) {
        dev->step.step = k + 1;
        run(GM_OP_sgd, IN(g), 2, (gm_tensor *[]){p, buffer}, out);
        EXPECT(p, 1e-15, want[k]);
    }
}

static void adam_twice(const double want[2])
{
    gm_tensor *pmv[3] = {VALUES(S(1), 1), VALUES(S(1), 0), VALUES(S(1), 0)}, *g = VALUES(S(1), 1), *out[3];
    for (int k = 0; k < 2; k++) {
        dev->step.step = k + 1;
        set(g, 0, k ? -1 : 1);
        run(GM_OP_adam, IN(g), 3, pmv, out);
        EXPECT(pmv[0], 1e-15, want[k]);
    }
}

/* Two steps by hand. Gradients of 1 at SGD, of 1 and -1 at Adam; lr 0.1. */
void gm_test_ref_optimizers(void **state)
{
    (void)state;
    begin();
    dev->step.lr = 0.1;
    sgd_twice((double[]){0.9, 0.8});
    at.momentum = 0.9; /* buffers 1, 1.9: the buffer's first content does not matter */
    sgd_twice((double[]){0.9, 0.71});
    at.nesterov = true;
    sgd_twice((double[]){1 - 0.19, 1 - 0.19 - 0.271});
    at.nesterov = false, at.dampening = 0.5; /* buffers 1, 0.9 + 0.5 */
    sgd_twice((double[]){0.9, 0.76});
    at = gm_attrs_default();
    at.weight_decay = 0.1;
    sgd_twice((double[]){1 - 0.11, 0.89 - 0.1 * (1 + 0.089)});
    at.weight_decay = 0;
    dev->step.clip = 0.5, dev->step.loss_scale = 2; /* a quarter of the gradient */
    sgd_twice((double[]){0.975, 0.95});
    dev->step.clip = dev->step.loss_scale = 1;
    at.eps = 0; /* step 1: lr * 1; step 2: m = 0.09 - 0.1, corrected by 1 - 0.81; v corrected is 1 */
    adam_twice((double[]){0.9, 0.9 + 0.1 * 0.01 / 0.19});
    at.eps = 1;
    adam_twice((double[]){0.95, 0.95 + 0.05 * 0.01 / 0.19});
    at.eps = 0, at.decoupled = true, at.weight_decay = 0.2; /* p is multiplied by 0.98 first */
    adam_twice((double[]){0.88, 0.88 * 0.98 + 0.1 * 0.01 / 0.19});
    gm_tensor *y;
    run(GM_OP_sum_squares, IN(VALUES(S(2), 3, 4), values(GM_F32, S(1), (double[]){12})), 1, NULL, &y);
    EXPECT(y, 0, 169);
    end();
}

/* Elements 2k and 2k + 1 are the two that a pair of words gives. */
static void check_normal_pairs(void)
{
    gm_tensor *y = empty(GM_F64, S(7));
    at.mean = 2, at.std = 3;
    run(GM_OP_normal, 0, NULL, 1, &y, &y);
    for (int64_t i = 0; i < 7; i++) {
        double   two[2];
        uint64_t pair = (uint64_t)i / 2 * 2, key = at.stream.key, step = (uint64_t)at.stream.step;
        gm_sample_normal(2, 3, gm_philox_word(key, pair, step), gm_philox_word(key, pair + 1, step), &two[0], &two[1]);
        assert_true(get(y, i) == two[i % 2]);
    }
    at.mean = 0, at.std = 1;
}

/* A block drawn by its box holds the same bits as that part of the whole. */
static void check_box(gm_op op, gm_tensor *x)
{
    gm_tensor *whole, *part, *want = NULL, *given = NULL, *view = NULL;
    at.box = (gm_box){0};
    if (!x) given = empty(GM_F32, S(5, 7));
    run(op, x ? 1 : 0, &x, 1, x ? NULL : &given, &whole);
    for (int64_t row = 0; row < 3; row++)
        for (int64_t column = 0; column < 5; column++) {
            at.box = (gm_box){2, {5, 7}, {row, column}};
            OK(gm_tensor_narrow(whole, 0, row, 3, &view));
            OK(gm_tensor_narrow(keep(view), 1, column, 3, &want));
            keep(want);
            gm_tensor *in = NULL;
            if (x) {
                OK(gm_tensor_narrow(x, 0, row, 3, &view));
                OK(gm_tensor_narrow(keep(view), 1, column, 3, &in));
                keep(in);
            } else {
                given = empty(GM_F32, S(3, 3));
            }
            run(op, x ? 1 : 0, &in, 1, x ? NULL : &given, &part);
            for (int64_t i = 0; i < 9; i++) assert_true(get(part, i) == get(want, i));
        }
}

void gm_test_ref_boxes(void **state)
{
    (void)state;
    begin();
    at.stream = (gm_stream){42, 6}, at.p = 0.5;
    check_box(GM_OP_uniform, NULL);
    check_box(GM_OP_normal, NULL);
    at.box = (gm_box){0};
    check_normal_pairs();
    at.truncated = true, at.low = -1;
    check_box(GM_OP_normal, NULL);
    end();
    begin();
    at.stream = (gm_stream){42, -1}, at.p = 0.5;
    dev->step.rng_step = 6;
    check_box(GM_OP_dropout, between(1, 2, S(5, 7)));
    gm_tensor *y = empty(GM_F64, S(3, 3)), *z = empty(GM_F64, S(3, 3));
    at.box = (gm_box){0};
    run(GM_OP_uniform, 0, NULL, 1, &y, &y);
    at.stream.step = 6; /* the step block's step is what a step of -1 means */
    run(GM_OP_uniform, 0, NULL, 1, &z, &z);
    for (int64_t i = 0; i < 9; i++) {
        assert_true(get(y, i) == get(z, i));
        assert_true(get(y, i) == gm_uniform_of(gm_philox_at(42, (uint64_t)i / 4, 6).v[i % 4]));
    }
    /* attention: head 1 of two alone drops the same probabilities */
    gm_tensor *q = between(-1, 1, S(1, 3, 2, 2)), *k = between(-1, 1, S(1, 4, 2, 2)), *whole[2], *part[2],
              *one[2] = {0};
    run(GM_OP_attention, IN(q, k, k, NULL), 2, NULL, whole);
    OK(gm_tensor_narrow(q, 2, 1, 1, &one[0]));
    OK(gm_tensor_narrow(k, 2, 1, 1, &one[1]));
    at.box = (gm_box){4, {1, 2, 3, 4}, {0, 1, 0, 0}};
    run(GM_OP_attention, IN(keep(one[0]), keep(one[1]), one[1], NULL), 2, NULL, part);
    for (int64_t i = 0; i < 3; i++)
        for (int64_t d = 0; d < 2; d++) assert_true(get(part[0], i * 2 + d) == get(whole[0], (i * 2 + 1) * 2 + d));
    end();
}
