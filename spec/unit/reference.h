/* reference.h - what the tests of the reference kernels share: tensors by their values, one way to run an op,
 * and the check of a gradient against central differences of its forward op.
 *
 * Central differences in f64 with h = 1e-5: truncation h^2 f''' / 6 is some 1e-10, rounding eps |f| / h
 * some 1e-10 for the sums here (|f| below 50): 1e-8 is allowed. Inputs keep off kinks. Everything here is static:
 * each file that includes it has a device and a list of tensors of its own. */
#ifndef GM_UNIT_REFERENCE_H
#define GM_UNIT_REFERENCE_H

#include "../../kernels/sample.h"
#include "unit.h"

#define STEP    1e-5
#define ALLOWED 1e-8

static gm_device  *dev;
static gm_tensor  *kept[256];
static int         n_kept;
static unit_random random_state;
static gm_attrs    at;

static inline void begin(void)
{
    OK(gm_device_new("ref", 1, &dev));
    n_kept = 0;
    random_state.n = 99;
    at = gm_attrs_default();
}

static inline void end(void)
{
    while (n_kept) gm_tensor_release(kept[--n_kept]);
    assert_int_equal(gm_pool_stats(dev->pool).live, 0);
    gm_device_free(dev);
}

static inline gm_tensor *keep(gm_tensor *t)
{
    assert_true(n_kept < 256);
    return kept[n_kept++] = t;
}

static inline int64_t offset_of(const gm_tensor *t, int64_t i)
{
    int64_t offset = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
        offset += i % t->shape[d] * t->stride[d];
        i /= t->shape[d];
    }
    return offset;
}

static inline double get(const gm_tensor *t, int64_t i)
{
    return gm_load(t->dtype, gm_tensor_data(t), offset_of(t, i));
}

static inline void set(gm_tensor *t, int64_t i, double v) { gm_store(t->dtype, gm_tensor_data(t), offset_of(t, i), v); }

static inline gm_tensor *empty(gm_dtype dtype, int ndim, const int64_t *shape)
{
    gm_tensor *t = NULL;
    OK(gm_tensor_new(dev, dtype, ndim, shape, &t));
    return keep(t);
}

static inline gm_tensor *values(gm_dtype dtype, int ndim, const int64_t *shape, const double *v)
{
    gm_tensor *t = empty(dtype, ndim, shape);
    for (int64_t i = 0, n = gm_tensor_numel(t); i < n; i++) set(t, i, v[i]);
    return t;
}

/* Uniform in [low, high), f64; with its first two dimensions exchanged in memory, so strides matter. */
static inline gm_tensor *between(double low, double high, int ndim, const int64_t *shape)
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
static inline void run(gm_op op, int n_in, gm_tensor *const *in, int n_out, gm_tensor *const *given, gm_tensor **out)
{
    gm_spec         spec[GM_MAX_OUT];
    const gm_slots *slots = gm_op_gives(op);
    for (int i = 0; i < n_out; i++) out[i] = given ? given[i] : NULL;
    gm_call call = {op, n_in, n_out, in, out, &at};
    OK(gm_infer(&call, spec));
    for (int i = 0; i < n_out; i++)
        if (!out[i] && !(given && slots->slot[i % slots->n].optional))
            out[i] = empty(spec[i].dtype, spec[i].ndim, spec[i].shape);
    OK(gm_run(dev, &call));
}

static inline void expect(const gm_tensor *t, int n, const double *want, double allowed)
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

static inline double weighted(const forward *f)
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

static inline void check_slope(const forward *f, const char *name, gm_tensor *x, const gm_tensor *have)
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

#endif
