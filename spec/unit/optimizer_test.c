/* optimizer_test.c - every direction on every CPU table against the reference, over several steps of many
 * tensors at once, since learning rate, clip factor, loss scale and step number come from the step block.
 *
 * A step rounds a parameter once, and what is subtracted some ten times, being at most 1 here: after three
 * steps 64 units of eps (1 + |p|) are allowed, and for moments 16 (1 + |m|). A parameter of 16 bits with a master is
 * the rounded master: where the two masters lie on both sides of a tie, it is off by one unit in the last place.
 * Without one it is rounded at each step, where it may be larger than at the end. */
#include <stdlib.h>

#include "unit.h"

#define TENSORS 6
#define STEPS   3
#define WIDEST  6

static const struct {
    int     ndim;
    int64_t shape[3];
} shapes[TENSORS] = {
    {0, {0}}, {1, {7}}, {2, {3, 5}}, {2, {0, 3}}, {1, {40000}}, {3, {2, 3, 67}},
};

typedef struct setup {
    gm_op    op;
    int      width;   /* p, moments, master, trust */
    unsigned moments; /* bit k: moment k */
    gm_dtype dtype;
    bool     master;
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

static bool is_master(const setup *s, int i) { return i % s->width == s->width - 2; }

/* Output i before the first step: a parameter, its moments, all 0, its master, and what its trust ratio is of. */
static gm_tensor *first_state(gm_device *dev, const setup *s, int i, unit_random *r, gm_tensor *const *before)
{
    gm_tensor *t = NULL, *p = before[-(i % s->width)];
    gm_attrs   at = gm_attrs_default();
    int        role = i % s->width;
    if (role == 0) return filled(dev, s->dtype, i / s->width, r, -1, 1);
    if (role == s->width - 1) {
        if (!s->attrs.trust) return NULL;
        OK(gm_tensor_new(dev, GM_F64, 1, (int64_t[]){2}, &t));
        for (int k = 0; k < 2; k++) gm_store(GM_F64, gm_tensor_data(t), k, unit_between(r, 1, 4));
        return t;
    }
    if (!is_master(s, i) && !(s->moments >> (role - 1) & 1)) return NULL;
    if (!is_master(s, i)) return filled(dev, gm_dtype_wide(s->dtype), i / s->width, r, 0, 0);
    if (!s->master) return NULL;
    OK(gm_tensor_new(dev, GM_F32, p->ndim, p->shape, &t));
    at.dtype = GM_F32;
    OK(gm_run_one(dev, GM_OP_copy, &at, p, t));
    return t;
}

/* The squares that trust ratios are made of. */
static void measure(gm_device *dev, const gm_backend *backend, const setup *s, gm_tensor **g, gm_tensor **state)
{
    gm_attrs at = s->attrs;
    if (!at.trust) return;
    at.measure = true;
    OK(gm_run_with(dev, backend, &(gm_call){s->op, 2 + TENSORS, TENSORS * s->width, g, state, &at}));
}

/* The state after STEPS steps on a backend: p, moments and master of each tensor, which the caller releases. */
static void train(gm_device *dev, const gm_backend *backend, const setup *s, gm_tensor **state)
{
    unit_random r = {17};
    for (int i = 0; i < TENSORS * s->width; i++) state[i] = first_state(dev, s, i, &r, state + i);
    for (int step = 1; step <= STEPS; step++) {
        gm_tensor *g[2 + TENSORS] = {NULL}; /* no control tensor, nothing missed */
        dev->step = (gm_step_block){.step = step, .lr = 0.1 * step, .clip = 0.7, .loss_scale = 4};
        for (int k = 0; k < TENSORS; k++) g[2 + k] = filled(dev, s->dtype, k, &r, -6, 6);
        measure(dev, backend, s, g, state);
        OK(gm_run_with(dev, backend, &(gm_call){s->op, 2 + TENSORS, TENSORS * s->width, g, state, &s->attrs}));
        for (int k = 0; k < TENSORS; k++) gm_tensor_release(g[2 + k]);
    }
}

/* What is allowed of an element of this size. */
static double allowance(const setup *s, int i, double size)
{
    bool parameter = i % s->width == 0;
    if (i % s->width == s->width - 1) return 1e-3 * size; /* squares of what the other lines allow */
    double eps = gm_dtype_wide(s->dtype) == GM_F32 ? 0x1p-24 : 0x1p-52;
    double ulp = s->dtype == GM_BF16 ? 0x1p-7 : 0x1p-10; /* most, of a number's own size */
    if (!gm_dtype_is_narrow(s->dtype) || is_master(s, i))
        return (parameter || is_master(s, i) ? 64 : 16) * eps * (1 + size);
    if (parameter) return s->master ? ulp * size + 64 * eps : 2 * ulp * (1 + size);
    return s->master ? 16 * eps * (1 + size) : ulp * (1 + size); /* moments feel a parameter's roundings */
}

static void expect_state(const setup *s, const char *name, gm_tensor *const *got, gm_tensor *const *want)
{
    for (int i = 0; i < TENSORS * s->width; i++)
        for (int64_t k = 0, n = want[i] ? gm_tensor_numel(want[i]) : 0; k < n; k++) {
            gm_dtype t = want[i]->dtype;
            double   a = gm_load(t, gm_tensor_data(got[i]), k), b = gm_load(t, gm_tensor_data(want[i]), k);
            if (!(fabs(a - b) <= allowance(s, i, fabs(b))))
                fail_msg("%s of %s on %s: tensor %d of output group %d, element %d is %.9g, ref says %.9g",
                         gm_op_name(s->op), gm_dtype_name(s->dtype), name, i / s->width, i % s->width, (int)k, a, b);
        }
}

static void compare(gm_device *dev, const setup *s)
{
    static const char *const tables[] = {"cpu-generic", "cpu-avx2", "cpu-avx512", "cpu-avx512bf16"};
    gm_tensor               *want[WIDEST * TENSORS], *got[WIDEST * TENSORS];
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

static const struct {
    gm_op    op;
    unsigned moments;
    gm_attrs at; /* of these: */
} kinds[] = {
    {GM_OP_sgd, 0, {.eps = 1e-3}},
    {GM_OP_sgd, 0, {.weight_decay = 0.05}},
    {GM_OP_sgd, 1, {.momentum = 0.9}},
    {GM_OP_sgd, 1, {.momentum = 0.9, .nesterov = true, .weight_decay = 0.05}},
    {GM_OP_sgd, 1, {.momentum = 0.9, .dampening = 0.3, .maximize = true}},
    {GM_OP_sgd, 1, {.momentum = 0.9, .weight_decay = 0.05, .trust = 2}},
    {GM_OP_adam, 3, {.eps = 1e-3}},
    {GM_OP_adam, 3, {.eps = 1e-3, .decoupled = true, .weight_decay = 0.05}},
    {GM_OP_adam, 7, {.eps = 1e-3, .amsgrad = true, .maximize = true}},
    {GM_OP_adam, 3, {.eps = 1e-3, .decoupled = true, .weight_decay = 0.05, .trust = 1, .trust_max = 0.7}},
    {GM_OP_rmsprop, 1, {.eps = 1e-1, .beta2 = 0.9}},
    {GM_OP_rmsprop, 7, {.eps = 1e-1, .beta2 = 0.9, .momentum = 0.9, .centered = true, .weight_decay = 0.05}},
    {GM_OP_adagrad, 1, {.eps = 1e-1, .lr_decay = 0.1, .weight_decay = 0.05}},
};

/* Lion is compared in spec/kernels: a sign leaps where rounding differs. */
static void compare_kinds(gm_device *dev, gm_dtype dtype, bool master, bool stochastic)
{
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        gm_attrs at = gm_attrs_default();
        at.weight_decay = kinds[k].at.weight_decay;
        at.momentum = kinds[k].at.momentum;
        at.nesterov = kinds[k].at.nesterov;
        at.dampening = kinds[k].at.dampening;
        at.decoupled = kinds[k].at.decoupled;
        at.maximize = kinds[k].at.maximize;
        at.amsgrad = kinds[k].at.amsgrad;
        at.centered = kinds[k].at.centered;
        at.lr_decay = kinds[k].at.lr_decay;
        at.trust = kinds[k].at.trust;
        at.trust_max = kinds[k].at.trust_max;
        at.trust_coefficient = 0.5;
        at.eps = kinds[k].at.eps;
        if (kinds[k].at.beta2 != 0) at.beta2 = kinds[k].at.beta2;
        at.stochastic = stochastic;
        compare(dev, &(setup){kinds[k].op, gm_op_gives(kinds[k].op)->n, kinds[k].moments, dtype, master, at});
    }
}

void gm_test_optimizers_on_tables(void **state)
{
    (void)state;
    gm_device *dev = NULL;
    OK(gm_device_new("cpu", 2, &dev));
    compare_kinds(dev, GM_F32, false, false);
    compare_kinds(dev, GM_F64, false, false);
    for (int f16 = 0; f16 < 2; f16++)
        for (int master = 0; master < 2; master++) compare_kinds(dev, f16 ? GM_F16 : GM_BF16, master, false);
    compare_kinds(dev, GM_BF16, false, true);
    compare_kinds(dev, GM_F16, false, true);
    assert_int_equal(gm_pool_stats(dev->pool).live, 0);
    gm_device_free(dev);
}

/* Every place between two neighbours, by all words: the upper one for as many as the place is far. */
static void expect_chances(gm_dtype t, float low, float high, int places)
{
    for (int k = 0; k <= places; k++) {
        float f = low + (high - low) * (float)k / (float)places;
        int   up = 0;
        for (uint32_t word = 0; word < 65536; word += 16) {
            uint16_t bits = gm_round_by_chance(t, f, word << 16);
            double   v = gm_load(t, &bits, 0);
            if (v != low && v != high) fail_msg("%g becomes %g, between %g and %g", f, v, low, high);
            up += v == high;
        }
        assert_int_equal(up, 4096 / places * k);
    }
}

void gm_test_rounding_by_chance(void **state)
{
    (void)state;
    expect_chances(GM_BF16, 1, 1 + 0x1p-7f, 64);
    expect_chances(GM_BF16, -3, -3 - 0x1p-6f, 64);
    expect_chances(GM_F16, 1, 1 + 0x1p-10f, 64);
    expect_chances(GM_F16, -0x1p-14f, -0x1p-14f - 0x1p-24f, 64);
    expect_chances(GM_F16, 0x1p-20f, 0x1p-20f + 0x1p-24f, 64); /* subnormal */
    for (uint32_t word = 0; word < 2; word++) {                /* what is no number, and the largest */
        assert_int_equal(gm_round_by_chance(GM_BF16, INFINITY, -word), 0x7f80);
        assert_int_equal(gm_round_by_chance(GM_F16, -INFINITY, -word), 0xfc00);
        assert_int_equal(gm_round_by_chance(GM_F16, 65504, -word), 0x7bff);
        assert_int_equal(gm_round_by_chance(GM_F16, 1e6f, -word), 0x7c00);
        assert_true(isnan(gm_bf16_to_f32(gm_round_by_chance(GM_BF16, NAN, -word))));
        assert_true(isnan(gm_f16_to_f32(gm_round_by_chance(GM_F16, NAN, -word))));
    }
}
