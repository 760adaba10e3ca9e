/* executor_test.c - schedules carried out on ranks that are threads: gradients of one tape, what is held, delays,
 * failures. What is sent is counted in executor_traffic_test.c. */
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "../../host/autograd/apply.h"
#include "calls.h"
#include "executor_job.h"
#include "../../host/life.h"

void gm_test_executor_schedules(void **state)
{
    (void)state;
    for (int stages = 1; stages <= STAGES; stages++)
        for (int micro = 1; micro <= MICRO; micro += micro == 1 ? 2 : 5)
            for (kind k = GPIPE; k <= V_SHAPED; k++) {
                chain c = make_chain(k, stages, micro);
                c.steps = 3; /* what crosses the borders is known from the second on */
                run_chain(&c);
            }
}

/* A value that a part does not read has a gradient of zeros, which comes back like any other. */
void gm_test_executor_ignored(void **state)
{
    (void)state;
    for (int stages = 1; stages <= 3; stages++)
        for (kind k = ONE_F_ONE_B; k <= V_SHAPED; k++) {
            chain c = make_chain(k, stages, 4);
            c.ignores = true;
            run_chain(&c);
        }
}

/* Random delays in front of forward passes, hundreds of steps: no deadlock, no message in another's place. Messages
 * wait in the sender's buffer until they are received (they are larger than RENDEZVOUS). */
void gm_test_executor_delays(void **state)
{
    (void)state;
    for (kind k = ONE_F_ONE_B; k <= V_SHAPED; k++) {
        chain c = make_chain(k, 4, 5);
        c.steps = 60;
        c.width = 12;
        c.delay = 300;
        run_chain(&c);
    }
}

/* Sends go on by themselves: a first stage is through with its forward passes before the second begins. */
void gm_test_executor_sends_ahead(void **state)
{
    (void)state;
    chain c = make_chain(GPIPE, 2, MICRO);
    c.width = 12;
    c.steps = 2;
    c.meet = true;
    run_chain(&c);
}

static const gm_executor_event *event_of(const chain *c, int rank, gm_action_kind kind, bool gradient, int micro_batch)
{
    const list *l = &c->s.of[rank];
    for (int i = 0; i < l->n; i++) {
        const gm_action *a = &c->event[rank][i].action;
        if (a->kind == kind && a->gradient == gradient && a->micro_batch == micro_batch) return &c->event[rank][i];
    }
    fail_msg("there is no such event");
    return NULL;
}

/* Receives are posted one computing action ahead, and what happened has the order of time. */
void gm_test_executor_events(void **state)
{
    (void)state;
    chain c = make_chain(GPIPE, 2, 4);
    c.steps = 2;
    c.delay = 1000;
    run_chain(&c);
    for (int m = 0; m < 4; m++) {
        const gm_executor_event *receive = event_of(&c, 1, GM_ACTION_RECEIVE, false, m);
        const gm_executor_event *forward = event_of(&c, 1, GM_ACTION_FORWARD, false, m);
        const gm_executor_event *made = event_of(&c, 0, GM_ACTION_FORWARD, false, m);
        const gm_executor_event *send = event_of(&c, 0, GM_ACTION_SEND, false, m);
        if (m) assert_true(receive->begin <= event_of(&c, 1, GM_ACTION_FORWARD, false, m - 1)->begin);
        assert_true(receive->end <= forward->begin && receive->begin <= receive->end);
        assert_true(made->end <= send->begin && send->begin <= send->end);
        assert_true(made->begin < made->end && made->end <= forward->begin); /* one clock for all ranks */
        assert_true(forward->waited >= 0);
    }
    assert_true(event_of(&c, 1, GM_ACTION_FORWARD, false, 0)->waited > 0); /* the bubble at the start */
}

static int least(int a, int b) { return a < b ? a : b; }

/* (micro-batch, chunk) pairs held at once: m in GPipe, p - stage in 1F1B, and what waits for its weights. */
void gm_test_executor_peaks(void **state)
{
    (void)state;
    for (int micro = 2; micro <= 6; micro += 2) {
        chain all = make_chain(GPIPE, 4, micro), few = make_chain(ONE_F_ONE_B, 4, micro);
        chain later = make_chain(SPLIT, 4, micro), looped = make_chain(LOOPED, 2, micro);
        run_chain(&all);
        run_chain(&few);
        run_chain(&later);
        run_chain(&looped);
        for (int stage = 0; stage < 4; stage++) {
            assert_int_equal(all.peak[stage], micro);
            assert_int_equal(few.peak[stage], least(micro, 4 - stage));
            assert_int_equal(later.peak[stage], least(micro, 4 - stage + 1));
        }
        for (int stage = 0; stage < 2; stage++) assert_int_equal(looped.peak[stage], 2 * micro);
        few.forward_only = true;
        run_chain(&few);
        for (int stage = 0; stage < 4; stage++) assert_int_equal(few.peak[stage], 1);
    }
}

/* A part that fails in the middle of a step, first, middle or last: the others hear of it, and the next step is good,
 * whatever had been under way. */
void gm_test_executor_failures(void **state)
{
    (void)state;
    for (int bad = 0; bad < 4; bad++)
        for (int when = 0; when < 2; when++) {
            chain c = make_chain(ONE_F_ONE_B, 4, 6);
            c.steps = 4;
            c.bad_part = bad;
            c.bad_step = when;
            run_chain(&c);
        }
}

/* The first stage fails before it has read the header that the second has sent it: both have to forget. */
void gm_test_executor_forgets(void **state)
{
    (void)state;
    chain c = make_chain(LOOPED, 2, 4);
    c.steps = 3;
    c.bad_part = c.bad_step = 0;
    c.bad_micro = 1;
    c.late = true;
    run_chain(&c);
}

/* What does not fit what a border has agreed on is named, and what it should have been. */
void gm_test_executor_twist(void **state)
{
    (void)state;
    chain c = make_chain(ONE_F_ONE_B, 2, 3);
    c.steps = 3;
    c.twist = 1;
    run_chain(&c);
}

/* ---- lists that are none ---- */

static gm_status give_one(void *context, const gm_stage_call *call, gm_stage_result *result)
{
    (void)call;
    (void)result;
    gm_rank *r = context;
    return r ? GM_OK : GM_FAIL(GM_EINVAL, "never called");
}

static gm_status run_list(gm_rank *r, gm_executor *e, int n, gm_action *actions, int parts)
{
    int              part = 0;
    gm_stage         stage = {give_one, NULL, r};
    gm_executor_step step = {.actions = actions,
                             .n_actions = n,
                             .micro_batches = 2,
                             .chunks = 1,
                             .parts = &part,
                             .n_parts = parts,
                             .final = true,
                             .stage = &stage};
    return gm_executor_run(e, &step);
}

#define LIST(...) \
    (int)(sizeof((gm_action[]){__VA_ARGS__}) / sizeof(gm_action)), (gm_action[]) { __VA_ARGS__ }

void gm_test_executor_refuses(void **state)
{
    (void)state;
    gm_rank            *r = NULL;
    gm_executor        *e = NULL;
    gm_executor_options none = {0};
    OK(gm_rank_new(&r));
    OK(gm_rank_open_device(r, "cpu", 1));
    OK(gm_executor_new(r, &none, &e));
    gm_action f = {.kind = GM_ACTION_FORWARD}, b = {.kind = GM_ACTION_BACKWARD}, i = {.kind = GM_ACTION_BACKWARD_INPUT};
    gm_action w = {.kind = GM_ACTION_BACKWARD_WEIGHT}, s = {.kind = GM_ACTION_SEND, .peer = 1};
    gm_action far = {.kind = GM_ACTION_FORWARD, .micro_batch = 2};
    OK(run_list(r, e, LIST(f, b), 1));
    FAILS(GM_EINVAL, "stage 0, action 2, forward of micro-batch 1, chunk 1: it was done before",
          run_list(r, e, LIST(f, f), 1));
    FAILS(GM_EINVAL, "before its forward", run_list(r, e, LIST(b), 1));
    FAILS(GM_EINVAL, "too early", run_list(r, e, LIST(f, w), 1));
    FAILS(GM_EINVAL, "it was done before", run_list(r, e, LIST(f, b, b), 1));
    FAILS(GM_EINVAL, "it was done before", run_list(r, e, LIST(f, i, w, w), 1));
    FAILS(GM_EINVAL, "without an axis pipeline", run_list(r, e, LIST(f, s), 1));
    FAILS(GM_EINVAL, "there are 2 and 1", run_list(r, e, LIST(f, far), 1));
    FAILS(GM_EINVAL, "gives nothing to the part behind", run_list(r, e, LIST(f), 2));
    OK(run_list(r, e, LIST(f, i, w), 1)); /* as good as new */
    gm_executor_free(e);
    gm_rank_free(r);
}

static void refuses_axes(gm_rank *r, void *context)
{
    (void)context;
    gm_executor        *e = NULL;
    gm_executor_options bad = {.scatter = gm_mesh_mask(&r->mesh, "data")};
    FAILS(GM_EINVAL, "not over data", gm_executor_new(r, &bad, &e));
}

void gm_test_executor_refuses_axes(void **state)
{
    (void)state;
    gm_mesh mesh = mesh_of("pipeline", 2, "data", 2, NULL, 1);
    run_ranks(&mesh, refuses_axes, NULL);
}

/* ---- messages move while a part computes ---- */

typedef struct progress {
    _Atomic int begun; /* rank 0 has sent its part, before it could take in anything */
    _Atomic int done;  /* the other rank has its sum */
    bool        heads; /* attention instead of an elementwise op */
} progress;

static void compute_meanwhile(gm_rank *r, void *context)
{
    progress   *p = context;
    gm_group   *g;
    gm_pending *sum = NULL;
    gm_value   *t = NULL, *x = NULL, *y = NULL;
    gm_attrs    attrs = gm_attrs_default();
    attrs.function = GM_FN_tanh;
    attrs.scale = 1;
    OK(gm_comm_group(r->comm, 1, &g));
    OK(gm_value_new(r, "test", GM_F64, SHAPE(1000), &t));
    OK(gm_value_new(r, "test", GM_F64, SHAPE(1, 1, 1, 3, 2), &x));
    OK(gm_run_one(r->device, GM_OP_fill, NULL, NULL, t->local));
    OK(gm_run_one(r->device, GM_OP_fill, NULL, NULL, x->local));
    while (r->rank && !p->begun) usleep(50);
    OK(gm_comm_all_reduce(r->comm, g, t->local, GM_SUM, &sum)); /* two rounds: both ranks have to look after it */
    if (!r->rank) p->begun = 1;
    for (int i = 0; !r->rank && !p->done && i < 100000; i++) {
        if (p->heads) OK(call_attention_packed(r, x, NULL, &attrs, &y));
        else OK(gm_apply(r, GM_OP_unary, 1, &x, &attrs, 1, NULL, &y));
        gm_value_release(y);
        usleep(50);
    }
    if (!r->rank) assert_true(p->done);
    OK(gm_comm_wait(r->comm, sum));
    p->done = 1;
    gm_value_release(t);
    gm_value_release(x);
}

void gm_test_executor_forward_polls(void **state)
{
    (void)state;
    gm_mesh mesh = mesh_of("pipeline", 2, NULL, 1, NULL, 1);
    for (int heads = 0; heads < 2; heads++) {
        progress p = {.heads = heads};
        run_ranks(&mesh, compute_meanwhile, &p);
    }
}
