/* transfer.c - the sends and receives of a step: starts them, packs and unpacks their values, waits for them. */
#include <stdlib.h>
#include <string.h>

#include "../../kernels/clock.h"
#include "flow.h"

static const gm_action *action_at(const gm_executor *e, int at) { return &e->step->actions[at]; }

static const char *signature_of(const gm_executor *e, int micro_batch)
{
    const char *const *list = e->step->signatures;
    return list && !e->options.variable_shapes ? list[micro_batch] : NULL;
}

/* Activations belong to the forward pass, gradients to the backward pass; evaluation stays what it is. */
static void enter_phase(gm_executor *e, const gm_action *a)
{
    if (!e->step->forward_only) gm_comm_set_phase(e->route.comm, a->gradient ? GM_PHASE_BACKWARD : GM_PHASE_FORWARD);
}

/* ---- sending ---- */

/* A copy of a layout lies on its own stage: the pipeline axis says nothing about it. */
static gm_status check_layouts(const gm_executor *e, const gm_form *f)
{
    uint32_t pipeline = gm_mesh_mask(&e->rank->mesh, "pipeline");
    char     have[256];
    for (int i = 0; i < f->n; i++) {
        const gm_layout *l = &f->v[i].layout;
        if (!((gm_layout_cut_axes(l) | l->partial) & pipeline)) continue;
        return GM_FAIL(GM_EINVAL, "value %d that crosses to the next stage lies %s; the axis pipeline cannot cut it",
                       i + 1, gm_layout_describe(&e->rank->mesh, l, f->v[i].ndim, have, sizeof have));
    }
    return GM_OK;
}

/* Does a header have to go ahead of an activation? Not where this border knows it. */
static gm_status agree(gm_executor *e, const gm_action *a, gm_form *f, bool *header)
{
    int         border = e->step->parts[a->chunk];
    const char *signature = signature_of(e, a->micro_batch);
    bool        forward_only = e->step->forward_only;
    gm_form    *known = signature ? gm_agreed_find(e->agreed, border, forward_only, signature) : NULL;
    char        have[600], want[600];
    GM_TRY(check_layouts(e, f));
    *header = !known;
    if (known && !gm_form_equal(known, f))
        return GM_FAIL(GM_EINVAL,
                       "part %d gives %s; its border has agreed on %s for batches like this one. If shapes differ from "
                       "micro-batch to micro-batch, say so: variable_shapes = true",
                       border + 1, gm_form_describe(&e->rank->mesh, f, have, sizeof have),
                       gm_form_describe(&e->rank->mesh, known, want, sizeof want));
    return known || !signature ? GM_OK : gm_agreed_add(e->agreed, border, forward_only, signature, f);
}

static gm_status send_activation(gm_executor *e, gm_parcel *p, const gm_action *a, gm_passage *passage)
{
    gm_form *f = NULL;
    bool     header = false;
    GM_TRY(gm_form_new(passage->n_out, passage->out, passage->text_out, &f));
    gm_status st = agree(e, a, f, &header);
    if (st == GM_OK && !passage->back && !e->step->forward_only) st = gm_form_gradients(f, &passage->back);
    if (st == GM_OK) st = gm_parcel_send(&e->route, p, header ? f : NULL, passage->n_out, passage->out);
    gm_form_release(f);
    for (int i = 0; i < passage->n_out; i++) {
        gm_value_release(passage->out[i]);
        passage->out[i] = NULL;
    }
    passage->n_out = 0;
    return st;
}

static gm_status send_gradient(gm_executor *e, gm_parcel *p, gm_passage *passage)
{
    gm_status st = gm_parcel_send_sums(&e->route, p, passage->n_gradients, passage->gradient);
    for (int i = 0; i < passage->n_gradients; i++) {
        gm_value_release(passage->gradient[i]);
        passage->gradient[i] = NULL;
    }
    passage->n_gradients = 0;
    return st;
}

gm_status gm_flow_send(gm_executor *e, int at)
{
    const gm_action *a = action_at(e, at);
    gm_passage      *passage = gm_flow_passage(e, a->micro_batch, a->chunk);
    if (a->gradient ? !passage->went_back : !passage->ran)
        return GM_FAIL(GM_EINVAL, "what it carries is not made yet: the list is no schedule");
    gm_parcel *p = gm_flow_parcel(e, a->peer, at);
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for a message");
    gm_parcel **last = &e->sends;
    while (*last) last = &(*last)->next;
    *last = p; /* whatever happens now, the flow knows of it */
    enter_phase(e, a);
    GM_TRY(gm_flow_enter(e));
    e->events[at].begin = gm_now();
    gm_status st = a->gradient ? send_gradient(e, p, passage) : send_activation(e, p, a, passage);
    GM_TRY(gm_flow_leave(e));
    return st;
}

/* Those to one peer are done in order, or nearly: behind one that is not, none is asked. */
gm_status gm_flow_settle(gm_executor *e, bool all)
{
    uint64_t busy = 0; /* peers, modulo 64 */
    for (gm_parcel **at = &e->sends; *at;) {
        gm_parcel *p = *at;
        uint64_t   peer = (uint64_t)1 << (p->peer & 63);
        bool       done = !(busy & peer);
        if (all) GM_TRY(gm_parcel_wait(&e->route, p));
        else if (done) GM_TRY(gm_parcel_test(&e->route, p, &done));
        if (!done) {
            busy |= peer;
            at = &p->next;
            continue;
        }
        e->events[p->action].end = gm_now();
        *at = p->next;
        gm_flow_spare(e, p);
    }
    return GM_OK;
}

/* ---- receiving ---- */

/* What the parts before say without data, where nothing is received. */
static gm_status describe(gm_executor *e, const gm_action *a, gm_form **out)
{
    const gm_stage *stage = e->step->stage;
    gm_stage_result result = {0};
    gm_rank        *r = e->rank;
    if (!stage->describe)
        return GM_FAIL(GM_EINVAL, "on the meta transport nothing arrives, and nobody can say what would");
    GM_TRY(gm_flow_leave(e));
    if (e->step->forward_only) r->no_grad++;
    gm_status st = stage->describe(stage->context, a->micro_batch, e->step->parts[a->chunk] - 1, &result);
    if (e->step->forward_only) r->no_grad--;
    if (st == GM_OK) st = gm_form_new(result.n, result.out, result.text, out);
    gm_tape_drop(r);
    gm_result_release(&result);
    gm_status back = gm_flow_enter(e);
    return st == GM_OK ? back : st;
}

static gm_status read_header(gm_executor *e, const gm_action *a, gm_parcel *p, bool wait, bool *came)
{
    gm_form    *told = NULL;
    const char *signature = signature_of(e, a->micro_batch);
    if (!gm_comm_has_data(e->route.comm)) GM_TRY(describe(e, a, &told));
    gm_status st = gm_parcel_header_came(&e->route, p, wait, told, came);
    gm_form_release(told);
    if (st != GM_OK || !*came || !signature) return st;
    return gm_agreed_add(e->agreed, e->step->parts[a->chunk] - 1, e->step->forward_only, signature, p->form);
}

/* Learns what an activation looks like, or begins to. */
static gm_status learn_activation(gm_executor *e, const gm_action *a, gm_parcel *p, bool wait, bool *known)
{
    const char *signature = signature_of(e, a->micro_batch);
    int         border = e->step->parts[a->chunk] - 1;
    gm_form    *f = signature && p->state == GM_PARCEL_NEW
                        ? gm_agreed_find(e->agreed, border, e->step->forward_only, signature)
                        : NULL;
    *known = f != NULL;
    if (f) {
        gm_form_retain(p->form = f);
        return GM_OK;
    }
    if (p->state == GM_PARCEL_NEW) GM_TRY(gm_parcel_receive_header(&e->route, p));
    return read_header(e, a, p, wait, known);
}

static gm_status learn_gradient(gm_executor *e, const gm_action *a, gm_parcel *p, bool wait, bool *known)
{
    gm_passage *passage = gm_flow_passage(e, a->micro_batch, a->chunk);
    *known = passage->back != NULL;
    if (passage->back) gm_form_retain(p->form = passage->back);
    else if (wait) return GM_FAIL(GM_EINVAL, "its activation was not sent yet: the list is no schedule");
    return GM_OK;
}

/* One step further with the receive `at`, which is the next one from its peer. */
static gm_status post_one(gm_executor *e, int at, bool wait, bool *posted)
{
    const gm_action *a = action_at(e, at);
    gm_plan         *plan = &e->plan[at];
    bool             known = false;
    *posted = false;
    if (!plan->parcel) {
        plan->parcel = gm_flow_parcel(e, a->peer, at);
        if (!plan->parcel) return GM_FAIL(GM_ENOMEM, "no memory for a message");
        e->events[at].begin = gm_now();
    }
    enter_phase(e, a);
    if (a->gradient) GM_TRY(learn_gradient(e, a, plan->parcel, wait, &known));
    else GM_TRY(learn_activation(e, a, plan->parcel, wait, &known));
    if (!known) return GM_OK;
    GM_TRY(gm_parcel_receive(&e->route, plan->parcel));
    e->next_of_peer[a->peer] = plan->next_receive;
    *posted = true;
    return GM_OK;
}

static gm_status post_ahead(gm_executor *e)
{
    int peers = gm_group_size(e->route.group);
    for (int peer = 0; peer < peers; peer++) {
        bool posted = true;
        while (posted && e->next_of_peer[peer] >= 0 && e->next_of_peer[peer] < e->ahead)
            GM_TRY(post_one(e, e->next_of_peer[peer], false, &posted));
    }
    return GM_OK;
}

/* When a receive is noticed to have arrived. */
static gm_status note_arrivals(gm_executor *e, int now)
{
    while (e->oldest < now && !e->plan[e->oldest].parcel) e->oldest++;
    for (int at = e->oldest; at < e->ahead; at++) {
        gm_parcel *p = e->plan[at].parcel;
        bool       done = false;
        if (!p || p->state != GM_PARCEL_UNDER_WAY || !p->n_pending) continue;
        GM_TRY(gm_parcel_test(&e->route, p, &done));
        if (done) e->events[at].end = gm_now();
    }
    return GM_OK;
}

gm_status gm_flow_post(gm_executor *e, int now)
{
    if (!e->route.group) return GM_OK;
    GM_TRY(gm_flow_enter(e));
    gm_status st = post_ahead(e);
    if (st == GM_OK) st = note_arrivals(e, now);
    GM_TRY(gm_flow_leave(e));
    return st;
}

static gm_status take(gm_executor *e, int at, int *n, gm_value **v, char **text)
{
    int  peer = action_at(e, at)->peer;
    bool posted;
    while (e->next_of_peer[peer] >= 0 && e->next_of_peer[peer] <= at)
        GM_TRY(post_one(e, e->next_of_peer[peer], true, &posted));
    gm_parcel *p = e->plan[at].parcel;
    if (!p) return GM_FAIL(GM_EINVAL, "what it reads was read before: the list is no schedule");
    bool was_under_way = p->n_pending > 0;
    GM_TRY(gm_parcel_wait(&e->route, p));
    if (was_under_way || e->events[at].end == 0) e->events[at].end = gm_now();
    enter_phase(e, action_at(e, at));
    if (text && !(*text = strdup(p->form->text))) return GM_FAIL(GM_ENOMEM, "no memory for a text between two stages");
    GM_TRY(gm_parcel_open(&e->route, p, v));
    *n = p->form->n;
    e->plan[at].parcel = NULL;
    gm_flow_spare(e, p);
    return GM_OK;
}

gm_status gm_flow_take(gm_executor *e, int at, int *n, gm_value **v, char **text)
{
    GM_TRY(gm_flow_enter(e));
    gm_status st = take(e, at, n, v, text);
    GM_TRY(gm_flow_leave(e));
    return st;
}
