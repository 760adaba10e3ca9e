/* reference_test.c - the reference kernels judge all others; here they are judged: against closed forms
 * and constants computed elsewhere, and each gradient against central differences. Elementwise ops, products,
 * norms and softmax; the rest is in reference_more_test.c. */
#include "reference.h"

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
