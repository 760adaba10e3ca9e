/* redistribute_plan.c - the search of redistribute.h: Dijkstra's algorithm over layouts.
 *
 * Axes that both layouts use alike do not move. Three limits on the other axes keep the search small: a replicated
 * axis becomes partial only if it is partial in the goal; a dimension of one element is cut only if one of the two
 * layouts cuts it; and when many axes move, only one dimension that neither layout cuts may hold cuts on the way
 * (the longest, which needs the least padding). */
#include <stdlib.h>
#include <string.h>
#include "../mesh/at_once.h"
#include "redistribute.h"

#define MANY_STATES 50000 /* expected: then one parking dimension */
#define MAX_STATES  400000

typedef struct cost {
    uint64_t bytes;
    int      messages, steps;
} cost;

typedef struct state {
    gm_layout            layout;
    cost                 cost;   /* from the start, the least so far */
    int                  before; /* the state it was reached from, -1: the start */
    bool                 done;
    gm_redistribute_step step; /* without `after` */
} state;

typedef struct entry {
    cost cost;
    int  place; /* of the state */
} entry;

typedef struct search {
    const gm_mesh   *mesh;
    const gm_layout *to;
    int              ndim;
    const int64_t   *shape;
    size_t           size;
    uint32_t         moving; /* axes */
    uint32_t         dims;   /* that moving axes may cut */
    int              n, room, n_heap, heap_room, table_room;
    state           *states;
    entry           *heap;  /* a state may be in it more than once: the entry of its least cost comes first */
    int             *table; /* hash of layouts: places + 1 */
} search;

static gm_status no_memory(void) { return GM_FAIL(GM_ENOMEM, "no memory to plan a redistribution"); }

/* ---- the heap ---- */

static bool cheaper(const cost *a, const cost *b)
{
    if (a->bytes != b->bytes) return a->bytes < b->bytes;
    if (a->messages != b->messages) return a->messages < b->messages;
    return a->steps < b->steps;
}

static bool first(const entry *a, const entry *b)
{
    return cheaper(&a->cost, &b->cost) || (!cheaper(&b->cost, &a->cost) && a->place < b->place);
}

static void swap(entry *a, entry *b)
{
    entry t = *a;
    *a = *b;
    *b = t;
}

static gm_status push(search *s, int place)
{
    if (s->n_heap == s->heap_room) {
        int    room = s->heap_room ? 2 * s->heap_room : 64;
        entry *heap = realloc(s->heap, (size_t)room * sizeof *heap);
        if (!heap) return no_memory();
        s->heap = heap;
        s->heap_room = room;
    }
    int i = s->n_heap++;
    s->heap[i] = (entry){s->states[place].cost, place};
    for (; i && first(&s->heap[i], &s->heap[(i - 1) / 2]); i = (i - 1) / 2) swap(&s->heap[i], &s->heap[(i - 1) / 2]);
    return GM_OK;
}

static int pop(search *s)
{
    int top = s->heap[0].place, i = 0;
    s->heap[0] = s->heap[--s->n_heap];
    for (;;) {
        int least = i;
        for (int c = 2 * i + 1; c <= 2 * i + 2; c++)
            if (c < s->n_heap && first(&s->heap[c], &s->heap[least])) least = c;
        if (least == i) return top;
        swap(&s->heap[i], &s->heap[least]);
        i = least;
    }
}

/* ---- the table of states ---- */

static uint64_t hash_layout(const gm_layout *l)
{
    uint64_t h = 1469598103934665603u ^ l->partial;
    for (int d = 0; d < GM_MAX_DIMS; d++) {
        h = (h ^ (0x100u + l->n_cuts[d])) * 1099511628211u;
        for (int k = 0; k < l->n_cuts[d]; k++) h = (h ^ l->cut[d][k]) * 1099511628211u;
    }
    return h ^ h >> 29;
}

/* Where the layout is or belongs in the table. */
static int *look_up(const search *s, const gm_layout *l)
{
    uint64_t i = hash_layout(l);
    for (;; i++) {
        int *at = &s->table[i & (uint64_t)(s->table_room - 1)];
        if (!*at || gm_layout_equal(&s->states[*at - 1].layout, l)) return at;
    }
}

static gm_status grow(search *s)
{
    int    room = s->room ? 2 * s->room : 32;
    state *states = realloc(s->states, (size_t)room * sizeof *states);
    if (!states) return no_memory();
    s->states = states;
    s->room = room;
    free(s->table);
    s->table_room = 2 * room;
    s->table = calloc((size_t)s->table_room, sizeof *s->table);
    if (!s->table) return no_memory();
    for (int i = 0; i < s->n; i++) *look_up(s, &s->states[i].layout) = i + 1;
    return GM_OK;
}

/* A way to `layout` has been found: by `step`, from the state `before`. */
static gm_status reach(search *s, const gm_layout *layout, int before, const gm_redistribute_step *step, int messages)
{
    cost c = {0};
    if (before >= 0) {
        c = s->states[before].cost;
        c.bytes += step->bytes;
        c.messages += messages;
        c.steps++;
    }
    if (s->n == s->room) GM_TRY(grow(s));
    int *at = look_up(s, layout);
    if (!*at) {
        if (s->n == MAX_STATES)
            return GM_FAIL(GM_EINVAL, "redistribute: too many axes move at once; go by way of another layout, in which "
                                      "some of them are where they shall be");
        s->states[s->n] = (state){.layout = *layout};
        *at = ++s->n;
    } else if (!cheaper(&c, &s->states[*at - 1].cost)) return GM_OK;
    state *to = &s->states[*at - 1];
    to->cost = c;
    to->before = before;
    to->step = *step;
    return push(s, *at - 1);
}

/* ---- steps ---- */

/* The dimension that an axis cuts innermost; -1: none. */
static int innermost(const gm_layout *l, int axis)
{
    for (int d = 0; d < GM_MAX_DIMS; d++)
        if (l->n_cuts[d] && l->cut[d][l->n_cuts[d] - 1] == axis) return d;
    return -1;
}

static uint64_t elements(const search *s, const int64_t *local)
{
    uint64_t n = 1;
    for (int d = 0; d < s->ndim; d++) n *= (uint64_t)local[d];
    return n;
}

/* Bytes that all ranks send in a step from the layout of state `from` to `after`; p: members of each group. */
static uint64_t step_bytes(const search *s, const gm_layout *from, const gm_redistribute_step *step,
                           const gm_layout *after, int p)
{
    int64_t  before[GM_MAX_DIMS], local[GM_MAX_DIMS];
    uint64_t world = (uint64_t)gm_mesh_size(s->mesh), q = (uint64_t)p;
    gm_layout_local(s->mesh, from, s->ndim, s->shape, before);
    gm_layout_local(s->mesh, after, s->ndim, s->shape, local);
    switch (step->kind) {
    case GM_STEP_GATHER: return world * (q - 1) * elements(s, before) * s->size;
    case GM_STEP_REDUCE: return world / q * 2 * (q - 1) * elements(s, before) * s->size;
    case GM_STEP_SCATTER: return world * (q - 1) * elements(s, local) * s->size;
    case GM_STEP_EXCHANGE: /* a p-th of the block, padded along to_dim, to each of the others */
        before[step->to_dim] = local[step->to_dim];
        return world * (q - 1) * elements(s, before) * s->size;
    case GM_STEP_SLICE:
    case GM_STEP_MASK:
    case GM_STEP_EMBED: break;
    }
    return 0;
}

/* An axis less, or one more, in a dimension; units are those of the goal where it cuts the dimension. */
static void uncut(gm_layout *l, int dim)
{
    if (!--l->n_cuts[dim]) l->unit[dim] = 0;
}

static void cut(const search *s, gm_layout *l, int dim, int axis)
{
    if (!l->n_cuts[dim]) l->unit[dim] = s->to->n_cuts[dim] ? s->to->unit[dim] : 0;
    l->cut[dim][l->n_cuts[dim]++] = (uint8_t)axis;
}

static gm_status try_step(search *s, int at, gm_step_kind kind, uint32_t axes, int dim, int to_dim)
{
    gm_redistribute_step step = {.kind = kind, .axes = axes, .dim = dim, .to_dim = to_dim};
    gm_layout            from = s->states[at].layout, after = from; /* copies: states may move */
    int                  axis = 0, p = 1, messages = 0;
    for (int a = 0; a < s->mesh->n_axes; a++)
        if (axes & 1u << a) {
            axis = a;
            p *= s->mesh->axis[a].size;
        }
    if (kind == GM_STEP_GATHER || kind == GM_STEP_EXCHANGE || kind == GM_STEP_EMBED) uncut(&after, dim);
    if (kind == GM_STEP_REDUCE || kind == GM_STEP_SCATTER) after.partial &= ~axes;
    if (kind == GM_STEP_MASK || kind == GM_STEP_EMBED) after.partial |= axes;
    if (kind == GM_STEP_SLICE || kind == GM_STEP_SCATTER) cut(s, &after, dim, axis);
    if (kind == GM_STEP_EXCHANGE) cut(s, &after, to_dim, axis);
    if (kind == GM_STEP_REDUCE) messages = 2 * (p - 1);
    else if (kind == GM_STEP_GATHER || kind == GM_STEP_EXCHANGE || kind == GM_STEP_SCATTER) messages = p - 1;
    step.bytes = step_bytes(s, &from, &step, &after, p);
    return reach(s, &after, at, &step, messages);
}

/* Everything that one axis can do on its own. */
static gm_status move_axis(search *s, int at, int a)
{
    const gm_layout l = s->states[at].layout;
    uint32_t        axis = 1u << a;
    int             d1 = innermost(&l, a);
    bool            goal = s->to->partial & axis, partial = l.partial & axis;
    if (!partial && d1 < 0 && gm_layout_cut_axes(&l) & axis) return GM_OK; /* others cut inside of it */
    for (int d = 0; d < s->ndim; d++) {
        if (!(s->dims & 1u << d) || d == d1) continue;
        if (partial) GM_TRY(try_step(s, at, GM_STEP_SCATTER, axis, d, 0));
        else if (d1 >= 0) GM_TRY(try_step(s, at, GM_STEP_EXCHANGE, axis, d1, d));
        else GM_TRY(try_step(s, at, GM_STEP_SLICE, axis, d, 0));
    }
    if (d1 >= 0) GM_TRY(try_step(s, at, GM_STEP_GATHER, axis, d1, 0));
    if (d1 >= 0) GM_TRY(try_step(s, at, GM_STEP_EMBED, axis, d1, 0));
    if (d1 < 0 && !partial && goal) GM_TRY(try_step(s, at, GM_STEP_MASK, axis, 0, 0));
    return GM_OK;
}

static gm_status expand(search *s, int at)
{
    uint32_t open = s->states[at].layout.partial & s->moving;
    s->states[at].done = true;
    for (uint32_t axes = open; axes; axes = (axes - 1) & open) GM_TRY(try_step(s, at, GM_STEP_REDUCE, axes, 0, 0));
    for (int a = 0; a < s->mesh->n_axes; a++)
        if (s->moving & 1u << a) GM_TRY(move_axis(s, at, a));
    return GM_OK;
}

/* ---- what moves, and where it may ---- */

/* Axes whose part differs: partial in one only, or cutting behind what is not the same list of axes. */
static uint32_t moving_axes(const gm_layout *from, const gm_layout *to)
{
    uint32_t axes = from->partial ^ to->partial;
    for (int d = 0; d < GM_MAX_DIMS; d++) {
        int  same = 0;
        bool units = from->unit[d] == to->unit[d];
        while (units && same < from->n_cuts[d] && same < to->n_cuts[d] && from->cut[d][same] == to->cut[d][same])
            same++;
        for (int k = same; k < from->n_cuts[d]; k++) axes |= 1u << from->cut[d][k];
        for (int k = same; k < to->n_cuts[d]; k++) axes |= 1u << to->cut[d][k];
    }
    return axes;
}

/* How many layouts `axes` axes have, about: each replicated, partial, or in one of `dims` ordered lists. */
static double count_layouts(int axes, int dims)
{
    double total = 0, choose = 1;
    for (int cuts = 0; cuts <= axes; cuts++) {
        double n = choose;
        for (int k = 0; k < cuts; k++) n *= dims + k;
        for (int k = cuts; k < axes; k++) n *= 2;
        total += n;
        choose = choose * (axes - cuts) / (cuts + 1);
    }
    return total;
}

static int bits(uint32_t mask)
{
    int n = 0;
    for (; mask; mask &= mask - 1) n++;
    return n;
}

static void choose_dims(search *s, const gm_layout *from)
{
    uint32_t touched = 0, others = 0;
    for (int d = 0; d < s->ndim; d++) {
        if ((gm_layout_dim_axes(from, d) | gm_layout_dim_axes(s->to, d)) & s->moving) touched |= 1u << d;
        else if (s->shape[d] > 1) others |= 1u << d;
    }
    if (count_layouts(bits(s->moving), bits(touched | others)) > MANY_STATES) {
        int longest = -1;
        for (int d = 0; d < s->ndim; d++)
            if (others & 1u << d && (longest < 0 || s->shape[d] > s->shape[longest])) longest = d;
        if (longest >= 0) others = 1u << longest;
    }
    s->dims = touched | others;
}

/* What all ranks send in a step that counted as `bytes`. A small all_reduce sends more in a round less, which is no
 * slower (at_once.h): the search takes it for one of two rounds, or it would choose a scatter and a gather. */
static uint64_t sent_in(const search *s, const gm_redistribute_step *step)
{
    uint64_t q = 1, world = (uint64_t)gm_mesh_size(s->mesh);
    for (int a = 0; a < s->mesh->n_axes; a++)
        if (step->axes & 1u << a) q *= (uint64_t)s->mesh->axis[a].size;
    if (step->kind != GM_STEP_REDUCE || q == 1) return step->bytes;
    uint64_t two_rounds = world / q * 2 * (q - 1), n = step->bytes / two_rounds;
    return gm_sums_at_once((int)q, n) ? world * (q - 1) * n : step->bytes;
}

static gm_status read_back(const search *s, int goal, gm_redistribute_step *steps, int *n)
{
    int length = s->states[goal].cost.steps;
    if (length > GM_MAX_REDISTRIBUTE_STEPS)
        return GM_FAIL(GM_EINVAL, "redistribute: %d steps are needed; go by way of another layout", length);
    *n = length;
    for (int i = length - 1, at = goal; i >= 0; i--, at = s->states[at].before) {
        steps[i] = s->states[at].step;
        steps[i].bytes = sent_in(s, &steps[i]);
        steps[i].after = s->states[at].layout;
    }
    return GM_OK;
}

gm_status gm_redistribute_plan(const gm_mesh *mesh, const gm_layout *from, const gm_layout *to, int ndim,
                               const int64_t *shape, size_t size, gm_redistribute_step *steps, int *n)
{
    search               s = {.mesh = mesh, .to = to, .ndim = ndim, .shape = shape, .size = size};
    gm_redistribute_step none = {0};
    gm_status            st;
    GM_TRY(gm_layout_check(mesh, from, ndim));
    GM_TRY(gm_layout_check(mesh, to, ndim));
    *n = 0;
    if (gm_layout_equal(from, to)) return GM_OK;
    s.moving = moving_axes(from, to);
    choose_dims(&s, from);
    GM_TRY_OR(reach(&s, from, -1, &none, 0), st, done);
    int goal = -1;
    while (goal < 0 && s.n_heap) {
        int at = pop(&s);
        if (s.states[at].done) continue;
        if (gm_layout_equal(&s.states[at].layout, to)) goal = at;
        else GM_TRY_OR(expand(&s, at), st, done);
    }
    /* There is a way: whatever is partial can be reduced, whatever is cut gathered, and the goal sliced and masked. */
    st = goal < 0 ? GM_FAIL(GM_EINVAL, "redistribute: no way was found") : read_back(&s, goal, steps, n);
done:
    free(s.states);
    free(s.heap);
    free(s.table);
    return st;
}
