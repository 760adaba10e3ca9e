/* optimizer_test.c - sgd and adam on every CPU table against the reference, over several steps of many
 * tensors at once, since learning rate, clip factor, loss scale and step number come from the step block.
 *
 * A step rounds a parameter once, and what is subtracted some ten times, being at most 1 here: after three
 * steps 64 units of eps (1 + |p|) are allowed, and for moments 16 (1 + |m|). */
#include <stdlib.h>

#include "unit.h"

#define TENSORS 6
#define STEPS   3

static const struct {
    int     ndim;
    int64_t shape[3];
} shapes[TENSORS] = {
    {0, {0}}, {1, {7}}, {2, {3, 5}}, {2, {0, 3}}, {1, {40000}}, {3, {2, 3, 67}},
};

typedef struct setup {
    gm_op    op;
    int      width;
    gm_dtype dtype;
    gm_attrs attrs;
} setup;

static gm_tensor *filled(gm_device *dev, gm_dtype dtype, int k, unit_random *r, double low, double high)
{
    gm_tensor *t = NULL;
    OK(gm_tensor_new(dev, dtype, shapes[k].ndim, shapes[k].shape, &t));
    for (int64_t i = 0, n = gm_tensor_numel(t); i < n; i++)
        gm_store(dtype, gm_tensor_data(t), i, unit_between(r, low, high));
    return t;
}

/* The state after STEPS steps on a backend: p and moments of each tensor, which the caller releases. */
static void train(gm_device *dev, const gm_backend *backend, const setup *s, gm_tensor **state)
{
    unit_random r = {17};
    for (int i = 0; i < TENSORS * s->width; i++) {
        bool moment = i % s->width > 0;
        state[i] = moment && s->op == GM_OP_sgd && s->attrs.momentum == 0
                       ? NULL
                       : filled(dev, s->dtype, i / s->width, &r, moment ? 0 : -1, moment ? 0 : 1);
    }
    for (int step = 1; step <= STEPS; step++) {
        gm_tensor *g[TENSORS];
        dev->step = (gm_step_block){.step = step, .lr = 0.1 * step, .clip = 0.7, .loss_scale = 4};
        for (int k = 0; k < TENSORS; k++) g[k] = filled(dev, s->dtype, k, &r, -6, 6);
        OK(gm_run_with(dev, backend, &(gm_call){s->op, TENSORS, TENSORS * s->width, g, state, &s->attrs}));
        for (int k = 0; k < TENSORS; k++) gm_tensor_release(g[k]);
    }
}

static void expect_state(const setup *s, const char *name, gm_tensor *const *got, gm_tensor *const *want)
{
    double eps = s->dtype == GM_F32 ? 0x1p-24 : 0x1p-52;
    for (int i = 0; i < TENSORS * s->width; i++)
        for (int64_t k = 0, n = want[i] ? gm_tensor_numel(want[i]) : 0; k < n; k++) {
            double a = gm_load(s->dtype, gm_tensor_data(got[i]), k), b = gm_load(s->dtype, gm_tensor_data(want[i]), k);
            if (!(fabs(a - b) <= (i % s->width ? 16 : 64) * eps * (1 + fabs(b))))
                fail_msg("%s on %s: tensor %d of output group %d, element %d is %.9g, ref says %.9g", gm_op_name(s->op),
                         name, i / s->width, i % s->width, (int)k, a, b);
        }
}

static void compare(gm_device *dev, const setup *s)
{
    static const char *const tables[] = {"cpu-generic", "cpu-avx2", "cpu-avx512"};
    gm_tensor               *want[3 * TENSORS], *got[3 * TENSORS];
    train(dev, gm_backend_find("ref"), s, want);
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        const gm_backend *backend = gm_backend_find(tables[t]);
        if (!backend) continue;
        train(dev, backend, s, got);
        expect_state(s, tables[t], got, want);
        for (int i = 0; i < TENSORS * s->width; i++) gm_tensor_release(got[i]);
    }
    for (int i = 0; i < TENSORS * s->width; i++) gm_tensor_release(want[i]);
}

void gm_test_optimizers_on_tables(void **state)
{
    (void)state;
    gm_device *dev = NULL;
    OK(gm_device_new("cpu", 2, &dev));
    for (int f64 = 0; f64 < 2; f64++)
        for (int kind = 0; kind < 8; kind++) {
            gm_attrs at = gm_attrs_default();
            at.weight_decay = kind % 2 ? 0.05 : 0;
            at.momentum = kind >= 2 && kind < 6 ? 0.9 : 0;
            at.nesterov = kind == 3;
            at.dampening = kind == 4 ? 0.3 : 0;
            at.decoupled = kind == 7;
            at.eps = 1e-3;
            bool adam = kind >= 6;
            compare(dev, &(setup){adam ? GM_OP_adam : GM_OP_sgd, adam ? 3 : 2, f64 ? GM_F64 : GM_F32, at});
        }
    assert_int_equal(gm_pool_stats(dev->pool).live, 0);
    gm_device_free(dev);
}
