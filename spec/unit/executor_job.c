/* executor_job.c - see executor_job.h. */
#define _DEFAULT_SOURCE
#include "calls.h"
#include "executor_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../host/autograd/apply.h"
#include "redistribute_blocks.h"
#include "../../host/life.h"

/* ---- the parts ---- */

typedef struct world {
    chain      *c;
    gm_rank    *r;
    gm_value   *w[PARTS], *b[PARTS];
    int         step;
    gm_status   st; /* of the forward pass: GM_EPEER, or well */
    unit_random random;
} world;

static double number(uint64_t which, int64_t i) { return whole_number(which, i) / 1000; }

static gm_value *value_of(gm_rank *r, uint64_t which, int ndim, const int64_t *shape)
{
    gm_value *v = NULL;
    OK(gm_value_new(r, "test", GM_F64, ndim, shape, &v));
    double *data = gm_tensor_data(v->local);
    for (int64_t i = 0, n = gm_tensor_numel(v->local); data && i < n; i++) data[i] = number(which, i);
    return v;
}

static int64_t rows_of(const world *w, int m) { return w->c->rows[(m + w->step) % MICRO]; }

static gm_value *ids_of(world *w, int m)
{
    gm_value *v = NULL;
    int64_t   n = rows_of(w, m);
    OK(gm_value_new(w->r, "test", GM_I64, 1, &n, &v));
    int64_t *data = gm_tensor_data(v->local);
    for (int64_t i = 0; data && i < n; i++) data[i] = 100 * m + i;
    return v;
}

/* Ops hear of other ranks' failures; then they give NULL, and so does what reads them. */
static bool is_well(world *w, gm_status st)
{
    if (st == GM_EPEER) w->st = st;
    else OK(st);
    return st == GM_OK;
}

static gm_value *apply(world *w, gm_op op, gm_value *a, gm_value *b, const gm_attrs *attrs)
{
    gm_value *in[2] = {a, b}, *y = NULL;
    int       n = op == GM_OP_binary ? 2 : 1;
    if (!a || (n == 2 && !b) || !is_well(w, gm_apply(w->r, op, n, in, attrs, 1, NULL, &y))) return NULL;
    return y;
}

static gm_value *binary(world *w, gm_function function, gm_value *a, gm_value *b)
{
    gm_attrs attrs = gm_attrs_default();
    attrs.function = function;
    return apply(w, GM_OP_binary, a, b, &attrs);
}

static gm_value *sum(world *w, gm_value *x)
{
    gm_attrs attrs = gm_attrs_default();
    return apply(w, GM_OP_sum, x, NULL, &attrs);
}

/* alpha x; takes x. */
static gm_value *times(world *w, gm_value *x, double alpha)
{
    gm_attrs attrs = gm_attrs_default();
    attrs.alpha = alpha;
    gm_value *y = apply(w, GM_OP_affine, x, NULL, &attrs);
    gm_value_release(x);
    return y;
}

/* y of one part from h, which is taken. */
static gm_value *layer(world *w, int part, gm_value *h)
{
    gm_value *y = NULL;
    if (!h || !is_well(w, call_linear(w->r, h, w->w[part], w->b[part], GM_FN_sigmoid, &y))) y = NULL;
    gm_value_release(h);
    return y;
}

static int last_part(const world *w) { return w->c->s.stages * w->c->s.chunks - 1; }

/* v (taken) as it lies in another layout. */
static gm_value *laid(world *w, gm_value *v, gm_layout layout)
{
    gm_value *y = NULL;
    if (!v || !is_well(w, gm_redistribute(w->r, v, &layout, &y))) y = NULL;
    gm_value_release(v);
    return y;
}

static gm_layout tensor_layout(const world *w, bool cut)
{
    uint32_t  tensor = gm_mesh_mask(&w->c->mesh, "tensor");
    gm_layout partial = {.partial = tensor};
    return cut ? gm_layout_cut(0, tensor) : partial;
}

/* sum(h skip); takes both. */
static gm_value *last_loss(world *w, gm_value *h, gm_value *skip)
{
    if (w->c->lie == PARTIAL) skip = laid(w, skip, gm_layout_replicated());
    if (w->c->lie == TERMS) h = laid(w, h, tensor_layout(w, false));
    gm_value *p = binary(w, GM_FN_mul, h, skip), *loss = sum(w, p);
    gm_value_release(p);
    gm_value_release(h);
    gm_value_release(skip);
    return loss;
}

static gm_value *also(gm_value *v)
{
    if (v) gm_value_retain(v);
    return v;
}

/* out[3] of a part but the last from in[3] (NULL: part 0); *loss where it has one. */
static void run_part(world *w, int part, int m, gm_value *const *in, gm_value **out, gm_value **loss)
{
    int64_t   shape[2] = {rows_of(w, m), w->c->width};
    gm_value *h = part ? also(in[0]) : value_of(w->r, 7 + (uint64_t)m, 2, shape);
    h = layer(w, part, laid(w, h, gm_layout_replicated()));
    gm_value *skip = also(part && !(w->c->ignores && part == last_part(w)) ? in[1] : h);
    *loss = NULL;
    if (part == last_part(w)) {
        *loss = last_loss(w, h, skip);
        return;
    }
    if (part == 1) *loss = times(w, sum(w, h), 0.01);
    if (!part && w->c->lie == PARTIAL) skip = laid(w, skip, tensor_layout(w, false));
    out[0] = w->c->lie == CUT ? laid(w, h, tensor_layout(w, true)) : h;
    out[1] = skip;
    out[2] = part ? also(in[2]) : ids_of(w, m);
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
                gm_value *both = binary(w, GM_FN_add, loss, total);
                gm_value_release(loss);
                gm_value_release(total);
                total = both;
            } else if (loss) total = loss;
        }
        OK(gm_tape_backward(total, NULL, false));
        gm_value_release(total);
    }
}

/* ---- in parts ---- */

/* What a part says to the next one. */
static char *text_of(const world *w, int part)
{
    int   length = w->c->text > 32 ? w->c->text : 32;
    char *text = malloc((size_t)length + 1);
    assert_true(text != NULL);
    int n = snprintf(text, (size_t)length, "from part %d", part);
    for (; n < w->c->text; n++) text[n] = (char)('a' + n % 26);
    text[n] = 0;
    return text;
}

static void check_inputs(world *w, const gm_stage_call *call, int part)
{
    assert_int_equal(call->n, part ? 3 : 0);
    if (!part) {
        assert_true(!*call->text);
        return;
    }
    char *want = text_of(w, part - 1);
    assert_true(!strcmp(call->text, want));
    free(want);
    const int64_t *ids = gm_tensor_data(call->in[2]->local);
    for (int64_t i = 0; ids && i < rows_of(w, call->micro_batch); i++)
        assert_int_equal(ids[i], 100 * call->micro_batch + i);
    bool wanted = !w->c->forward_only && !(w->c->frozen && part == 1);
    for (int i = 0; i < 2; i++) assert_int_equal(call->in[i]->requires_grad, i && w->c->frozen ? false : wanted);
    assert_int_equal(call->in[2]->requires_grad, false);
}

static int stage_of(const world *w) { return w->r->coordinate[0]; }

/* Waits until a stage has run n forward passes since the first step began. */
static void await_passes(world *w, int stage, int n)
{
    for (int i = 0; i < 30000 && w->c->ran[stage] < n; i++) usleep(100);
    assert_true(w->c->ran[stage] >= n);
}

static gm_status be_unwell(world *w, int part)
{
    if (w->c->late) {
        await_passes(w, 1, 1);
        usleep(20000);
    }
    return GM_FAIL(GM_ELUA, "part %d is not well", part);
}

static gm_status forward(void *context, const gm_stage_call *call, gm_stage_result *result)
{
    world *w = context;
    chain *c = w->c;
    int    part = c->s.parts[stage_of(w)][call->chunk];
    if (c->delay) usleep((useconds_t)unit_below(&w->random, c->delay));
    if (c->meet && stage_of(w) == 1) await_passes(w, 0, c->s.micro * (w->step + 1));
    if (part == c->bad_part && w->step == c->bad_step && call->micro_batch == c->bad_micro) return be_unwell(w, part);
    check_inputs(w, call, part);
    w->st = GM_OK;
    run_part(w, part, call->micro_batch, call->in, result->out, &result->loss);
    if (part < last_part(w)) result->n = 3;
    c->ran[stage_of(w)]++;
    if (w->st != GM_OK || part == last_part(w)) return w->st;
    result->text = text_of(w, part);
    if (part || w->step != c->twist) return GM_OK;
    gm_value_release(result->out[2]);
    result->out[2] = value_of(w->r, 1, SHAPE(1, 2));
    return GM_OK;
}

/* What a part gives on meta: all parts up to it run. */
static gm_status describe(void *context, int micro_batch, int part, gm_stage_result *result)
{
    world    *w = context;
    gm_value *in[3] = {NULL}, *loss = NULL;
    for (int p = 0; p <= part; p++) {
        run_part(w, p, micro_batch, in, result->out, &loss);
        gm_value_release(loss);
        for (int i = 0; i < 3; i++) {
            gm_value_release(in[i]);
            in[i] = result->out[i];
        }
    }
    result->n = 3;
    result->text = text_of(w, part);
    return GM_OK;
}

/* ---- a job ---- */

static gm_value *settled(const gm_value *v)
{
    gm_value *terms = NULL, *whole = NULL;
    gm_layout layout = {.partial = v->param->grad_partial};
    gm_tensor_retain(v->param->grad);
    OK(gm_value_take_block(v->rank, v->param->grad, &layout, v->ndim, v->shape, &terms));
    OK(gm_settle(v->rank, terms, &whole));
    gm_value_release(terms);
    return whole;
}

static void near(const gm_value *v, const double *want)
{
    double largest = 0, worst = 0;
    assert_true(v->param->grad_set);
    gm_value     *g = settled(v);
    const double *got = gm_tensor_data(g->local);
    for (int64_t i = 0, n = gm_tensor_numel(g->local); i < n; i++) {
        largest = fmax(largest, fabs(want[i]));
        worst = fmax(worst, fabs(got[i] - want[i]));
    }
    if (!(largest > 0 && worst <= 1e-13 * largest)) fail_msg("a gradient is off by %g of %g", worst, largest);
    gm_value_release(g);
}

/* The gradient of v, which forgets it. NULL: it has none. */
static double *take_gradient(gm_value *v)
{
    int64_t n = gm_tensor_numel(v->local);
    double *copy = calloc((size_t)n, sizeof *copy);
    assert_true(copy != NULL);
    if (gm_value_grad(v)) {
        gm_value *g = settled(v);
        memcpy(copy, gm_tensor_data(g->local), (size_t)n * sizeof *copy);
        gm_value_release(g);
    }
    gm_value_zero_grad(v);
    return copy;
}

static void compare(world *w, double *const *want)
{
    for (int p = 0; p <= last_part(w); p++) {
        int  stage, chunk;
        bool mine = find_part(&w->c->s, p, &stage, &chunk) && stage == stage_of(w);
        if (!mine || w->c->forward_only || (w->c->frozen && !p)) {
            assert_true(!gm_value_grad(w->w[p]) && !gm_value_grad(w->b[p]));
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
    w->c->bytes[at] = w->c->messages[at] = w->c->gathers[at] = w->c->shared[at] = 0;
    for (int i = 0; i < n; i++) {
        if (!strcmp(entries[i].group, "pipeline") && !strcmp(entries[i].op, "send")) {
            w->c->bytes[at] += entries[i].bytes;
            w->c->messages[at] += entries[i].calls;
        }
        if (strcmp(entries[i].group, "tensor")) continue;
        w->c->gathers[at] += entries[i].calls;
        w->c->shared[at] += entries[i].bytes;
    }
    w->c->peak[at] = gm_executor_peak(e);
    n = gm_executor_events(e, &events);
    memcpy(w->c->event[at], events, (size_t)n * sizeof *events);
}

/* The list of a stage, or its forward passes alone. */
static list list_of(const world *w)
{
    list        forwards = {0};
    const list *l = &w->c->s.of[stage_of(w)];
    if (!w->c->forward_only) return *l;
    for (int i = 0; i < l->n; i++) {
        const gm_action *a = &l->action[i];
        if (!a->gradient && (a->kind == GM_ACTION_FORWARD || a->kind >= GM_ACTION_SEND))
            forwards.action[forwards.n++] = *a;
    }
    return forwards;
}

static gm_status one_step(world *w, gm_executor *e)
{
    chain      *c = w->c;
    char        words[MICRO][32];
    const char *signatures[MICRO];
    for (int m = 0; m < c->s.micro; m++) {
        snprintf(words[m], sizeof words[m], "%d rows, %d", (int)rows_of(w, m), c->fresh ? w->step * MICRO + m : 0);
        signatures[m] = words[m];
    }
    gm_stage         callbacks = {forward, describe, w};
    list             l = list_of(w);
    gm_executor_step step = {.actions = l.action,
                             .n_actions = l.n,
                             .micro_batches = c->s.micro,
                             .chunks = c->s.chunks,
                             .parts = c->s.parts[stage_of(w)],
                             .n_parts = c->s.stages * c->s.chunks,
                             .signatures = c->unsigned_ ? NULL : signatures,
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
    char   text[64];
    find_part(&c->s, bad, &stage, &chunk);
    if (stage != stage_of(w)) {
        assert_true(st == GM_OK || st == GM_EPEER);
    } else if (w->step == c->bad_step) {
        snprintf(text, sizeof text, "part %d is not well", bad);
        FAILS(GM_ELUA, text, st);
    } else {
        FAILS(GM_EINVAL, "stage 0", st);
        FAILS(GM_EINVAL, "send of the activation of micro-batch 1, chunk 1", st);
        FAILS(GM_EINVAL, "f64 (1, 2)", st);
        FAILS(GM_EINVAL, "i64 (3)", st);
        FAILS(GM_EINVAL, "variable_shapes = true", st);
    }
    OK(gm_comm_section_end(w->r->comm, stage != stage_of(w), "a bad step", &failed, &first));
    assert_int_equal(failed, 1);
}

static world make_world(gm_rank *r, chain *c)
{
    world   w = {.c = c, .r = r, .random = {(uint64_t)r->rank * 977 + 1}};
    int64_t square[2] = {c->width, c->width};
    for (int p = 0; p <= last_part(&w); p++) {
        w.w[p] = value_of(r, 1000 + (uint64_t)p, 2, square);
        w.b[p] = value_of(r, 2000 + (uint64_t)p, 1, square);
        OK(gm_value_require_grad(w.w[p], !c->frozen || p));
        OK(gm_value_require_grad(w.b[p], !c->frozen || p));
    }
    return w;
}

static void free_world(world *w)
{
    for (int p = 0; p <= last_part(w); p++) {
        gm_value_release(w->w[p]);
        gm_value_release(w->b[p]);
    }
}

static void checked_step(world *w, gm_executor *e)
{
    double *want[2 * PARTS];
    int     n = 2 * (last_part(w) + 1);
    serial(w);
    for (int i = 0; i < n; i++) want[i] = take_gradient(i % 2 ? w->b[i / 2] : w->w[i / 2]);
    gm_comm_reset_traffic(w->r->comm);
    gm_status st = one_step(w, e);
    if (w->step == w->c->steps - 1) count_traffic(w, e);
    if (w->step == w->c->bad_step || w->step == w->c->twist) expect_failure(w, st);
    else {
        int failed = 0, first = 0;
        OK(st);
        compare(w, want);
        /* Without it a rank that is still in this step would hear of the failure of the next. */
        OK(gm_comm_section_end(w->r->comm, true, NULL, &failed, &first));
        assert_int_equal(failed, 0);
    }
    assert_int_equal(gm_comm_under_way(w->r->comm), 0);
    assert_int_equal(w->r->no_grad, 0);
    assert_int_equal(gm_tape_nodes(w->r), 0);
    assert_true(!*w->r->path);
    for (int i = 0; i < n; i++) {
        gm_value_zero_grad(i % 2 ? w->b[i / 2] : w->w[i / 2]);
        free(want[i]);
    }
}

static void body(gm_rank *r, void *context)
{
    chain              *c = context;
    gm_executor        *e = NULL;
    gm_executor_options options = {c->scatter, c->variable_shapes};
    world               w = make_world(r, c);
    OK(gm_executor_new(r, &options, &e));
    for (w.step = 0; w.step < c->steps; w.step++) checked_step(&w, e);
    gm_executor_free(e);
    free_world(&w);
    assert_int_equal(gm_pool_stats(r->device->pool).live, 0);
}

void run_chain(chain *c) { run_ranks(&c->mesh, body, c); }

static void pretend(chain *c, int rank)
{
    gm_rank            *r = NULL;
    gm_executor        *e = NULL;
    gm_executor_options options = {c->scatter, c->variable_shapes};
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, rank, gm_mesh_size(&c->mesh)));
    OK(gm_rank_set_mesh(r, &c->mesh));
    OK(gm_rank_open_device(r, "meta", 1));
    world w = make_world(r, c);
    OK(gm_executor_new(r, &options, &e));
    for (w.step = 0; w.step < c->steps; w.step++) {
        gm_comm_reset_traffic(r->comm);
        OK(one_step(&w, e));
        count_traffic(&w, e);
    }
    gm_executor_free(e);
    free_world(&w);
    gm_rank_free(r);
}

void pretend_chain(chain *c)
{
    for (int rank = 0; rank < gm_mesh_size(&c->mesh); rank++) pretend(c, rank);
}
