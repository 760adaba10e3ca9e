/* tape.c - recording; see tape.h. Running backward is passes.c. */
#include <stdlib.h>
#include <string.h>
#include "../tier/tier.h"
#include "tape_nodes.h"

gm_spec gm_tape_spec(const gm_tensor *t)
{
    gm_spec s = {.dtype = t->dtype, .ndim = t->ndim};
    memcpy(s.shape, t->shape, sizeof s.shape);
    return s;
}

void gm_tape_own(gm_tape *t)
{
    t->owns = true;
    for (gm_node *n = t->first; n; n = n->next) n->refs++;
}

static gm_status open_tape(gm_rank *r)
{
    if (!r->tape) r->tape = calloc(1, sizeof *r->tape);
    return r->tape ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a tape");
}

gm_tape *gm_tape_take(gm_rank *r)
{
    gm_tape *t = r->tape;
    if (!t || !t->n) return NULL;
    r->tape = NULL;
    gm_tape_own(t);
    return t;
}

gm_status gm_tape_take_any(gm_rank *r, gm_tape **out)
{
    GM_TRY(open_tape(r));
    *out = gm_tape_set_aside(r);
    gm_tape_own(*out);
    return GM_OK;
}

gm_tape *gm_tape_set_aside(gm_rank *r)
{
    gm_tape *t = r->tape;
    r->tape = NULL;
    return t;
}

gm_status gm_tape_sketch(gm_rank *r)
{
    GM_TRY(open_tape(r));
    r->tape->sketch = true;
    return GM_OK;
}

void gm_tape_restore(gm_rank *r, gm_tape *before)
{
    gm_tape_drop(r);
    r->tape = before;
}

void gm_tape_free(gm_tape *t)
{
    if (!t) return;
    while (t->last) {
        gm_node *n = t->last;
        n->refs++;
        gm_node_let_go(n, false);
        gm_node_release(n);
    }
    for (int i = 0; i < t->n_leaves; i++) {
        gm_value *leaf = t->leaves[i].leaf;
        if (leaf && t->awaits) leaf->param->awaited--;
        gm_value_release(leaf);
    }
    free(t->leaves);
    free(t);
}

void gm_tape_drop(gm_rank *r) { gm_tape_free(gm_tape_set_aside(r)); }

int  gm_tape_nodes(const gm_rank *r) { return r->tape ? r->tape->n : 0; }
bool gm_tape_has(const gm_rank *r, const gm_value *v) { return v->node && r->tape && v->node->tape == r->tape; }

bool gm_tape_wanted(const gm_rank *r, int n_in, gm_value *const *in)
{
    if (r->no_grad) return false;
    for (int i = 0; i < n_in; i++)
        if (in[i] && in[i]->requires_grad) return true;
    return false;
}

/* ---- the leaves of a tape ---- */

/* The leaf's place in the tape's list, which has room. */
static int enter_leaf(gm_tape *t, gm_value *v)
{
    if (v->param->used_on != t->number) {
        t->leaves[t->n_leaves] = (leaf_use){.leaf = v};
        gm_value_retain(v);
        v->param->used_on = t->number;
        v->param->used_at = t->n_leaves++;
    }
    t->leaves[v->param->used_at].left++;
    return v->param->used_at;
}

gm_status gm_tape_count(gm_rank *r, gm_tape *t)
{
    size_t most = 0;
    if (t->number) return GM_OK;
    for (gm_node *n = t->first; n; n = n->next) {
        most += (size_t)n->n_in;
        for (int i = 0; i < n->n_out; i++) n->out[i].readers = 0;
    }
    t->leaves = calloc(most + 1, sizeof *t->leaves);
    if (!t->leaves) return GM_FAIL(GM_ENOMEM, "no memory for a list of what a backward reads");
    t->number = ++r->tapes;
    for (gm_node *n = t->first; n; n = n->next)
        for (int i = 0; i < n->n_in; i++) {
            edge *e = &n->in[i];
            if (e->leaf) e->at = enter_leaf(t, e->leaf);
            if (e->from && e->from->tape != t) return gm_node_blocked(e->from);
            if (e->from) e->from->out[e->output].readers++;
        }
    return GM_OK;
}

/* ---- recording ---- */

static void fill_edge(edge *e, gm_value *v)
{
    if (!v) return;
    e->spec = gm_tape_spec(v->local);
    if (!v->requires_grad) return;
    e->output = v->output;
    if (v->node) {
        e->from = v->node;
        e->from->refs++;
    } else {
        e->leaf = v;
        gm_value_retain(v);
    }
}

static void place_values(place *to, int n, gm_value *const *v)
{
    for (int i = 0; i < n; i++) {
        if (!v[i]) continue;
        to[i].layout = v[i]->layout;
        memcpy(to[i].shape, v[i]->shape, sizeof to[i].shape);
        to[i].padded = v[i]->padded;
    }
}

/* A value computed by a tape that is gone, or off the rank, cannot be differentiated through here. One whose backward
 * has run can be computed with: what a backward of the result then says is up to it. */
static gm_status check_inputs(const gm_rank *r, const gm_record *record)
{
    for (int i = 0; i < record->n_in; i++) {
        const gm_value *v = record->in[i];
        if (!v || !v->requires_grad || !v->node || v->node->run || gm_tape_has(r, v)) continue;
        if (r->regions)
            return GM_FAIL(GM_EINVAL,
                           "%s: input %d was computed outside of the function that is to run again (recompute), and is "
                           "not one of its arguments; pass it as an argument",
                           record->name, i + 1);
        return GM_FAIL(GM_EINVAL,
                       "%s: input %d was computed on a tape that was dropped, or in a forward pass that has ended; "
                       "detach() it, or compute it again",
                       record->name, i + 1);
    }
    return GM_OK;
}

/* The node that stands for all that the inputs depend on, where a backward has run through all of it: what is computed
 * from them has no other history, and adding up losses records nothing. Else NULL. */
static gm_node *only_past(const gm_record *record)
{
    gm_node *past = NULL;
    for (int i = 0; i < record->n_in; i++) {
        const gm_value *v = record->in[i];
        if (!v || !v->requires_grad) continue;
        if (!v->node || !v->node->run) return NULL;
        past = v->node;
    }
    return past;
}

/* Bytes that the op read and no node computed: of a parameter, frozen or not, or of data, also through views. They stay
 * when the node goes. */
static bool is_constant(const gm_record *record, const gm_storage *s)
{
    for (int i = 0; i < record->n_in; i++) {
        const gm_value *v = record->in[i];
        if (v && v->local->storage == s && (!v->node || v->shares_leaf)) return true;
    }
    return false;
}

static void link_outputs(const gm_record *record, gm_node *n)
{
    for (int i = 0; i < record->n_out; i++) {
        gm_value *v = record->out[i];
        if (!v || !gm_dtype_is_float(v->local->dtype)) continue;
        v->requires_grad = true;
        v->node = n;
        v->output = i;
        v->shares_leaf = is_constant(record, v->local->storage);
        n->refs++;
    }
}

/* The lists of a node and its path are one block, which begins with n->in. */
static bool new_lists(gm_node *n, const gm_record *record, const gm_rank *r)
{
    size_t n_in = (size_t)record->n_in, n_out = (size_t)record->n_out, n_saved = (size_t)record->n_saved;
    size_t places = r->mesh.n_axes ? n_in + n_out : 0, length = strlen(r->path) + 1;
    n->in = calloc(1, n_in * sizeof *n->in + n_out * sizeof *n->out + n_saved * sizeof *n->saved +
                          places * sizeof *n->places + length);
    if (!n->in) return false;
    n->out = (output *)(n->in + n_in);
    n->saved = (gm_saved *)(n->out + n_out);
    n->path = (char *)(n->saved + n_saved);
    if (places) {
        n->places = (place *)n->path;
        n->path = (char *)(n->places + places);
    }
    memcpy(n->path, r->path, length);
    return true;
}

static gm_status new_node(gm_rank *r, const gm_record *record, gm_node **out)
{
    gm_node *n = *out = calloc(1, sizeof *n);
    if (n && new_lists(n, record, r)) return GM_OK;
    free(n);
    return GM_FAIL(GM_ENOMEM, "no memory for a tape node");
}

static void fill_node(gm_node *n, const gm_record *record, bool sketch)
{
    n->name = record->name;
    n->rule = record->rule;
    n->op = record->op;
    n->n_in = record->n_in;
    n->n_out = record->n_out;
    n->n_saved = sketch ? 0 : record->n_saved;
    n->attrs = record->attrs ? *record->attrs : gm_attrs_default();
    if (!sketch) n->callback = record->callback;
    n->splits = record->splits;
    n->unbinds = record->unbinds;
    memcpy(n->extra, record->extra, sizeof n->extra);
    if (n->places) {
        place_values(n->places, n->n_in, record->in);
        place_values(n->places + n->n_in, n->n_out, record->out);
    }
    for (int i = 0; i < n->n_in; i++) fill_edge(&n->in[i], record->in[i]);
    for (int i = 0; i < n->n_saved; i++) gm_saved_keep(&n->saved[i], record->saved[i]);
    for (int i = 0; i < n->n_out; i++)
        if (record->out[i]) n->out[i].spec = gm_tape_spec(record->out[i]->local);
}

/* What the node keeps comes to rest in the rank's tier, unless it is small, constant, in use, or rests somewhere
 * already. Nodes inside of a region that runs again are needed at once, or not at all. */
static gm_status rest_saved(const gm_rank *r, const gm_record *record, const gm_node *n)
{
    for (int i = 0; r->rests.activations && !r->regions && i < n->n_saved; i++) {
        gm_storage *s = n->saved[i].tensor ? n->saved[i].tensor->storage : NULL;
        if (!s || s->home || s->opens || s->device != r->device || s->bytes < r->rests.least) continue;
        if (!is_constant(record, s)) GM_TRY(gm_tier_push(r->rests.tier, s));
    }
    return GM_OK;
}

gm_status gm_tape_record(gm_rank *r, const gm_record *record)
{
    gm_callback callback = record->callback;
    gm_node    *n = NULL;
    gm_status   st = GM_OK;
    if (!gm_tape_wanted(r, record->n_in, record->in)) goto done;
    GM_TRY_OR(check_inputs(r, record), st, done);
    if ((n = only_past(record))) {
        link_outputs(record, n);
        goto done;
    }
    GM_TRY_OR(open_tape(r), st, done);
    GM_TRY_OR(new_node(r, record, &n), st, done);
    fill_node(n, record, r->tape->sketch);
    if (r->tape->sketch) gm_callback_release(&callback);
    n->number = ++r->recorded;
    n->rng_step = r->device->step.rng_step;
    gm_tape_link(r->tape, n, r->tape->last);
    n->refs = 1;
    link_outputs(record, n);
    st = rest_saved(r, record, n);
    gm_node_release(n); /* no output has a gradient: gone */
    return st;
done:
    gm_callback_release(&callback);
    return st;
}

gm_status gm_tape_record_one(gm_rank *r, const char *name, gm_rule rule, gm_value *x, gm_value *v, const int64_t *extra,
                             int n_extra, gm_value **y)
{
    gm_record rec = {.name = name, .rule = rule, .n_in = 1, .in = &x, .n_out = 1, .out = &v};
    if (n_extra) memcpy(rec.extra, extra, (size_t)n_extra * sizeof *extra);
    gm_status st = gm_tape_record(r, &rec);
    if (st == GM_OK) *y = v;
    else gm_value_release(v);
    return st;
}
