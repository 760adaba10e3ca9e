/* tape.c - recording; see tape.h. Running backward is passes.c. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "scope.h"
#include "tape_nodes.h"

gm_spec gm_tape_spec(const gm_tensor *t)
{
    gm_spec s = {.dtype = t->dtype, .ndim = t->ndim};
    memcpy(s.shape, t->shape, sizeof s.shape);
    return s;
}

static void release_slots(node *n)
{
    for (int i = 0; i < n->n_saved; i++) {
        gm_tensor_release(n->saved[i].tensor);
        gm_value_release(n->saved[i].leaf);
    }
    n->n_saved = 0;
}

void gm_tape_release_node(node *n)
{
    release_slots(n);
    for (int i = 0; i < n->n_in; i++) gm_value_release(n->in[i].leaf);
    for (int i = 0; i < n->n_out; i++) gm_tensor_release(n->out[i].grad);
    free(n->in);
    free(n->out);
    free(n->places);
    free(n->path);
    gm_callback_release(&n->callback);
    memset(n, 0, sizeof *n);
}

gm_tape *gm_tape_take(gm_rank *r)
{
    gm_tape *t = r->tape;
    r->tape = NULL;
    return t;
}

void gm_tape_free(gm_tape *t)
{
    if (!t) return;
    for (int i = t->n - 1; i >= 0; i--) gm_tape_release_node(&t->nodes[i]);
    for (int i = 0; i < t->n_leaves; i++) {
        gm_value *leaf = t->leaves[i].leaf;
        if (leaf && t->awaits) leaf->awaited--;
        gm_value_release(leaf);
    }
    free(t->nodes);
    free(t->leaves);
    free(t);
}

void gm_tape_drop(gm_rank *r) { gm_tape_free(gm_tape_take(r)); }

const struct gm_scope *gm_tape_scope(const gm_tape *t) { return t->scope; }
int                    gm_tape_nodes(const gm_rank *r) { return r->tape ? r->tape->n : 0; }
uint64_t               gm_tape_number(const gm_rank *r) { return r->tape ? r->tape->number : 0; }

bool gm_tape_wanted(const gm_rank *r, int n_in, gm_value *const *in)
{
    if (r->no_grad) return false;
    for (int i = 0; i < n_in; i++)
        if (in[i] && in[i]->requires_grad) return true;
    return false;
}

static const struct gm_scope *user_scope(const gm_rank *r)
{
    const gm_scope *s = r->scope;
    while (s->kind != GM_SCOPE_USER && s->outer) s = s->outer;
    return s;
}

/* Room for one node more, and for n leaves. */
static gm_status make_room(gm_tape *t, int n)
{
    if (t->n == t->room) {
        int   room = t->room ? 2 * t->room : 256;
        node *nodes = realloc(t->nodes, (size_t)room * sizeof *nodes);
        if (!nodes) return GM_FAIL(GM_ENOMEM, "no memory for %d tape nodes", room);
        t->nodes = nodes;
        t->room = room;
    }
    if (t->n_leaves + n > t->leaf_room) {
        int       room = 2 * t->leaf_room + n + 64;
        leaf_use *leaves = realloc(t->leaves, (size_t)room * sizeof *leaves);
        if (!leaves) return GM_FAIL(GM_ENOMEM, "no memory for %d leaves of a tape", room);
        t->leaves = leaves;
        t->leaf_room = room;
    }
    return GM_OK;
}

static gm_status open_tape(gm_rank *r, int n_in, gm_tape **out)
{
    if (!r->tape) {
        gm_tape *t = calloc(1, sizeof *t);
        if (!t) return GM_FAIL(GM_ENOMEM, "no memory for a tape");
        t->number = ++r->tapes;
        t->scope = user_scope(r);
        r->tape = t;
    }
    *out = r->tape;
    return make_room(r->tape, n_in);
}

/* The leaf's place in the tape's list. */
static int enter_leaf(gm_tape *t, gm_value *v)
{
    if (v->used_on != t->number) {
        t->leaves[t->n_leaves] = (leaf_use){.leaf = v};
        gm_value_retain(v);
        v->used_on = t->number;
        v->used_at = t->n_leaves++;
    }
    t->leaves[v->used_at].left++;
    return v->used_at;
}

static void fill_edge(edge *e, gm_value *v, gm_tape *t)
{
    e->node = -1;
    if (!v) return;
    e->spec = gm_tape_spec(v->local);
    if (!v->requires_grad) return;
    if (v->tape == t->number) {
        e->node = v->node;
        e->output = v->output;
        t->nodes[e->node].out[e->output].readers++;
    } else if (!v->tape) {
        e->leaf = v;
        gm_value_retain(v);
        e->at = enter_leaf(t, v);
    }
}

static void pack(gm_tape_slot *s, gm_value *v)
{
    if (!v) return;
    s->version = v->local->storage->version;
    if (v->requires_grad && !v->tape) {
        s->kind = GM_SLOT_LEAF;
        s->leaf = v;
        gm_value_retain(v);
    } else {
        s->kind = GM_SLOT_TENSOR;
        s->tensor = v->local;
        gm_tensor_retain(v->local);
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

/* A value computed by a tape that is gone, or off the rank, cannot be differentiated through here. */
static gm_status check_inputs(const gm_rank *r, const gm_record *record)
{
    for (int i = 0; i < record->n_in; i++) {
        const gm_value *v = record->in[i];
        if (v && v->requires_grad && v->tape && (!r->tape || v->tape != r->tape->number))
            return GM_FAIL(GM_EINVAL,
                           "%s: input %d was computed on a tape that has been run or dropped, or in a forward pass "
                           "that has ended; detach() it, or compute it again",
                           record->name, i + 1);
    }
    return GM_OK;
}

gm_status gm_tape_record(gm_rank *r, const gm_record *record)
{
    gm_callback callback = record->callback;
    gm_tape    *t = NULL;
    gm_status   st;
    if (!gm_tape_wanted(r, record->n_in, record->in)) {
        gm_callback_release(&callback);
        return GM_OK;
    }
    GM_TRY_OR(check_inputs(r, record), st, fail);
    GM_TRY_OR(open_tape(r, record->n_in, &t), st, fail);
    node n = {.name = record->name,
              .rule = record->rule,
              .op = record->op,
              .n_in = record->n_in,
              .n_out = record->n_out,
              .n_saved = record->n_saved,
              .attrs = record->attrs ? *record->attrs : gm_attrs_default(),
              .callback = callback,
              .splits = record->splits};
    n.in = calloc((size_t)n.n_in + 1, sizeof *n.in);
    n.out = calloc((size_t)n.n_out + 1, sizeof *n.out);
    n.path = strdup(r->path);
    if (r->mesh.n_axes) n.places = calloc((size_t)(n.n_in + n.n_out) + 1, sizeof *n.places);
    if (!n.in || !n.out || !n.path || (r->mesh.n_axes && !n.places)) {
        free(n.in);
        free(n.out);
        free(n.places);
        free(n.path);
        st = GM_FAIL(GM_ENOMEM, "no memory for a tape node");
        goto fail;
    }
    memcpy(n.extra, record->extra, sizeof n.extra);
    if (n.places) {
        place_values(n.places, n.n_in, record->in);
        place_values(n.places + n.n_in, n.n_out, record->out);
    }
    for (int i = 0; i < n.n_in; i++) fill_edge(&n.in[i], record->in[i], t);
    for (int i = 0; i < n.n_saved; i++) pack(&n.saved[i], record->saved[i]);
    for (int i = 0; i < n.n_out; i++) {
        gm_value *v = record->out[i];
        if (!v) continue;
        n.out[i].spec = gm_tape_spec(v->local);
        if (!gm_dtype_is_float(v->local->dtype)) continue;
        v->requires_grad = true;
        v->tape = t->number;
        v->node = t->n;
        v->output = i;
    }
    t->nodes[t->n++] = n;
    return GM_OK;
fail:
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
