/* reference_more_test.c - the reference kernels of attention, losses, tables, optimizers and random blocks against
 * closed forms, hand-made steps and central differences. */
#include "reference.h"

static void check_attention_gradient(gm_tensor *mask, gm_tensor *limits, gm_tensor *bias)
{
    gm_tensor *q = UNIT(2, 3, 4, 2), *k = UNIT(2, 5, 2, 2), *v = UNIT(2, 5, 2, 2), *g = UNIT(2, 3, 4, 2);
    gm_tensor *out[2], *grad[4], *weight[2] = {g, NULL};
    gm_tensor *want[4] = {NULL, NULL, NULL, bias ? empty(GM_F64, 4, bias->shape) : NULL};
    run(GM_OP_attention, IN(q, k, v, mask, limits, bias), 2, NULL, out);
    run(GM_OP_attention_grad, IN(q, k, v, mask, out[0], out[1], g, limits, bias), 4, want, grad);
    forward f = {GM_OP_attention, IN(q, k, v, mask, limits, bias), 2, weight};
    check_slope(&f, "q", q, grad[0]);
    check_slope(&f, "k", k, grad[1]);
    check_slope(&f, "v", v, grad[2]);
    if (bias) check_slope(&f, "bias", bias, grad[3]);
}

void gm_test_ref_attention(void **state)
{
    (void)state;
    gm_tensor *out[2];
    begin();
    gm_tensor *one = VALUES(S(1, 2, 1, 1), 0, 0), *v = VALUES(S(1, 3, 1, 1), 1, 2, 6);
    /* Queries of zero weigh all keys they see alike. */
    run(GM_OP_attention, IN(one, v, v, NULL, NULL, NULL), 2, NULL, out);
    EXPECT(out[0], 1e-15, 3, 3);
    EXPECT(out[1], 1e-15, log(3), log(3));
    at.causal = true; /* query 0 sees keys 0 and 1 of three */
    run(GM_OP_attention, IN(one, v, v, NULL, NULL, NULL), 2, NULL, out);
    EXPECT(out[0], 1e-15, 1.5, 3);
    gm_tensor *mask = values(GM_U8, S(1, 3), (double[]){0, 0, 1});
    run(GM_OP_attention, IN(one, VALUES(S(1, 3, 1, 1), 1, NAN, 6), VALUES(S(1, 3, 1, 1), NAN, 2, 6), mask, NULL, NULL),
        2, NULL, out);
    EXPECT(out[0], 1e-15, 0, 6); /* the first sees no key; hidden NaN do not leak */
    EXPECT(out[1], 1e-15, -INFINITY, 0);
    at.causal = false;
    at.scale = 0.5; /* one key is q k scale = log 3 above the other */
    run(GM_OP_attention,
        IN(VALUES(S(1, 1, 1, 2), 1, 1), VALUES(S(1, 2, 1, 2), log(3), log(3), 0, 0), VALUES(S(1, 2, 1, 2), 4, 8, 0, 4),
           NULL, NULL, NULL),
        2, NULL, out);
    EXPECT(out[0], 1e-14, 3, 7);
    EXPECT(out[1], 1e-15, log(4));
    at = gm_attrs_default();
    /* Four query heads share two key heads: the first two read the first. */
    v = VALUES(S(1, 1, 2, 1), 5, 7);
    run(GM_OP_attention, IN(VALUES(S(1, 1, 4, 1), 1, 2, 3, 4), v, v, NULL, NULL, NULL), 2, NULL, out);
    EXPECT(out[0], 0, 5, 5, 7, 7);
    EXPECT(out[1], 1e-14, 5, 10, 21, 28);
    check_attention_gradient(NULL, NULL, NULL);
    at.softcap = 0.7, at.row = 1; /* the two samples take biases 1 and 2 of 3, and of 1 the same */
    check_attention_gradient(NULL, NULL, UNIT(3, 4, 3, 5));
    check_attention_gradient(NULL, NULL, UNIT(1, 4, 3, 5));
    at = gm_attrs_default();
    at.causal = true, at.p = 0.4, at.stream = (gm_stream){77, 3};
    check_attention_gradient(values(GM_U8, S(2, 5), (double[]){1, 0, 1, 1, 1, 0, 1, 1, 0, 1}), NULL, NULL);
    end();
}

void gm_test_ref_losses(void **state)
{
    (void)state;
    gm_tensor *out[3], *dx;
    begin();
    /* Logits log(1, 2, 5): probabilities 1/8, 2/8, 5/8. */
    gm_tensor *x = VALUES(S(2, 3), 0, log(2), log(5), 0, log(2), log(5)), *target = INDEX(S(2), 1, -100);
    run(GM_OP_cross_entropy, IN(x, target), 3, NULL, out);
    EXPECT(out[0], 1e-15, log(4), 0);
    EXPECT(out[1], 0, log(5), log(5));
    EXPECT(out[2], 1e-15, 8.0 / 5, 8.0 / 5);
    run(GM_OP_cross_entropy_grad, IN(x, target, out[1], out[2], VALUES(S(2), 2, 2)), 1, NULL, &dx);
    EXPECT(dx, 1e-15, 0.25, -1.5, 1.25, 0, 0, 0);
    at.label_smoothing = 0.3;
    run(GM_OP_cross_entropy, IN(x, target), 3, NULL, out);
    EXPECT(out[0], 1e-15, 0.7 * log(4) + 0.1 * (log(8) + log(4) + log(1.6)), 0);
    target = INDEX(S(2, 2), 0, 3, -100, 2);
    gm_tensor *y = between(-2, 2, S(2, 2, 4)), *g = UNIT(2, 2), *weight[3] = {g, NULL, NULL};
    run(GM_OP_cross_entropy, IN(y, target), 3, NULL, out);
    run(GM_OP_cross_entropy_grad, IN(y, target, out[1], out[2], g), 1, NULL, &dx);
    check_slope(&(forward){GM_OP_cross_entropy, IN(y, target), 3, weight}, "logits", y, dx);
    gm_tensor *bad = INDEX(S(2), 0, 3);
    gm_call    call = {GM_OP_cross_entropy,
                       2,
                       3,
                       (gm_tensor *[]){x, bad},
                       (gm_tensor *[]){empty(GM_F64, S(2)), empty(GM_F64, S(2)), empty(GM_F64, S(2))},
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
              *out[4];
    for (int k = 0; k < 2; k++) {
        dev->step.step = k + 1;
        run(GM_OP_sgd, IN(NULL, NULL, g), 4, (gm_tensor *[]){p, buffer, NULL, NULL}, out);
        EXPECT(p, 1e-15, want[k]);
    }
}

static void adam_twice(const double want[2])
{
    gm_tensor *pmv[6] = {VALUES(S(1), 1), VALUES(S(1), 0), VALUES(S(1), 0)}, *g = VALUES(S(1), 1), *out[6];
    for (int k = 0; k < 2; k++) {
        dev->step.step = k + 1;
        set(g, 0, k ? -1 : 1);
        run(GM_OP_adam, IN(NULL, NULL, g), 6, pmv, out);
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
    run(GM_OP_attention, IN(q, k, k, NULL, NULL, NULL), 2, NULL, whole);
    OK(gm_tensor_narrow(q, 2, 1, 1, &one[0]));
    OK(gm_tensor_narrow(k, 2, 1, 1, &one[1]));
    at.box = (gm_box){4, {1, 2, 3, 4}, {0, 1, 0, 0}};
    run(GM_OP_attention, IN(keep(one[0]), keep(one[1]), one[1], NULL, NULL, NULL), 2, NULL, part);
    for (int64_t i = 0; i < 3; i++)
        for (int64_t d = 0; d < 2; d++) assert_true(get(part[0], i * 2 + d) == get(whole[0], (i * 2 + 1) * 2 + d));
    end();
}
