/* executor.c - the walk along a list of actions; see executor.h. What they do is in compute.c and transfer.c. */
#include "executor.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "flow.h"

static const char *const kind_names[] = {"forward", "backward", "backward_input", "backward_weight", "send", "receive"};

const char *gm_action_name(gm_action_kind kind) { return kind_names[kind]; }

gm_status gm_executor_new(gm_rank *r, const gm_executor_options *o, gm_executor **out)
{
    uint32_t mine = gm_mesh_mask(&r->mesh, "pipeline") | gm_mesh_batch_axes(&r->mesh);
    char     text[128];
    if (o->scatter >> r->mesh.n_axes || o->scatter & mine)
        return GM_FAIL(GM_EINVAL, "a pipeline shares the sending over tensor axes, not over %s",
                       gm_mesh_describe(&r->mesh, o->scatter & mine, text, sizeof text));
    gm_executor *e = calloc(1, sizeof *e);
    if (e) e->agreed = gm_agreed_new();
    if (!e || !e->agreed) {
        free(e);
        return GM_FAIL(GM_ENOMEM, "no memory for an executor");
    }
    e->rank = r;
    e->options = *o;
    *out = e;
    return GM_OK;
}

void gm_executor_free(gm_executor *e)
{
    if (!e) return;
    for (gm_parcel *p = e->spare, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    gm_agreed_free(e->agreed);
    free(e->passages);
    free(e->plan);
    free(e->events);
    free(e->next_of_peer);
    free(e->last);
    free(e->path);
    free(e);
}

int gm_executor_events(const gm_executor *e, const gm_executor_event **events)
{
    *events = e->events;
    return e->n_events;
}

int gm_executor_peak(const gm_executor *e) { return e->peak; }

/* ---- passages and parcels ---- */

gm_passage *gm_flow_passage(gm_executor *e, int micro_batch, int chunk)
{
    return &e->passages[micro_batch * e->step->chunks + chunk];
}

int gm_flow_chunk_of(const gm_executor *e, int part)
{
    for (int c = 0; c < e->step->chunks; c++)
        if (e->step->parts[c] == part) return c;
    return -1;
}

gm_parcel *gm_flow_parcel(gm_executor *e, int peer, int action)
{
    gm_parcel *p = e->spare;
    if (p) e->spare = p->next;
    else p = malloc(sizeof *p);
    if (p) *p = (gm_parcel){.peer = peer, .action = action};
    return p;
}

void gm_flow_spare(gm_executor *e, gm_parcel *p)
{
    gm_parcel_clear(&e->route, p);
    p->next = e->spare;
    e->spare = p;
}

void gm_flow_hold(gm_executor *e, gm_passage *passage)
{
    passage->held = true;
    if (++e->held > e->peak) e->peak = e->held;
}

static void release_values(gm_value **v, int *n)
{
    for (int i = 0; i < *n; i++) {
        gm_value_release(v[i]);
        v[i] = NULL;
    }
    *n = 0;
}

void gm_flow_let_go(gm_executor *e, gm_passage *passage)
{
    release_values(passage->in, &passage->n_in);
    gm_tape_free(passage->tape);
    passage->tape = NULL;
    e->held -= passage->held;
    passage->held = false;
}

static void clear_passage(gm_executor *e, gm_passage *passage)
{
    gm_flow_let_go(e, passage);
    release_values(passage->out, &passage->n_out);
    release_values(passage->seed, &passage->n_seeds);
    release_values(passage->gradient, &passage->n_gradients);
    free(passage->text_in);
    free(passage->text_out);
    free(passage->root);
    gm_form_release(passage->back);
    memset(passage, 0, sizeof *passage);
}

void gm_result_release(gm_stage_result *result)
{
    release_values(result->out, &result->n);
    gm_value_release(result->loss);
    free(result->text);
    *result = (gm_stage_result){0};
}

gm_status gm_flow_enter(gm_executor *e) { return gm_rank_set_path(e->rank, GM_PIPELINE_PATH); }
gm_status gm_flow_leave(gm_executor *e) { return gm_rank_set_path(e->rank, e->path); }

/* ---- before a step ---- */

static gm_status check_action(const gm_executor *e, const gm_executor_step *s, const gm_action *a)
{
    bool is_transfer = a->kind == GM_ACTION_SEND || a->kind == GM_ACTION_RECEIVE;
    if (a->kind < 0 || a->kind >= GM_ACTION_KINDS) return GM_FAIL(GM_EINVAL, "there is no such action");
    if (a->micro_batch < 0 || a->micro_batch >= s->micro_batches || a->chunk < 0 || a->chunk >= s->chunks)
        return GM_FAIL(GM_EINVAL, "%s of micro-batch %d, chunk %d: there are %d and %d", kind_names[a->kind],
                       a->micro_batch + 1, a->chunk + 1, s->micro_batches, s->chunks);
    if (s->forward_only && (a->gradient || (!is_transfer && a->kind != GM_ACTION_FORWARD)))
        return GM_FAIL(GM_EINVAL, "%s of micro-batch %d: this step is forward only", kind_names[a->kind],
                       a->micro_batch + 1);
    if (!is_transfer) return GM_OK;
    if (!e->route.group) return GM_FAIL(GM_EINVAL, "a list with messages on a mesh without an axis pipeline");
    if (a->peer < 0 || a->peer >= gm_group_size(e->route.group) || a->peer == gm_group_rank(e->route.group))
        return GM_FAIL(GM_EINVAL, "stage %d exchanges nothing with %d of %d", gm_group_rank(e->route.group), a->peer,
                       gm_group_size(e->route.group));
    return GM_OK;
}

static gm_status check_step(const gm_executor *e, const gm_executor_step *s)
{
    if (s->micro_batches < 1 || s->chunks < 1 || s->n_parts < s->chunks)
        return GM_FAIL(GM_EINVAL, "a step of %d micro-batches and %d chunks of %d parts", s->micro_batches, s->chunks,
                       s->n_parts);
    for (int c = 0; c < s->chunks; c++)
        if (s->parts[c] < 0 || s->parts[c] >= s->n_parts)
            return GM_FAIL(GM_EINVAL, "chunk %d is part %d of %d", c + 1, s->parts[c] + 1, s->n_parts);
    for (int i = 0; i < s->n_actions; i++) GM_TRY(check_action(e, s, &s->actions[i]));
    return GM_OK;
}

/* Grows *array to `room` elements of `size` bytes, zeroed. */
static gm_status grow(void *array, int *room, int wanted, size_t size)
{
    void **p = array;
    if (wanted <= *room) return GM_OK;
    void *more = calloc((size_t)wanted, size);
    if (!more) return GM_FAIL(GM_ENOMEM, "no memory for a step of %d actions", wanted);
    free(*p);
    *p = more;
    *room = wanted;
    return GM_OK;
}

static gm_status make_room(gm_executor *e)
{
    const gm_executor_step *s = e->step;
    int                     peers = e->route.group ? gm_group_size(e->route.group) : 0, room = e->action_room;
    GM_TRY(grow(&e->passages, &e->passage_room, s->micro_batches * s->chunks, sizeof *e->passages));
    GM_TRY(grow(&e->plan, &room, s->n_actions, sizeof *e->plan));
    GM_TRY(grow(&e->events, &e->action_room, s->n_actions, sizeof *e->events));
    GM_TRY(grow(&e->next_of_peer, &e->peer_room, peers, sizeof *e->next_of_peer));
    return grow(&e->last, &e->chunk_room, s->chunks, sizeof *e->last);
}

/* Receives from each peer in a row, the last pass of each chunk, which receive each passage reads. */
static void read_list(gm_executor *e)
{
    const gm_executor_step *s = e->step;
    int                     peers = e->route.group ? gm_group_size(e->route.group) : 0;
    for (int i = 0; i < s->micro_batches * s->chunks; i++) e->passages[i].receive[0] = e->passages[i].receive[1] = -1;
    for (int c = 0; c < s->chunks; c++) e->last[c] = -1;
    for (int p = 0; p < peers; p++) e->next_of_peer[p] = -1;
    for (int i = s->n_actions - 1; i >= 0; i--) {
        const gm_action *a = &s->actions[i];
        e->plan[i] = (gm_plan){.next_receive = -1};
        e->events[i] = (gm_executor_event){.action = *a};
        if (a->kind == GM_ACTION_RECEIVE) {
            e->plan[i].next_receive = e->next_of_peer[a->peer];
            e->next_of_peer[a->peer] = i;
            gm_flow_passage(e, a->micro_batch, a->chunk)->receive[a->gradient] = i;
        } else if ((a->kind == GM_ACTION_BACKWARD || a->kind == GM_ACTION_BACKWARD_WEIGHT) && e->last[a->chunk] < 0)
            e->last[a->chunk] = i;
    }
}

static gm_status find_route(gm_executor *e)
{
    gm_rank *r = e->rank;
    e->route = (gm_route){.rank = r, .scatter = e->options.scatter};
    uint32_t axis = gm_mesh_mask(&r->mesh, "pipeline");
    if (!axis) return GM_OK;
    GM_TRY(gm_rank_comm(r, &e->route.comm));
    GM_TRY(gm_comm_group(e->route.comm, axis, &e->route.group));
    if (e->epoch != gm_comm_epoch(e->route.comm)) gm_agreed_forget(e->agreed); /* the others may have failed before */
    e->epoch = gm_comm_epoch(e->route.comm);
    return GM_OK;
}

static gm_status prepare(gm_executor *e, const gm_executor_step *step)
{
    gm_device *dev;
    e->n_events = e->peak = e->held = 0;
    e->ahead = e->oldest = 0;
    e->awaited = false;
    GM_TRY(gm_rank_device(e->rank, &dev));
    GM_TRY(find_route(e));
    GM_TRY(check_step(e, step));
    free(e->path);
    e->path = strdup(e->rank->path);
    if (!e->path) return GM_FAIL(GM_ENOMEM, "no memory for a module path");
    e->step = step;
    gm_status st = make_room(e);
    if (st != GM_OK) {
        e->step = NULL;
        return st;
    }
    e->n_events = step->n_actions;
    read_list(e);
    return GM_OK;
}

/* ---- a step ---- */

static bool computes(const gm_action *a) { return a->kind <= GM_ACTION_BACKWARD_WEIGHT; }

/* Receives are posted up to the second computing action after this one. */
static void look_ahead(gm_executor *e, int at)
{
    int seen = 0, i = at + 1;
    for (; i < e->step->n_actions; i++)
        if (computes(&e->step->actions[i]) && ++seen == 2) break;
    e->ahead = i;
}

static gm_status act(gm_executor *e, int at)
{
    look_ahead(e, at);
    GM_TRY(gm_flow_settle(e, false));
    GM_TRY(gm_flow_post(e, at));
    switch (e->step->actions[at].kind) {
    case GM_ACTION_FORWARD: return gm_flow_forward(e, at);
    case GM_ACTION_BACKWARD:
    case GM_ACTION_BACKWARD_INPUT:
    case GM_ACTION_BACKWARD_WEIGHT: return gm_flow_backward(e, at);
    case GM_ACTION_SEND: return gm_flow_send(e, at);
    default: return GM_OK; /* receives are posted by themselves */
    }
}

/* Says where; what another rank or Lua has said already stays as it is. */
static gm_status placed(const gm_executor *e, int at, gm_status st)
{
    const gm_action *a = &e->step->actions[at];
    if (st == GM_OK || st == GM_ELUA || st == GM_EPEER || st == GM_EINTERRUPT || st == GM_EHANG) return st;
    return gm_comm_once(GM_FAIL(st, "pipeline stage %d, action %d, %s%s of micro-batch %d, chunk %d: %s",
                                e->route.group ? gm_group_rank(e->route.group) : 0, at + 1, kind_names[a->kind],
                                computes(a)   ? ""
                                : a->gradient ? " of the gradient"
                                              : " of the activation",
                                a->micro_batch + 1, a->chunk + 1, gm_last_error()));
}

static gm_status walk(gm_executor *e)
{
    gm_status st = GM_OK;
    for (int i = 0; i < e->step->n_actions && st == GM_OK; i++) st = placed(e, i, act(e, i));
    return st == GM_OK ? gm_flow_settle(e, true) : st;
}

/* Nothing is left of the step, whether it went well or not. */
static void finish(gm_executor *e)
{
    for (gm_parcel *p = e->sends, *next; p; p = next) {
        next = p->next;
        gm_flow_spare(e, p);
    }
    e->sends = NULL;
    for (int i = 0; i < e->step->n_actions; i++) {
        if (e->plan[i].parcel) gm_flow_spare(e, e->plan[i].parcel);
        e->plan[i].parcel = NULL;
    }
    for (int i = 0; i < e->step->micro_batches * e->step->chunks; i++) clear_passage(e, &e->passages[i]);
    e->step = NULL;
}

gm_status gm_executor_run(gm_executor *e, const gm_executor_step *step)
{
    gm_rank *r = e->rank;
    if (e->step) return GM_FAIL(GM_EINVAL, "this executor is in the middle of a step");
    GM_TRY(prepare(e, step));
    gm_tape  *outside = gm_tape_set_aside(r);
    int       no_grad = r->no_grad;
    gm_phase  phase = r->comm ? gm_comm_get_phase(r->comm) : GM_PHASE_OTHER;
    gm_status st = walk(e);
    finish(e);
    gm_tape_restore(r, outside);
    r->no_grad = no_grad;
    if (r->comm) gm_comm_set_phase(r->comm, phase);
    gm_status back = gm_flow_leave(e);
    return st == GM_OK ? back : st;
}
