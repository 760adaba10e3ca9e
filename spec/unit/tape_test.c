/* tape_test.c - several tapes in flight and backward in two halves, on one rank: the same bits as one tape after the
 * other, what a half leaves on the tape, roots, refusals. What reducers are told is in tape_reducer_test.c. */
#include "../../host/autograd/apply.h"
#include "calls.h"
#include "unit.h"
#include "../../host/life.h"

#define ROWS  6
#define WIDTH 5
#define INNER 8
#define MOST  4 /* micro-batches */

enum { SCALE, SHIFT, W1, B1, W2, PARAMETERS };

/* A block as transformers have it, y = x + linear(gelu(linear(norm x))), on x of (ROWS, WIDTH). */
typedef struct net {
    gm_rank  *r;
    bool      scaled; /* w2 goes through an op before it is multiplied, as a cast would be */
    gm_value *p[PARAMETERS], *x[MOST], *seed[MOST];
} net;

static gm_value *random_value(gm_rank *r, unit_random *random, int ndim, const int64_t *shape, bool grad)
{
    gm_value *v = NULL;
    OK(gm_value_new(r, "test", GM_F64, ndim, shape, &v));
    for (int64_t i = 0, n = gm_tensor_numel(v->local); i < n; i++)
        gm_store(GM_F64, gm_tensor_data(v->local), i, unit_between(random, -1, 1));
    OK(gm_value_require_grad(v, grad));
    return v;
}

/* Gradients have their buffers from the start, so that what tapes hold can be counted. */
static void open_net(net *n, uint64_t seed)
{
    static const int64_t shapes[PARAMETERS][2] = {{WIDTH}, {WIDTH}, {INNER, WIDTH}, {INNER}, {WIDTH, INNER}};
    static const int     ndim[PARAMETERS] = {1, 1, 2, 1, 2};
    unit_random          random = {seed};
    gm_tensor           *buffer;
    *n = (net){0};
    OK(gm_rank_new(&n->r));
    OK(gm_rank_open_device(n->r, "cpu", 1));
    for (int i = 0; i < PARAMETERS; i++) n->p[i] = random_value(n->r, &random, ndim[i], shapes[i], true);
    for (int k = 0; k < MOST; k++) {
        n->x[k] = random_value(n->r, &random, SHAPE(ROWS, WIDTH), true);
        n->seed[k] = random_value(n->r, &random, SHAPE(ROWS, WIDTH), false);
        OK(gm_value_grad_buffer(n->x[k], &buffer));
    }
    for (int i = 0; i < PARAMETERS; i++) OK(gm_value_grad_buffer(n->p[i], &buffer));
}

static void close_net(net *n)
{
    for (int i = 0; i < PARAMETERS; i++) gm_value_release(n->p[i]);
    for (int k = 0; k < MOST; k++) {
        gm_value_release(n->x[k]);
        gm_value_release(n->seed[k]);
    }
    assert_int_equal(gm_pool_stats(n->r->device->pool).live, 0);
    gm_rank_free(n->r);
}

static void zero(net *n)
{
    for (int i = 0; i < PARAMETERS; i++) gm_value_zero_grad(n->p[i]);
    for (int k = 0; k < MOST; k++) gm_value_zero_grad(n->x[k]);
}

static size_t live(const net *n) { return gm_pool_stats(n->r->device->pool).live; }

static gm_value *affine(gm_rank *r, gm_value *x, double alpha)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *y = NULL;
    a.alpha = alpha;
    OK(gm_apply(r, GM_OP_affine, 1, &x, &a, 1, NULL, &y));
    return y;
}

static gm_value *binary(gm_rank *r, gm_function f, gm_value *x, gm_value *y)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *z = NULL;
    a.function = f;
    OK(gm_apply(r, GM_OP_binary, 2, (gm_value *[]){x, y}, &a, 1, NULL, &z));
    return z;
}

static gm_value *forward(const net *n, gm_value *x)
{
    gm_value *norm[4] = {NULL}, *h = NULL, *o = NULL, *w2 = n->p[W2], *scaled = NULL;
    gm_attrs  a = gm_attrs_default();
    OK(gm_apply(n->r, GM_OP_layer_norm, 4, (gm_value *[]){x, NULL, n->p[SCALE], n->p[SHIFT]}, &a, 4,
                (bool[]){true, false, true, true}, norm));
    OK(call_linear(n->r, norm[0], n->p[W1], n->p[B1], GM_FN_gelu, &h));
    if (n->scaled) w2 = scaled = affine(n->r, w2, 0.5);
    OK(call_linear(n->r, h, w2, NULL, GM_FN_none, &o));
    gm_value *y = binary(n->r, GM_FN_add, x, o), *made[] = {norm[0], norm[2], norm[3], h, o, scaled};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) gm_value_release(made[i]);
    return y;
}

/* All gradients there are, one after the other. */
typedef struct numbers {
    int    n;
    double of[MOST * ROWS * WIDTH + 3 * INNER * WIDTH];
} numbers;

static void append(numbers *to, const gm_value *v)
{
    assert_true(v->param->grad_set);
    for (int64_t i = 0, n = gm_tensor_numel(v->param->grad); i < n; i++)
        to->of[to->n++] = gm_load(GM_F64, gm_tensor_data(v->param->grad), i);
}

static numbers gradients(const net *n, int micro_batches)
{
    numbers g = {0};
    for (int i = 0; i < PARAMETERS; i++) append(&g, n->p[i]);
    for (int k = 0; k < micro_batches; k++) append(&g, n->x[k]);
    return g;
}

/* To the bit. */
static void expect_equal(const numbers *got, const numbers *want)
{
    assert_int_equal(got->n, want->n);
    for (int i = 0; i < got->n; i++)
        if (got->of[i] != want->of[i]) fail_msg("gradient %d is %.17g, not %.17g", i, got->of[i], want->of[i]);
}

/* One after the other, in this order. */
static numbers one_by_one(net *n, const int *order, int micro_batches)
{
    zero(n);
    for (int i = 0; i < micro_batches; i++) {
        gm_value *y = forward(n, n->x[order[i]]);
        OK(gm_tape_backward(y, n->seed[order[i]], false));
        gm_value_release(y);
    }
    return gradients(n, micro_batches);
}

/* ---- any order ---- */

typedef struct flight {
    gm_tape  *tape[MOST];
    gm_value *y[MOST];
    bool      ran[MOST];
    int       n_ran, n_done, order[MOST]; /* as they were run */
} flight;

/* Records micro-batch k, or runs it whole or its first half. */
static void advance(net *n, flight *f, int k, bool halves)
{
    if (!f->y[k]) {
        f->y[k] = forward(n, n->x[k]);
        f->tape[k] = gm_tape_take(n->r);
        return;
    }
    gm_tape_job job = {.n = 1, .outputs = &f->y[k], .seeds = &n->seed[k], .n_inputs = 1, .inputs = &n->x[k]};
    job.pass = halves ? GM_TAPE_INPUT : GM_TAPE_WHOLE;
    OK(gm_tape_run(n->r, f->tape[k], &job));
    f->ran[k] = true;
    f->order[f->n_ran++] = k;
    f->n_done += !halves;
}

/* Micro-batches in a random order; second halves in the order of the first. */
static numbers in_flight(net *n, unit_random *random, int micro_batches, bool halves, flight *f)
{
    *f = (flight){0};
    zero(n);
    while (f->n_done < micro_batches) {
        int k = (int)unit_below(random, micro_batches);
        if (!f->ran[k]) advance(n, f, k, halves);
        else if (f->n_done < f->n_ran)
            OK(gm_tape_run(n->r, f->tape[f->order[f->n_done++]], &(gm_tape_job){.pass = GM_TAPE_WEIGHT}));
    }
    for (int k = 0; k < micro_batches; k++) {
        gm_tape_free(f->tape[k]);
        gm_value_release(f->y[k]);
    }
    return gradients(n, micro_batches);
}

void gm_test_tape_any_order(void **state)
{
    (void)state;
    unit_random random = {71};
    net         n;
    open_net(&n, 5);
    size_t before = live(&n);
    for (int round = 0; round < 60; round++) {
        flight f;
        int    micro_batches = 1 + round % MOST;
        n.scaled = round / 2 % 2;
        numbers got = in_flight(&n, &random, micro_batches, round / 4 % 2, &f);
        numbers want = one_by_one(&n, f.order, micro_batches);
        expect_equal(&got, &want);
        assert_int_equal(live(&n), before);
    }
    close_net(&n);
}

/* ---- two halves ---- */

static void expect_set(const net *n, const bool *set)
{
    for (int i = 0; i < PARAMETERS; i++) assert_int_equal(gm_value_grad(n->p[i]) != NULL, set[i]);
}

/* After the first half a tape holds, of each product, the operand that its parameter's gradient needs and the gradient
 * of its result, before the activation: nothing of the norm, no pre-activation, no weight that was computed. */
void gm_test_tape_first_half(void **state)
{
    (void)state;
    const size_t wide = ROWS * WIDTH * sizeof(double), inner = ROWS * INNER * sizeof(double);
    for (int scaled = 0; scaled < 2; scaled++) {
        net n;
        open_net(&n, 6);
        n.scaled = scaled;
        numbers want = one_by_one(&n, (int[]){0}, 1);
        zero(&n);
        size_t    before = live(&n) - wide; /* the seed is the tape's, too */
        gm_value *y = forward(&n, n.x[0]);
        gm_tape  *t = gm_tape_take(n.r);
        OK(gm_tape_run(
            n.r, t,
            &(gm_tape_job){
                .pass = GM_TAPE_INPUT, .n = 1, .outputs = &y, .seeds = &n.seed[0], .n_inputs = 1, .inputs = &n.x[0]}));
        gm_value_release(y);
        gm_value_release(n.seed[0]);
        n.seed[0] = NULL;
        expect_set(&n, (bool[]){true, true, false, false, false}); /* a norm is not split */
        assert_true(n.x[0]->param->grad_set);
        assert_int_equal(live(&n) - before, (wide + inner) + (inner + wide));
        OK(gm_tape_run(n.r, t, &(gm_tape_job){.pass = GM_TAPE_WEIGHT}));
        assert_int_equal(live(&n), before);
        gm_tape_free(t);
        numbers got = gradients(&n, 1);
        expect_equal(&got, &want);
        close_net(&n);
    }
}

/* The first part of a model has no inputs: the first half goes down to the first products all the same. */
void gm_test_tape_first_part(void **state)
{
    (void)state;
    net n;
    open_net(&n, 7);
    OK(gm_value_require_grad(n.x[0], false));
    gm_value *a = NULL, *y, *top;
    OK(call_linear(n.r, n.x[0], n.p[W1], n.p[B1], GM_FN_none, &a)); /* (ROWS, INNER): what embeds */
    gm_value *b = NULL;
    OK(call_linear(n.r, a, n.p[W2], NULL, GM_FN_none, &b));
    y = forward(&n, b);
    top = binary(n.r, GM_FN_mul, y, y);
    gm_tape *t = gm_tape_take(n.r);
    OK(gm_tape_run(n.r, t, &(gm_tape_job){.pass = GM_TAPE_INPUT, .n = 1, .outputs = &top, .seeds = &n.seed[0]}));
    expect_set(&n, (bool[]){true, true, false, false, false});
    OK(gm_tape_run(n.r, t, &(gm_tape_job){.pass = GM_TAPE_WEIGHT}));
    gm_tape_free(t);
    numbers halves = {0}, whole = {0};
    for (int i = 0; i < PARAMETERS; i++) append(&halves, n.p[i]);
    gm_value *first[] = {a, b, y, top};
    for (int i = 0; i < 4; i++) gm_value_release(first[i]);
    zero(&n);
    OK(call_linear(n.r, n.x[0], n.p[W1], n.p[B1], GM_FN_none, &a));
    OK(call_linear(n.r, a, n.p[W2], NULL, GM_FN_none, &b));
    y = forward(&n, b);
    top = binary(n.r, GM_FN_mul, y, y);
    OK(gm_tape_backward(top, n.seed[0], false));
    for (int i = 0; i < PARAMETERS; i++) append(&whole, n.p[i]);
    expect_equal(&halves, &whole);
    gm_value *second[] = {a, b, y, top};
    for (int i = 0; i < 4; i++) gm_value_release(second[i]);
    close_net(&n);
}

/* ---- roots ---- */

static double gradient_of(const gm_value *v, int64_t i) { return gm_load(GM_F64, gm_tensor_data(v->param->grad), i); }
static double value_of(const gm_value *v, int64_t i) { return gm_load(GM_F64, gm_tensor_data(v->local), i); }

/* y = 3 x twice, a sum of x y without a seed, and x itself: dx = 3 (s + s') + 6 x + s''. */
void gm_test_tape_roots(void **state)
{
    (void)state;
    net       n;
    gm_value *sum = NULL;
    gm_attrs  a = gm_attrs_default();
    open_net(&n, 8);
    gm_value *x = n.x[0], *y = affine(n.r, x, 3), *square = binary(n.r, GM_FN_mul, x, y);
    OK(gm_apply(n.r, GM_OP_sum, 1, &square, &a, 1, NULL, &sum));
    gm_tape    *t = gm_tape_take(n.r);
    gm_value   *outputs[] = {y, sum, y, x}, *seeds[] = {n.seed[0], NULL, n.seed[1], n.seed[2]};
    gm_tape_job job = {.n = 4, .outputs = outputs, .seeds = seeds};
    OK(gm_tape_run(n.r, t, &job));
    for (int64_t i = 0; i < ROWS * WIDTH; i++) {
        double want = 3 * (value_of(n.seed[0], i) + value_of(n.seed[1], i)) + 6 * value_of(x, i) +
                      value_of(n.seed[2], i);
        assert_true(fabs(gradient_of(x, i) - want) < 1e-14); /* five numbers below 10 */
    }
    FAILS(GM_EINVAL, "a tape is run once", gm_tape_run(n.r, t, &job));
    gm_tape_free(t);
    gm_value *again = NULL; /* of what a backward has run through there is no other gradient, but there are numbers */
    OK(gm_reshape(n.r, y, SHAPE(ROWS * WIDTH), &again));
    FAILS(GM_EINVAL, "retain_graph = true", gm_tape_backward(again, NULL, false));
    gm_value_release(again);
    gm_value_release(y);
    gm_value_release(square);
    gm_value_release(sum);
    close_net(&n);
}

static void refuse(net *n, gm_value *y, gm_value *other)
{
    gm_tape    *t = gm_tape_take(n->r);
    gm_tape_job job = {.n = 1, .outputs = &other, .seeds = &n->seed[0]};
    FAILS(GM_EINVAL, "output 1 requires no gradient, or was not computed", gm_tape_run(n->r, t, &job));
    job.outputs = &n->seed[1];
    FAILS(GM_EINVAL, "output 1 requires no gradient", gm_tape_run(n->r, t, &job));
    job.outputs = &y;
    job.pass = GM_TAPE_WEIGHT;
    FAILS(GM_EINVAL, "the second half of a pass comes once", gm_tape_run(n->r, t, &job));
    job = (gm_tape_job){
        .pass = GM_TAPE_INPUT, .n = 1, .outputs = &y, .seeds = &n->seed[0], .n_inputs = 1, .inputs = &y};
    FAILS(GM_EINVAL, "input 1 is not a leaf", gm_tape_run(n->r, t, &job));
    job.inputs = &n->x[0];
    job.final = true;
    FAILS(GM_EINVAL, "the first half of a pass is not the final one", gm_tape_run(n->r, t, &job));
    job.final = false;
    OK(gm_tape_run(n->r, t, &job)); /* what was refused has done nothing */
    FAILS(GM_EINVAL, "a tape is run once", gm_tape_run(n->r, t, &job));
    job.pass = GM_TAPE_WEIGHT;
    OK(gm_tape_run(n->r, t, &job));
    FAILS(GM_EINVAL, "the second half of a pass comes once", gm_tape_run(n->r, t, &job));
    gm_tape_free(t);
}

void gm_test_tape_refuses(void **state)
{
    (void)state;
    net n;
    open_net(&n, 9);
    assert_null(gm_tape_take(n.r)); /* nothing was recorded */
    OK(gm_tape_await(n.r, NULL));
    gm_tape_free(NULL);
    gm_value *other = forward(&n, n.x[1]);
    gm_tape  *t = gm_tape_take(n.r);
    gm_value *y = forward(&n, n.x[0]);
    refuse(&n, y, other);
    gm_tape_free(t);
    numbers got = {0};
    append(&got, n.x[0]);
    for (int i = 0; i < PARAMETERS; i++) append(&got, n.p[i]);
    gm_value_release(y);
    numbers whole = one_by_one(&n, (int[]){0}, 1), want = {0};
    append(&want, n.x[0]);
    for (int i = 0; i < PARAMETERS; i++) append(&want, n.p[i]);
    assert_int_equal(whole.n, want.n);
    expect_equal(&got, &want);
    gm_value_release(other);
    close_net(&n);
}

/* ---- rules that split ---- */

typedef struct calls {
    int  n;
    bool want[4][2];
} calls;

/* z = a b by hand. in[2..3] of the context: a and b. */
typedef struct product {
    gm_rank  *r;
    gm_value *a, *b;
    calls    *calls;
    bool      all; /* gives what nobody asked for, too */
} product;

static gm_status product_rule(void *context, int n_in, gm_value *const *in, int n_out, const bool *want, gm_value **out)
{
    product *p = context;
    assert_int_equal(n_in, 1);
    assert_int_equal(n_out, 2);
    for (int i = 0; i < 2; i++) p->calls->want[p->calls->n][i] = !want || want[i];
    p->calls->n++;
    if (!want || want[0] || p->all) out[0] = binary(p->r, GM_FN_mul, in[0], p->b);
    if (!want || want[1] || p->all) out[1] = binary(p->r, GM_FN_mul, in[0], p->a);
    return GM_OK;
}

static gm_value *multiplied(net *n, product *p, bool splits)
{
    n->r->no_grad++;
    gm_value *z = binary(n->r, GM_FN_mul, p->a, p->b);
    n->r->no_grad--;
    OK(gm_record_custom(n->r, 2, (gm_value *[]){p->a, p->b}, 1, &z, (gm_callback){product_rule, p, NULL}, splits));
    return z;
}

/* x is an input, the seed of another micro-batch the parameter. */
static void custom(bool splits, bool all, bool whole, int times, const bool want[2][2])
{
    net n;
    open_net(&n, 10);
    calls       seen = {0};
    product     p = {n.r, n.x[0], n.x[1], &seen, all};
    gm_value   *z = multiplied(&n, &p, splits);
    gm_tape    *t = gm_tape_take(n.r);
    gm_tape_job job = {.pass = whole ? GM_TAPE_WHOLE : GM_TAPE_INPUT,
                       .n = 1,
                       .outputs = &z,
                       .seeds = &n.seed[0],
                       .n_inputs = 1,
                       .inputs = &n.x[0]};
    OK(gm_tape_run(n.r, t, &job));
    assert_int_equal(gm_value_grad(n.x[1]) != NULL, whole || !splits);
    job.pass = GM_TAPE_WEIGHT;
    if (!whole) OK(gm_tape_run(n.r, t, &job));
    assert_int_equal(seen.n, times);
    for (int k = 0; k < times; k++)
        for (int i = 0; i < 2; i++) assert_int_equal(seen.want[k][i], want[k][i]);
    for (int64_t i = 0; i < ROWS * WIDTH; i++) {
        assert_true(gradient_of(n.x[0], i) == value_of(n.seed[0], i) * value_of(n.x[1], i));
        assert_true(gradient_of(n.x[1], i) == value_of(n.seed[0], i) * value_of(n.x[0], i));
    }
    gm_tape_free(t);
    gm_value_release(z);
    close_net(&n);
}

void gm_test_tape_custom_splits(void **state)
{
    (void)state;
    static const bool both[2][2] = {{true, true}}, each[2][2] = {{true, false}, {false, true}};
    custom(false, false, false, 1, both);
    custom(true, false, true, 1, both);
    custom(true, false, false, 2, each);
    custom(true, true, false, 2, each); /* what is not asked for does not count twice */
}
