/* executor_job.c - see executor_job.h. */
#define _DEFAULT_SOURCE
#include "executor_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../host/autograd/apply.h"
#include "redistribute_blocks.h"

/* ---- lists ---- */

static void add(list *l, gm_action_kind kind, int micro_batch, int chunk)
{
    assert_true(l->n < ACTIONS);
    l->action[l->n++] = (gm_action){.kind = kind, .micro_batch = micro_batch, .chunk = chunk, .peer = -1};
}

/* All forward, chunk after chunk, then all back. */
static void order_in_rounds(schedule *s, list *l)
{
    for (int c = 0; c < s->chunks; c++)
        for (int m = 0; m < s->micro; m++) add(l, GM_ACTION_FORWARD, m, c);
    for (int c = s->chunks - 1; c >= 0; c--)
        for (int m = s->micro - 1; m >= 0; m--) add(l, GM_ACTION_BACKWARD, m, c);
}

/* lag < 0: backward in one. */
static void order_one_by_one(const schedule *s, list *l, int stage, int lag)
{
    int ahead = s->stages - stage - 1, done = 0;
    for (int m = 0; m < s->micro + ahead; m++) {
        if (m < s->micro) add(l, GM_ACTION_FORWARD, m, 0);
        if (m < ahead) continue;
        int back = m - ahead;
        add(l, lag < 0 ? GM_ACTION_BACKWARD : GM_ACTION_BACKWARD_INPUT, back, 0);
        if (lag >= 0 && back >= lag) add(l, GM_ACTION_BACKWARD_WEIGHT, done++, 0);
    }
    while (lag >= 0 && done < s->micro) add(l, GM_ACTION_BACKWARD_WEIGHT, done++, 0);
}

static bool find_part(const schedule *s, int part, int *stage, int *chunk)
{
    for (*stage = 0; *stage < s->stages; ++*stage)
        for (*chunk = 0; *chunk < s->chunks; ++*chunk)
            if (s->parts[*stage][*chunk] == part) return true;
    return false;
}

typedef struct play {
    bool made[2][PARTS][MICRO]; /* activations, gradients */
    int  next[STAGES];
    list order[STAGES];
} play;

/* Can the next computing of a stage run? */
static bool can_run(const schedule *s, const play *p, const gm_action *a, int part)
{
    if (a->kind == GM_ACTION_FORWARD) return !part || p->made[0][part - 1][a->micro_batch];
    if (a->kind == GM_ACTION_BACKWARD_WEIGHT) return true;
    return part == s->stages * s->chunks - 1 || p->made[1][part + 1][a->micro_batch];
}

/* What it makes goes to the stage that reads it: both lists get their end of the message. */
static void give(schedule *s, int stage, const gm_action *a, bool gradient, int reader)
{
    int to, chunk;
    if (!find_part(s, reader, &to, &chunk) || to == stage) return;
    add(&s->of[stage], GM_ACTION_SEND, a->micro_batch, a->chunk);
    add(&s->of[to], GM_ACTION_RECEIVE, a->micro_batch, chunk);
    gm_action *send = &s->of[stage].action[s->of[stage].n - 1], *receive = &s->of[to].action[s->of[to].n - 1];
    send->gradient = receive->gradient = gradient;
    send->peer = to;
    receive->peer = stage;
}

/* One action of some stage; false: all are done. */
static bool play_one(schedule *s, play *p)
{
    bool left = false;
    for (int stage = 0; stage < s->stages; stage++) {
        const list *l = &p->order[stage];
        if (p->next[stage] == l->n) continue;
        left = true;
        const gm_action *a = &l->action[p->next[stage]];
        int              part = s->parts[stage][a->chunk];
        if (!can_run(s, p, a, part)) continue;
        add(&s->of[stage], a->kind, a->micro_batch, a->chunk);
        p->next[stage]++;
        bool gradient = a->kind != GM_ACTION_FORWARD;
        if (a->kind == GM_ACTION_BACKWARD_WEIGHT) return true;
        p->made[gradient][part][a->micro_batch] = true;
        give(s, stage, a, gradient, part + (gradient ? -1 : 1));
        return true;
    }
    assert_true(!left); /* the orders wait for each other */
    return false;
}

schedule make_schedule(kind k, int stages, int micro, int lag)
{
    schedule s = {.stages = stages, .micro = micro, .chunks = k == LOOPED || k == V_SHAPED ? 2 : 1};
    play    *p = calloc(1, sizeof *p);
    assert_true(p && micro <= MICRO && stages <= STAGES);
    for (int r = 0; r < stages; r++) {
        s.parts[r][0] = r;
        s.parts[r][1] = k == V_SHAPED ? 2 * stages - 1 - r : stages + r;
        if (k == ONE_F_ONE_B || k == SPLIT) order_one_by_one(&s, &p->order[r], r, k == SPLIT ? lag : -1);
        else order_in_rounds(&s, &p->order[r]);
    }
    while (play_one(&s, p)) {
    }
    free(p);
    return s;
}

chain make_chain(kind k, int stages, int micro)
{
    chain c = {.s = make_schedule(k, stages, micro, 1),
               .mesh = mesh_of("pipeline", stages, NULL, 1, NULL, 1),
               .width = 5,
               .steps = 1,
               .signatures = true,
               .bad_part = -1,
               .bad_step = -1,
               .twist = -1};
    for (int m = 0; m < MICRO; m++) c.rows[m] = 3;
    return c;
}

/* ---- the parts ---- */

typedef struct world {
    chain      *c;
    gm_rank    *r;
    gm_value   *w[PARTS], *b[PARTS];
    int         step;
    unit_random random;
} world;

static double number(uint64_t which, int64_t i) { return whole_number(which, i) / 1000; }

static gm_value *value_of(gm_rank *r, uint64_t which, int ndim, const int64_t *shape)
{
    gm_value *v = NULL;
    OK(gm_value_new(r, "test", GM_F64, ndim, shape, &v));
    for (int64_t i = 0, n = gm_tensor_numel(v->local); i < n; i++)
        ((double *)gm_tensor_data(v->local))[i] = number(which, i);
    return v;
}

static int64_t rows_of(const world *w, int m) { return w->c->rows[(m + w->step) % MICRO]; }

static gm_value *ids_of(world *w, int m)
{
    gm_value *v = NULL;
    int64_t   n = rows_of(w, m);
    OK(gm_value_new(w->r, "test", GM_I64, 1, &n, &v));
    for (int64_t i = 0; i < n; i++) ((int64_t *)gm_tensor_data(v->local))[i] = 100 * m + i;
    return v;
}

static gm_value *product(gm_rank *r, gm_value *a, gm_value *b)
{
    gm_value *in[2] = {a, b}, *y = NULL;
    gm_attrs  attrs = gm_attrs_default();
    attrs.function = GM_FN_mul;
    OK(gm_apply(r, GM_OP_binary, 2, in, &attrs, 1, NULL, &y));
    return y;
}

static gm_value *sum(gm_rank *r, gm_value *x)
{
    gm_value *y = NULL;
    gm_attrs  attrs = gm_attrs_default();
    OK(gm_apply(r, GM_OP_sum, 1, &x, &attrs, 1, NULL, &y));
    return y;
}

/* Scales a scalar. */
static gm_value *times(gm_rank *r, gm_value *x, double alpha)
{
    gm_value *y = NULL;
    gm_attrs  attrs = gm_attrs_default();
    attrs.alpha = alpha;
    OK(gm_apply(r, GM_OP_affine, 1, &x, &attrs, 1, NULL, &y));
    gm_value_release(x);
    return y;
}

/* y of one part from h, which is taken. */
static gm_value *layer(world *w, int part, gm_value *h)
{
    gm_value *y = NULL;
    OK(gm_linear(w->r, h, w->w[part], w->b[part], GM_FN_sigmoid, &y));
    gm_value_release(h);
    return y;
}

static int last_part(const world *w) { return w->c->s.stages * w->c->s.chunks - 1; }

/* out[3] of a part but the last from in[3] (NULL: part 0); *loss where it has one. */
static void run_part(world *w, int part, int m, gm_value *const *in, gm_value **out, gm_value **loss)
{
    gm_value *h = NULL;
    int64_t   shape[2] = {rows_of(w, m), w->c->width};
    if (part) gm_value_retain(h = in[0]);
    else h = value_of(w->r, 7 + (uint64_t)m, 2, shape);
    h = layer(w, part, h);
    *loss = NULL;
    if (part == last_part(w)) {
        gm_value *p = product(w->r, h, part ? in[1] : h);
        *loss = sum(w->r, p);
        gm_value_release(p);
        gm_value_release(h);
        return;
    }
    if (part == 1) *loss = times(w->r, sum(w->r, h), 0.01);
    out[0] = h;
    out[1] = part ? in[1] : h;
    out[2] = part ? in[2] : ids_of(w, m);
    gm_value_retain(out[1]);
    if (part) gm_value_retain(out[2]);
}

/* ---- in one ---- */

static void serial(world *w)
{
    for (int m = 0; m < w->c->s.micro; m++) {
        gm_value *in[3] = {NULL}, *out[3] = {NULL}, *total = NULL, *loss = NULL;
        for (int part = 0; part <= last_part(w); part++) {
            run_part(w, part, m, in, out, &loss);
            for (int i = 0; i < 3; i++) {
                gm_value_release(in[i]);
                in[i] = part < last_part(w) ? out[i] : NULL;
            }
            if (loss && total) {
                gm_value *terms[2] = {loss, total}, *both = NULL;
                gm_attrs  attrs = gm_attrs_default();
                attrs.function = GM_FN_add;
                OK(gm_apply(w->r, GM_OP_binary, 2, terms, &attrs, 1, NULL, &both));
                gm_value_release(loss);
                gm_value_release(total);
                total = both;
            } else if (loss) total = loss;
        }
        OK(gm_tape_backward(total, NULL));
        gm_value_release(total);
    }
}

/* ---- in parts ---- */

static void check_inputs(world *w, const gm_stage_call *call, int part)
{
    char want[32] = "";
    if (part) snprintf(want, sizeof want, "from part %d", part - 1);
    assert_true(!strcmp(call->text, want));
    assert_int_equal(call->n, part ? 3 : 0);
    if (!part) return;
    const int64_t *ids = gm_tensor_data(call->in[2]->local);
    for (int64_t i = 0; i < rows_of(w, call->micro_batch); i++) assert_int_equal(ids[i], 100 * call->micro_batch + i);
    bool wanted = !w->c->forward_only && !(w->c->frozen && part == 1);
    for (int i = 0; i < 2; i++) assert_int_equal(call->in[i]->requires_grad, i && w->c->frozen ? false : wanted);
    assert_int_equal(call->in[2]->requires_grad, false);
}

static gm_status forward(void *context, const gm_stage_call *call, gm_stage_result *result)
{
    world *w = context;
    chain *c = w->c;
    int    stage = w->r->coordinate[0], part = c->s.parts[stage][call->chunk];
    char   text[32];
    if (c->delay) usleep((useconds_t)unit_below(&w->random, c->delay));
    if (part == c->bad_part && w->step == c->bad_step && call->micro_batch == c->s.micro / 2)
        return GM_FAIL(GM_ELUA, "part %d is not well", part);
    check_inputs(w, call, part);
    run_part(w, part, call->micro_batch, call->in, result->out, &result->loss);
    if (part == last_part(w)) return GM_OK;
    result->n = 3;
    snprintf(text, sizeof text, "from part %d", part);
    result->text = strdup(text);
    if (part || w->step != c->twist) return GM_OK;
    gm_value_release(result->out[2]);
    result->out[2] = value_of(w->r, 1, SHAPE(1, 2));
    return GM_OK;
}

/* ---- a job ---- */

static void zero(world *w)
{
    for (int p = 0; p <= last_part(w); p++) {
        gm_value_zero_grad(w->w[p]);
        gm_value_zero_grad(w->b[p]);
    }
}

static void near(const gm_value *v, const double *want)
{
    double largest = 0, worst = 0;
    assert_true(v->grad_set && !v->grad_partial);
    const double *got = gm_tensor_data(v->grad);
    for (int64_t i = 0, n = gm_tensor_numel(v->grad); i < n; i++) {
        largest = fmax(largest, fabs(want[i]));
        worst = fmax(worst, fabs(got[i] - want[i]));
    }
    if (!(largest > 0 && worst <= 1e-13 * largest)) fail_msg("a gradient is off by %g of %g", worst, largest);
}

static double *grad_copy(const gm_value *v)
{
    int64_t n = gm_tensor_numel(v->local);
    double *copy = calloc((size_t)n, sizeof *copy);
    assert_true(copy != NULL);
    if (v->grad_set) memcpy(copy, gm_tensor_data(v->grad), (size_t)n * sizeof *copy);
    return copy;
}

static void compare(world *w, double *const *want)
{
    for (int p = 0; p <= last_part(w); p++) {
        int  stage, chunk;
        bool mine = find_part(&w->c->s, p, &stage, &chunk) && stage == w->r->coordinate[0];
        if (!mine || w->c->forward_only || (w->c->frozen && !p)) {
            assert_true(!w->w[p]->grad_set && !w->b[p]->grad_set);
            continue;
        }
        near(w->w[p], want[2 * p]);
        near(w->b[p], want[2 * p + 1]);
    }
}

static void count_traffic(world *w, const gm_executor *e)
{
    gm_traffic               entries[64];
    const gm_executor_event *events;
    int                      n = gm_comm_traffic(w->r->comm, entries, 64), at = w->r->rank;
    w->c->bytes[at] = w->c->messages[at] = w->c->gathers[at] = 0;
    for (int i = 0; i < n; i++) {
        if (!strcmp(entries[i].group, "pipeline") && !strcmp(entries[i].op, "send")) {
            w->c->bytes[at] += entries[i].bytes;
            w->c->messages[at] += entries[i].calls;
        }
        if (!strcmp(entries[i].group, "tensor")) w->c->gathers[at] += entries[i].calls;
    }
    w->c->peak[at] = gm_executor_peak(e);
    n = gm_executor_events(e, &events);
    memcpy(w->c->event[at], events, (size_t)n * sizeof *events);
}

/* The words for a micro-batch's shapes. */
static const char *signature(const world *w, int m)
{
    static const char *const names[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    return names[rows_of(w, m)];
}

static gm_status one_step(world *w, gm_executor *e)
{
    chain      *c = w->c;
    int         stage = w->r->coordinate[0];
    const char *signatures[MICRO];
    for (int m = 0; m < c->s.micro; m++) signatures[m] = signature(w, m);
    gm_stage    callbacks = {forward, NULL, w};
    list        forwards = {0};
    const list *l = &c->s.of[stage];
    for (int i = 0; c->forward_only && i < l->n; i++) {
        const gm_action *a = &l->action[i];
        if (!a->gradient && (a->kind == GM_ACTION_FORWARD || a->kind >= GM_ACTION_SEND))
            forwards.action[forwards.n++] = *a;
    }
    if (c->forward_only) l = &forwards;
    gm_executor_step step = {.actions = l->action,
                             .n_actions = l->n,
                             .micro_batches = c->s.micro,
                             .chunks = c->s.chunks,
                             .parts = c->s.parts[stage],
                             .n_parts = c->s.stages * c->s.chunks,
                             .signatures = c->signatures ? signatures : NULL,
                             .forward_only = c->forward_only,
                             .final = true,
                             .stage = &callbacks};
    return gm_executor_run(e, &step);
}

/* What a step that fails says, on the rank that fails and on the others, which hear of it. */
static void expect_failure(world *w, gm_status st)
{
    chain *c = w->c;
    int    stage, chunk, failed = 0, first = 0, bad = w->step == c->bad_step ? c->bad_part : 0;
    find_part(&c->s, bad, &stage, &chunk);
    bool here = stage == w->r->coordinate[0];
    if (here && w->step == c->bad_step) {
        char text[64];
        snprintf(text, sizeof text, "part %d is not well", bad);
        assert_int_equal(st, GM_ELUA);
        assert_true(strstr(gm_last_error(), text) != NULL);
    } else if (here) {
        assert_int_equal(st, GM_EINVAL);
        assert_true(strstr(gm_last_error(), "variable_shapes = true") && strstr(gm_last_error(), "f64 (1, 2)") &&
                    strstr(gm_last_error(), "i64 (3)") && strstr(gm_last_error(), "send of the activation"));
    } else assert_true(st == GM_OK || st == GM_EPEER);
    OK(gm_comm_section_end(w->r->comm, st == GM_OK || st == GM_EPEER, "a bad step", &failed, &first));
    assert_int_equal(failed, gm_mesh_size(&c->mesh) / c->s.stages);
}

static void body(gm_rank *r, void *context)
{
    chain       *c = context;
    gm_executor *e = NULL;
    double      *want[2 * PARTS];
    world        w = {.c = c, .r = r, .random = {(uint64_t)r->rank * 977 + 1}};
    int64_t      square[2] = {c->width, c->width};
    OK(gm_executor_new(r, &(gm_executor_options){c->scatter, c->variable_shapes}, &e));
    for (int p = 0; p <= last_part(&w); p++) {
        w.w[p] = value_of(r, 1000 + (uint64_t)p, 2, square);
        w.b[p] = value_of(r, 2000 + (uint64_t)p, 1, square);
        OK(gm_value_require_grad(w.w[p], !c->frozen || p));
        OK(gm_value_require_grad(w.b[p], !c->frozen || p));
    }
    for (w.step = 0; w.step < c->steps; w.step++) {
        bool bad = w.step == c->bad_step || w.step == c->twist;
        serial(&w);
        for (int p = 0; p <= last_part(&w); p++) {
            want[2 * p] = grad_copy(w.w[p]);
            want[2 * p + 1] = grad_copy(w.b[p]);
        }
        for (int p = 0; p <= last_part(&w); p++) { /* stages hold no gradients of others */
            gm_value_zero_grad(w.w[p]);
            gm_value_zero_grad(w.b[p]);
        }
        gm_comm_reset_traffic(r->comm);
        gm_status st = one_step(&w, e);
        if (bad) expect_failure(&w, st);
        else OK(st);
        if (!bad) compare(&w, want);
        assert_int_equal(gm_comm_under_way(r->comm), 0);
        zero(&w);
        for (int i = 0; i < 2 * (last_part(&w) + 1); i++) free(want[i]);
    }
    count_traffic(&w, e);
    gm_executor_free(e);
    for (int p = 0; p <= last_part(&w); p++) {
        gm_value_release(w.w[p]);
        gm_value_release(w.b[p]);
    }
    assert_int_equal(gm_pool_stats(r->device->pool).live, 0);
}

void run_chain(chain *c) { run_ranks(&c->mesh, body, c); }
