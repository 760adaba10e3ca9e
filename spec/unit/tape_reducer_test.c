/* tape_reducer_test.c - which gradients a step of several tapes says are final, and when: on two ranks that are
 * threads, against sums worked out by hand. Bucket by bucket is reducer_test.c. */
#include "../../host/gradients/reducer.h"
#include "redistribute_blocks.h"
#include "threads_transport.h"

#define ROWS  5 /* blocks of 3 and 2 */
#define WIDTH 3
#define MANY  4

/* Tape t computes x[t] p[t] p[t + 1], row by row: neighbours share a parameter, the last one is read by none. */
enum { TAPES = 2 };

typedef struct work {
    gm_rank    *r;
    gm_value   *p[MANY], *x[TAPES], *seed;
    gm_value   *y[TAPES];
    gm_tape    *tape[TAPES];
    gm_reducer *reducer;
} work;

static const int64_t shape[2] = {ROWS, WIDTH};

static gm_value *cut_value(gm_rank *r, uint64_t which)
{
    gm_layout rows = gm_layout_cut(0, 0);
    gm_value *v = NULL;
    OK(gm_value_take_block(r, block_of(r, &rows, 2, shape, which, 0), &rows, 2, shape, &v));
    return v;
}

static void open_work(gm_rank *r, bool overlap, work *k)
{
    gm_layout whole = gm_layout_replicated();
    *k = (work){.r = r};
    for (int i = 0; i < MANY; i++) {
        OK(gm_value_take(r, block_of(r, &whole, 1, (int64_t[]){WIDTH}, (uint64_t)i, 0), &k->p[i]));
        OK(gm_value_require_grad(k->p[i], true));
    }
    for (int t = 0; t < TAPES; t++) {
        k->x[t] = cut_value(r, 20 + (uint64_t)t);
        OK(gm_value_require_grad(k->x[t], true)); /* nobody's: the reducer does not hear of it */
    }
    k->seed = cut_value(r, 30);
    OK(gm_reducer_new(r, k->p, MANY, 1, overlap, 0,
                      &k->reducer)); /* each is a bucket; the last one is the first to go */
}

static void close_work(work *k)
{
    gm_reducer_free(k->reducer);
    for (int i = 0; i < MANY; i++) gm_value_release(k->p[i]);
    for (int t = 0; t < TAPES; t++) gm_value_release(k->x[t]);
    gm_value_release(k->seed);
    assert_int_equal(gm_pool_stats(k->r->device->pool).live, 0);
}

static void record(work *k, int t)
{
    gm_value *h = multiplied(k->r, k->x[t], k->p[t]);
    k->y[t] = multiplied(k->r, h, k->p[t + 1]);
    gm_value_release(h);
    k->tape[t] = gm_tape_take(k->r);
}

static gm_status run(work *k, int t, gm_tape_pass pass, bool final)
{
    gm_tape_job job = {.pass = pass,
                       .n = 1,
                       .outputs = &k->y[t],
                       .seeds = &k->seed,
                       .n_inputs = 1,
                       .inputs = &k->x[t],
                       .final = final};
    return gm_tape_run(k->r, k->tape[t], &job);
}

static void drop(work *k, int t)
{
    gm_tape_free(k->tape[t]);
    gm_value_release(k->y[t]);
    k->tape[t] = NULL;
    k->y[t] = NULL;
}

/* A step without final passes, before the last one or instead of it. */
static void accumulate(work *k)
{
    for (int t = 0; t < TAPES; t++) {
        record(k, t);
        OK(run(k, t, GM_TAPE_WHOLE, false));
        drop(k, t);
    }
}

/* Column c of the sum over all rows of seed x[t], all of them whole numbers: sums are exact. */
static double column(int t, int64_t c)
{
    double sum = 0;
    for (int64_t row = 0; row < ROWS; row++)
        sum += whole_number(30, row * WIDTH + c) * whole_number(20 + (uint64_t)t, row * WIDTH + c);
    return sum;
}

/* `passes` times the gradient of one step; products of four numbers of three digits. */
static void expect_sums(const work *k, int passes)
{
    int unused[MANY];
    assert_int_equal(gm_reducer_unused(k->reducer, unused), 1);
    assert_int_equal(unused[0], MANY - 1);
    for (int i = 0; i < MANY - 1; i++) {
        assert_true(k->p[i]->param->grad_set && !k->p[i]->param->grad_partial && !k->p[i]->param->in_sum);
        for (int64_t c = 0; c < WIDTH; c++) {
            double want = 0;
            if (i < TAPES) want += column(i, c) * whole_number((uint64_t)i + 1, c);
            if (i) want += column(i - 1, c) * whole_number((uint64_t)i - 1, c);
            assert_true(gm_load(GM_F64, gm_tensor_data(k->p[i]->param->grad), c) == passes * want);
        }
    }
}

static void expect_launched(const work *k, const bool *launched)
{
    for (int i = 0; i < MANY; i++) assert_int_equal(k->p[i]->param->in_sum, launched[i]);
}

static void expect_awaited(const work *k, const int *awaited)
{
    for (int i = 0; i < MANY; i++) assert_int_equal(k->p[i]->param->awaited, awaited[i]);
}

static void zero(work *k)
{
    for (int i = 0; i < MANY; i++) gm_value_zero_grad(k->p[i]);
}

/* What tape 0 alone reads is final with it; but buckets go in order, and the middle one waits for tape 1. In halves all
 * that there is to compute leads to x: the second has nothing to do but to say so. */
static void last_tape(gm_rank *r, void *context)
{
    const bool *overlap = context;
    work        k;
    open_work(r, *overlap, &k);
    for (int halves = 0; halves < 2; halves++) {
        zero(&k);
        gm_reducer_arm(k.reducer, true);
        gm_comm_reset_traffic(r->comm);
        accumulate(&k);
        expect_launched(&k, (bool[]){false, false, false, false}); /* armed, and yet nothing is final */
        for (int t = 0; t < TAPES; t++) {
            record(&k, t);
            OK(gm_tape_await(k.r, k.tape[t]));
        }
        expect_awaited(&k, (int[]){1, 2, 1, 0});
        for (int t = 0; t < TAPES; t++) {
            bool l = *overlap, last = l && t == TAPES - 1;
            if (halves) OK(run(&k, t, GM_TAPE_INPUT, false));
            OK(run(&k, t, halves ? GM_TAPE_WEIGHT : GM_TAPE_WHOLE, true));
            drop(&k, t);
            expect_launched(&k, (bool[]){last, last, last, l});
        }
        expect_awaited(&k, (int[]){0, 0, 0, 0});
        OK(gm_reducer_finish(k.reducer));
        expect_sums(&k, 2);
    }
    close_work(&k);
}

void gm_test_tape_reducer_last_tape(void **state)
{
    (void)state;
    for (int overlap = 0; overlap < 2; overlap++) run_world(2, last_tape, &(bool){overlap});
}

static gm_status fails(void *context, int n_in, gm_value *const *in, int n_out, const bool *want, gm_value **out)
{
    (void)context, (void)n_in, (void)in, (void)n_out, (void)want, (void)out;
    return GM_FAIL(GM_EINVAL, "a rule that fails");
}

/* y[1] through a function whose backward fails: the last of all to be run. */
static void record_failing(work *k)
{
    gm_value *first = NULL, *h;
    gm_tensor_retain(k->x[1]->local);
    OK(gm_value_take_block(k->r, k->x[1]->local, &k->x[1]->layout, 2, shape, &first));
    OK(gm_record_custom(k->r, 1, (gm_value *[]){k->p[0]}, 1, &first, (gm_callback){fails, NULL, NULL}, false));
    h = multiplied(k->r, first, k->p[1]);
    k->y[1] = multiplied(k->r, h, k->p[2]);
    gm_value_release(h);
    gm_value_release(first);
    k->tape[1] = gm_tape_take(k->r);
}

/* A step that fails when the sums of some gradients are under way, or whose tapes are thrown away: the next one is
 * right. */
static void failure(gm_rank *r, void *context)
{
    work k;
    (void)context;
    open_work(r, true, &k);
    for (int kind = 0; kind < 2; kind++) {
        gm_reducer_arm(k.reducer, true);
        record(&k, 0);
        record_failing(&k);
        for (int t = 0; t < TAPES; t++) OK(gm_tape_await(k.r, k.tape[t]));
        expect_awaited(&k, (int[]){2, 2, 1, 0});
        if (kind) {
            OK(run(&k, 0, GM_TAPE_WHOLE, true));
            FAILS(GM_EINVAL, "a rule that fails", run(&k, 1, GM_TAPE_WHOLE, true));
            expect_launched(&k, (bool[]){false, true, true, true});
        }
        for (int t = 0; t < TAPES; t++) drop(&k, t);
        expect_awaited(&k, (int[]){0, 0, 0, 0});
        gm_reducer_arm(k.reducer, false);
        zero(&k);
        gm_reducer_arm(k.reducer, true);
        for (int t = 0; t < TAPES; t++) {
            record(&k, t);
            OK(gm_tape_await(k.r, k.tape[t]));
        }
        for (int t = 0; t < TAPES; t++) {
            OK(run(&k, t, GM_TAPE_WHOLE, true));
            drop(&k, t);
        }
        OK(gm_reducer_finish(k.reducer));
        expect_sums(&k, 1);
    }
    close_work(&k);
}

void gm_test_tape_reducer_failure(void **state)
{
    (void)state;
    run_world(2, failure, NULL);
}

/* What adds to a gradient that is being summed is found, whether or not it says that it is final. */
static void late(gm_rank *r, void *context)
{
    work k;
    (void)context;
    open_work(r, true, &k);
    for (int final = 0; final < 2; final++) {
        gm_reducer_arm(k.reducer, true);
        record(&k, 0);
        record(&k, 1);
        OK(run(&k, 0, GM_TAPE_WHOLE, true)); /* nobody awaits tape 1 */
        expect_launched(&k, (bool[]){true, true, true, true});
        FAILS(GM_EINVAL, "changes while it is being reduced", run(&k, 1, GM_TAPE_WHOLE, final));
        OK(gm_reducer_finish(k.reducer));
        drop(&k, 0);
        drop(&k, 1);
        zero(&k);
        gm_reducer_arm(k.reducer, true);
        record(&k, 0);
        OK(gm_tape_await(k.r, k.tape[0]));
        record(&k, 1);
        OK(gm_tape_await(k.r, k.tape[1]));
        OK(run(&k, 1, GM_TAPE_WHOLE, true));
        OK(run(&k, 0, GM_TAPE_WHOLE, true));
        for (int t = 0; t < TAPES; t++) drop(&k, t);
        OK(gm_reducer_finish(k.reducer));
        expect_sums(&k, 1);
        zero(&k);
    }
    close_work(&k);
}

void gm_test_tape_reducer_late(void **state)
{
    (void)state;
    run_world(2, late, NULL);
}
