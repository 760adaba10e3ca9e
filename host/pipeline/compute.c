/* compute.c - runs the forward pass of a micro-batch through a chunk and its backward pass, whole or in two halves:
 * collects inputs, runs the pass, and hands outputs on. */
#include <stdlib.h>
#include <string.h>

#include "../../kernels/clock.h"
#include "flow.h"

static const gm_action *action_at(const gm_executor *e, int at) { return &e->step->actions[at]; }

static void enter_phase(gm_executor *e, gm_phase phase)
{
    if (e->rank->comm && !e->step->forward_only) gm_comm_set_phase(e->rank->comm, phase);
}

/* What an action reads is there. */
static void begin(gm_executor *e, int at, double asked)
{
    e->events[at].begin = gm_now();
    e->events[at].waited = e->events[at].begin - asked;
}

static gm_status out_of_order(const char *what)
{
    return GM_FAIL(GM_EINVAL, "%s: the list is no schedule (ganymede.schedules.check says where)", what);
}

/* ---- forward ---- */

static gm_status take_inputs(gm_executor *e, gm_passage *passage, int part)
{
    if (!part) return GM_OK;
    if (gm_flow_chunk_of(e, part - 1) >= 0) /* handed over on this rank */
        return passage->n_in ? GM_OK : out_of_order("what it reads is not made yet");
    if (passage->receive[0] < 0) return out_of_order("no action receives what it reads");
    return gm_flow_take(e, passage->receive[0], &passage->n_in, passage->in, &passage->text_in);
}

/* The gradient of a border's output is that of what it shows. */
static void pass_on(gm_backward *b) { gm_backward_give(b, 0, gm_backward_grad(b, 0)); }

/* *v becomes a value of its own on the tape. */
static gm_status alias(gm_rank *r, gm_value **v)
{
    gm_value *copy = NULL, *y = NULL;
    GM_TRY(gm_value_detach(*v, &copy));
    GM_TRY(gm_tape_record_one(r, "border", pass_on, *v, copy, NULL, 0, &y));
    gm_value_release(*v);
    *v = y;
    return GM_OK;
}

/* A root stands for its value after that is gone, which no leaf can do: a part may give its input, or a parameter. */
static gm_status make_roots(gm_rank *r, gm_stage_result *result)
{
    for (int i = 0; i <= result->n; i++) {
        gm_value **v = i < result->n ? &result->out[i] : &result->loss;
        if (!*v || !(*v)->requires_grad) continue;
        if ((*v)->node && !gm_tape_has(r, *v))
            return GM_FAIL(GM_EINVAL, "result %d was computed on a tape that has been run or dropped; detach() it",
                           i + 1);
        if (!(*v)->node) GM_TRY(alias(r, v));
    }
    return GM_OK;
}

static gm_status check_loss(const gm_value *loss)
{
    char have[256];
    if (!loss) return GM_OK;
    for (int d = 0; d < loss->ndim; d++)
        if (loss->shape[d] != 1)
            return GM_FAIL(GM_ESHAPE, "its loss is %s; a loss has one element, sum() it",
                           gm_value_describe(loss, have, sizeof have));
    return GM_OK;
}

static void add_root(gm_passage *passage, const gm_value *v)
{
    gm_root *root = &passage->root[passage->n_roots++];
    root->header = *v->local;
    root->header.refs = 1;
    root->header.storage = NULL;
    root->like = *v;
    root->like.refs = 1;
    root->like.local = &root->header;
    root->like.param = NULL;
}

static gm_status keep_roots(gm_passage *passage, const gm_stage_result *result)
{
    passage->root = malloc((size_t)(result->n + 1) * sizeof *passage->root);
    if (!passage->root) return GM_FAIL(GM_ENOMEM, "no memory for the outputs of a part");
    for (int i = 0; i < result->n; i++)
        if (result->out[i]->requires_grad) add_root(passage, result->out[i]);
    passage->has_loss = result->loss && result->loss->requires_grad;
    if (passage->has_loss) add_root(passage, result->loss);
    return GM_OK;
}

/* To the next part on this rank: leaves of its tape. */
static gm_status hand_over(gm_executor *e, gm_passage *to, gm_stage_result *result)
{
    to->text_in = strdup(result->text ? result->text : "");
    if (!to->text_in) return GM_FAIL(GM_ENOMEM, "no memory for a text between two parts");
    for (; to->n_in < result->n; to->n_in++) {
        gm_value *v = result->out[to->n_in];
        GM_TRY(gm_value_detach(v, &to->in[to->n_in]));
        GM_TRY(gm_value_require_grad(to->in[to->n_in], v->requires_grad && !e->step->forward_only));
    }
    return GM_OK;
}

/* Where the outputs go: to nobody, to a chunk of this rank, or to the send that follows. */
static gm_status deliver(gm_executor *e, gm_passage *passage, const gm_action *a, gm_stage_result *result)
{
    int part = e->step->parts[a->chunk];
    if (part == e->step->n_parts - 1) return GM_OK;
    if (!result->n)
        return GM_FAIL(GM_EINVAL, "part %d gives nothing to the part behind it; its forward returns at least a tensor",
                       part + 1);
    int next = gm_flow_chunk_of(e, part + 1);
    if (next >= 0) return hand_over(e, gm_flow_passage(e, a->micro_batch, next), result);
    for (; passage->n_out < result->n; passage->n_out++) {
        passage->out[passage->n_out] = result->out[passage->n_out];
        result->out[passage->n_out] = NULL;
    }
    passage->text_out = result->text;
    result->text = NULL;
    return GM_OK;
}

static gm_status keep_result(gm_executor *e, gm_passage *passage, const gm_action *a, gm_stage_result *result)
{
    GM_TRY(check_loss(result->loss));
    if (e->step->parts[a->chunk] == e->step->n_parts - 1) { /* nobody reads the last outputs */
        for (int i = 0; i < result->n; i++) gm_value_release(result->out[i]);
        result->n = 0;
    }
    if (!e->step->forward_only) {
        GM_TRY(make_roots(e->rank, result));
        GM_TRY(keep_roots(passage, result));
        passage->tape = gm_tape_take(e->rank);
    }
    return deliver(e, passage, a, result);
}

gm_status gm_flow_forward(gm_executor *e, int at)
{
    const gm_action *a = action_at(e, at);
    const gm_stage  *stage = e->step->stage;
    gm_passage      *passage = gm_flow_passage(e, a->micro_batch, a->chunk);
    gm_stage_result  result = {0};
    double           asked = gm_now();
    if (passage->ran) return out_of_order("it was done before");
    GM_TRY(take_inputs(e, passage, e->step->parts[a->chunk]));
    gm_flow_hold(e, passage);
    gm_stage_call call = {a->micro_batch, a->chunk, passage->n_in, passage->in,
                          passage->text_in ? passage->text_in : ""};
    enter_phase(e, GM_PHASE_FORWARD);
    begin(e, at, asked);
    if (e->step->forward_only) e->rank->no_grad++;
    gm_status st = stage->forward(stage->context, &call, &result);
    if (e->step->forward_only) e->rank->no_grad--;
    if (st == GM_OK) st = keep_result(e, passage, a, &result);
    gm_result_release(&result);
    e->events[at].end = gm_now();
    passage->ran = true;
    if (e->step->forward_only && st == GM_OK) gm_flow_let_go(e, passage);
    return st;
}

/* ---- backward ---- */

/* Gradients of the outputs that require one: from another rank, or handed over. */
static gm_status take_seeds(gm_executor *e, gm_passage *passage, int part)
{
    if (part == e->step->n_parts - 1) return GM_OK;
    if (gm_flow_chunk_of(e, part + 1) >= 0) return GM_OK; /* checked by their number, in seeds_for */
    if (passage->receive[1] < 0) return out_of_order("no action receives what it reads");
    return gm_flow_take(e, passage->receive[1], &passage->n_seeds, passage->seed, NULL);
}

/* The gradient of an input, which leaves it; zeros where nothing flowed into it. */
static gm_status gradient_of(gm_rank *r, gm_value *in, gm_value **out)
{
    gm_layout layout = in->layout;
    layout.partial = gm_value_grad(in) ? in->param->grad_partial : 0;
    if (gm_value_grad(in)) {
        gm_tensor *g = in->param->grad;
        in->param->grad = NULL;
        in->param->grad_set = false;
        return gm_value_take_block(r, g, &layout, in->ndim, in->shape, out);
    }
    GM_TRY(gm_value_new_block(r, "gradient", in->local->dtype, &layout, in->ndim, in->shape, out));
    gm_status st = gm_run_one(r->device, GM_OP_fill, NULL, NULL, (*out)->local);
    if (st == GM_OK) return GM_OK;
    gm_value_release(*out);
    *out = NULL;
    return st;
}

/* Gradients of the inputs go to the part before: handed over, or kept for the send that follows. */
static gm_status give_back(gm_executor *e, gm_passage *passage, const gm_action *a)
{
    int         before = gm_flow_chunk_of(e, e->step->parts[a->chunk] - 1);
    gm_passage *to = before >= 0 ? gm_flow_passage(e, a->micro_batch, before) : NULL;
    for (int i = 0; i < passage->n_in; i++) {
        if (!passage->in[i]->requires_grad) continue;
        gm_value *g = NULL;
        GM_TRY(gradient_of(e->rank, passage->in[i], &g));
        if (to) to->seed[to->n_seeds++] = g;
        else passage->gradient[passage->n_gradients++] = g;
    }
    for (int i = 0; i < passage->n_in; i++) gm_value_release(passage->in[i]);
    passage->n_in = 0;
    return GM_OK;
}

/* The pass B, or B and W in one. */
static gm_status run_input_pass(gm_executor *e, gm_passage *passage, gm_tape_pass pass, bool final)
{
    gm_value   *outputs[GM_BORDER_MAX + 1], *seeds[GM_BORDER_MAX + 1], *inputs[GM_BORDER_MAX];
    gm_tape_job job = {
        .pass = pass, .final = final, .outputs = outputs, .seeds = seeds, .losses = true, .inputs = inputs};
    int borders = passage->n_roots - passage->has_loss; /* the loss has no seed */
    if (borders != passage->n_seeds) return out_of_order("the gradients that it reads are not made yet");
    for (; job.n < passage->n_roots; job.n++) {
        outputs[job.n] = &passage->root[job.n].like;
        seeds[job.n] = job.n < borders ? passage->seed[job.n] : NULL;
    }
    for (int i = 0; i < passage->n_in; i++)
        if (passage->in[i]->requires_grad) inputs[job.n_inputs++] = passage->in[i];
    gm_status st = passage->tape ? gm_tape_run(e->rank, passage->tape, &job) : GM_OK;
    for (int i = 0; i < passage->n_seeds; i++) gm_value_release(passage->seed[i]);
    passage->n_seeds = passage->n_roots = 0;
    free(passage->root);
    passage->root = NULL;
    return st;
}

static gm_status run_weight_pass(gm_executor *e, gm_passage *passage, bool final)
{
    gm_tape_job job = {.pass = GM_TAPE_WEIGHT, .final = final};
    return passage->tape ? gm_tape_run(e->rank, passage->tape, &job) : GM_OK;
}

/* Says which tapes the gradients of a step wait for, before the first of their last passes runs. All of them exist
 * then: take the chunk whose last pass comes first in the list. What lies before its part in the model ran forward
 * before that part did; what lies behind has gone backward before it, and of that a weight pass may be left, whose
 * tape is kept. */
static gm_status await_last_passes(gm_executor *e)
{
    if (!e->step->final || e->awaited) return GM_OK;
    for (int c = 0; c < e->step->chunks; c++) {
        if (e->last[c] < 0) continue;
        gm_passage *passage = gm_flow_passage(e, action_at(e, e->last[c])->micro_batch, c);
        if (!passage->ran) return out_of_order("a forward pass comes after the last backward pass of a later part");
        GM_TRY(gm_tape_await(e->rank, passage->tape));
    }
    e->awaited = true;
    return GM_OK;
}

gm_status gm_flow_backward(gm_executor *e, int at)
{
    const gm_action *a = action_at(e, at);
    gm_passage      *passage = gm_flow_passage(e, a->micro_batch, a->chunk);
    bool             weight = a->kind == GM_ACTION_BACKWARD_WEIGHT, last = e->last[a->chunk] == at;
    bool             final = e->step->final && last;
    gm_tape_pass     pass = a->kind == GM_ACTION_BACKWARD ? GM_TAPE_WHOLE : GM_TAPE_INPUT;
    double           asked = gm_now();
    if (!passage->ran) return out_of_order("it comes before its forward pass");
    if (passage->went_back != weight || !passage->held) return out_of_order("it was done before, or comes too early");
    if (!weight) GM_TRY(take_seeds(e, passage, e->step->parts[a->chunk]));
    if (last) GM_TRY(await_last_passes(e));
    enter_phase(e, GM_PHASE_BACKWARD);
    begin(e, at, asked);
    if (weight) GM_TRY(run_weight_pass(e, passage, final));
    else GM_TRY(run_input_pass(e, passage, pass, final));
    if (!weight) GM_TRY(give_back(e, passage, a));
    passage->went_back = true;
    if (a->kind != GM_ACTION_BACKWARD_INPUT) gm_flow_let_go(e, passage);
    e->events[at].end = gm_now();
    return GM_OK;
}
