/* collective.c - the collectives of comm.h, each as rounds of messages and local steps (state.h).
 *
 * Each member exchanges messages with all others directly and begins with its right neighbour, so that the members do
 * not all send to one at once. Blocks along the first dimension (after dimensions of size 1) are sent and received in
 * place. Blocks along other dimensions are packed through scratch memory, which is counted as copied. */
#include "state.h"

#include <stdlib.h>
#include <string.h>
#include "../mesh/at_once.h"
#include "machines.h"
#include "over_machines.h"

#define FEW 32 /* places whose terms need no list from the heap */

/* ---- checks ---- */

static gm_status check_dim(const gm_group *g, const char *op, const gm_tensor *t, int dim)
{
    if (dim >= 0 && dim < t->ndim) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s of group %s: there is no dimension %d in %d", op, g->name, dim + 1, t->ndim);
}

static gm_status check_place(const gm_group *g, const char *op, int place)
{
    if (place >= 0 && place < g->size) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s of group %s: there is no place %d among %d", op, g->name, place, g->size);
}

static gm_status check_reduction(const gm_group *g, const char *op, const gm_tensor *t, gm_reduction how)
{
    if (how != GM_MEAN || gm_dtype_is_float(t->dtype)) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s of group %s: the mean of %s; means are of floats", op, g->name,
                   gm_dtype_name(t->dtype));
}

/* whole must be block with dimension dim p times as large. */
static gm_status check_joined(const gm_group *g, const char *op, const gm_tensor *block, const gm_tensor *whole,
                              int dim)
{
    char a[200], b[200];
    GM_TRY(check_dim(g, op, block, dim));
    bool fits = block->dtype == whole->dtype && block->ndim == whole->ndim;
    for (int d = 0; fits && d < block->ndim; d++) fits = whole->shape[d] == block->shape[d] * (d == dim ? g->size : 1);
    if (fits) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s of group %s: %d blocks %s along dimension %d do not make %s", op, g->name, g->size,
                   gm_tensor_describe(block, a, sizeof a), dim + 1, gm_tensor_describe(whole, b, sizeof b));
}

/* ---- geometry ---- */

/* How one of p blocks lies in `whole` along dim: outer rows of `inner` bytes, p inner apart. */
static gm_strip strip_of(const gm_tensor *whole, int dim, int p)
{
    gm_strip s = {1, gm_dtype_size(whole->dtype)};
    for (int d = 0; d < dim; d++) s.outer *= whole->shape[d];
    for (int d = dim; d < whole->ndim; d++) s.inner *= (size_t)whole->shape[d];
    s.inner /= (size_t)p;
    return p > 1 ? s : (gm_strip){1, s.inner * (size_t)s.outer};
}

static void count_copy(gm_pending *p, size_t bytes) { p->account->copied += bytes; }

/* Copies block `place` out of `in`, or into `out`. */
static void pack(gm_pending *p, gm_strip s, int place, char *block)
{
    char *from = gm_at(p->from, (size_t)place * s.inner);
    if (!gm_moves(p) || !from || !block || from == block) return;
    gm_copy_rows(block, s.inner, from, s.inner * (size_t)p->group->size, s.inner, s.outer);
    count_copy(p, s.inner * (size_t)s.outer);
}

void gm_block_unpack(gm_pending *p, gm_strip s, const char *block, int place)
{
    char *to = gm_at(p->to, (size_t)place * s.inner);
    if (!gm_moves(p) || !to || !block || to == block) return;
    gm_copy_rows(to, s.inner * (size_t)p->group->size, block, s.inner, s.inner, s.outer);
    count_copy(p, s.inner * (size_t)s.outer);
}

/* The k-th other member, counted from this rank on, k = 1 ... p - 1; and where it is met as receiver. */
static int to_place(const gm_group *g, int k) { return (g->rank + k) % g->size; }
static int from_place(const gm_group *g, int k) { return (g->rank - k + g->size) % g->size; }

/* The terms of all members, in order of places, into out: this member's, and what came from the others, n bytes each,
 * into `came`. */
static gm_status combine_terms(gm_pending *p, char *came, char *own, char *out, size_t n)
{
    int         places = p->group->size;
    const void *few[FEW], **parts = places <= FEW ? few : malloc((size_t)places * sizeof *parts);
    if (!parts) return GM_FAIL(GM_ECOMM, "no memory for a reduction that has begun");
    for (int i = 0; i < places; i++) parts[i] = i == p->group->rank ? own : gm_at(came, (size_t)i * n);
    if (gm_moves(p) && n && out)
        gm_combine(p->out->dtype, p->op, places, parts, out, (int64_t)(n / gm_dtype_size(p->out->dtype)), places);
    if (parts != few) free(parts);
    return GM_OK;
}

static void set_shape(gm_call_record *r, const gm_tensor *t)
{
    r->dtype = (int32_t)t->dtype;
    r->ndim = t->ndim;
    for (int d = 0; d < t->ndim; d++) r->shape[d] = t->shape[d];
}

static void touched(gm_tensor *t) { t->storage->version++; }

/* On a group of several machines; what goes between devices is left to these. */
static void go_over_machines(gm_pending *p, gm_status (*step)(gm_pending *p, int round), int rounds)
{
    if (p->linked) return;
    p->step = step;
    p->rounds = rounds;
}

/* ---- all_reduce, reduce: slices of the flat tensor ---- */

/* Everybody's terms of this rank's slice are summed into `sum` as they come, or come into scratch, in order of places;
 * the own one stays where it is. lend: all members want the sums. */
static void exchange_terms(gm_pending *p, char *sum, bool lend)
{
    const gm_group *g = p->group;
    gm_slice        own = gm_slice_of(p, g->rank);
    bool            folded = gm_pending_fold(p, own.bytes, sum, own.n);
    for (int k = 1; k < g->size; k++) {
        gm_slice other = gm_slice_of(p, to_place(g, k));
        if (!folded)
            gm_pending_receive(p, from_place(g, k), gm_at(p->scratch, (size_t)from_place(g, k) * own.n), own.n, false);
        if (lend) gm_pending_lend(p, to_place(g, k), other.bytes, other.n);
        else gm_pending_send(p, to_place(g, k), other.bytes, other.n, false);
    }
}

static gm_status combine_slice(gm_pending *p, char *out)
{
    gm_slice own = gm_slice_of(p, p->group->rank);
    return p->terms.folded ? GM_OK : combine_terms(p, p->scratch, own.bytes, out, own.n);
}

static gm_status step_all_reduce(gm_pending *p, int round)
{
    const gm_group *g = p->group;
    gm_slice        own = gm_slice_of(p, g->rank);
    if (round == 0 && !gm_pending_shares(p)) return GM_FAIL(GM_ECOMM, "no memory for a reduction that has begun");
    if (round == 0) exchange_terms(p, own.bytes, true);
    if (round != 1) return GM_OK;
    GM_TRY(combine_slice(p, own.bytes));
    for (int k = 1; k < g->size; k++) {
        gm_slice other = gm_slice_of(p, from_place(g, k));
        gm_pending_share(p, to_place(g, k), own.bytes, own.n, from_place(g, k), other.bytes, other.n);
    }
    return GM_OK;
}

/* All give each other the whole of a small tensor, and each sums it. */
static gm_status step_all_reduce_at_once(gm_pending *p, int round)
{
    const gm_group *g = p->group;
    size_t          n = gm_bytes_of(p->out);
    for (int k = 1; round == 0 && k < g->size; k++) {
        gm_pending_receive(p, from_place(g, k), gm_at(p->scratch, (size_t)from_place(g, k) * n), n, false);
        gm_pending_send(p, to_place(g, k), p->to, n, false);
    }
    return round == 1 ? combine_terms(p, p->scratch, p->to, p->to, n) : GM_OK;
}

gm_status gm_comm_all_reduce(gm_comm *c, gm_group *g, gm_tensor *t, gm_reduction op, gm_pending **out)
{
    gm_pending        *p;
    const gm_machines *m;
    GM_TRY(gm_call_check_group(c, g, "all_reduce"));
    GM_TRY(gm_call_check_tensor(c, g, "all_reduce", "the tensor ", t));
    GM_TRY(check_reduction(g, "all_reduce", t, op));
    GM_TRY(gm_machines_of(g, &m));
    bool   at_once = gm_sums_at_once(g->size, gm_bytes_of(t)), over = m && gm_sums_over_machines(t, op);
    size_t largest = gm_largest_slice(t, g->size), term = at_once ? gm_bytes_of(t) : largest;
    size_t scratch = over ? gm_sum_scratch_over_machines(g, largest) : g->size > 1 ? term * (size_t)g->size : 0;
    GM_TRY(gm_pending_new(c, g, GM_CALL_all_reduce, NULL, t, scratch, 4 * g->size, &p));
    p->step = at_once ? step_all_reduce_at_once : step_all_reduce;
    p->rounds = at_once ? 1 : g->size > 1 ? 2 : 0;
    if (over) go_over_machines(p, gm_step_all_reduce_over_machines, GM_ALL_REDUCE_ROUNDS);
    p->op = op;
    p->record.reduction = (int32_t)op;
    set_shape(&p->record, t);
    touched(t);
    return gm_pending_start(p, out);
}

static gm_status step_reduce(gm_pending *p, int round)
{
    const gm_group *g = p->group;
    gm_slice        own = gm_slice_of(p, g->rank);
    bool            here = g->rank == p->root;
    char           *sum = here ? own.bytes : p->scratch2;
    if (round == 0) exchange_terms(p, sum, false);
    if (round != 1) return GM_OK;
    GM_TRY(combine_slice(p, sum));
    if (!here) gm_pending_send(p, p->root, sum, own.n, false);
    for (int k = 1; here && k < g->size; k++) {
        gm_slice other = gm_slice_of(p, from_place(g, k));
        gm_pending_receive(p, from_place(g, k), other.bytes, other.n, false);
    }
    return GM_OK;
}

gm_status gm_comm_reduce(gm_comm *c, gm_group *g, gm_tensor *t, int root, gm_reduction op, gm_pending **out)
{
    gm_pending *p;
    GM_TRY(gm_call_check_group(c, g, "reduce"));
    GM_TRY(gm_call_check_tensor(c, g, "reduce", "the tensor ", t));
    GM_TRY(check_place(g, "reduce", root));
    GM_TRY(check_reduction(g, "reduce", t, op));
    size_t slice = gm_largest_slice(t, g->size), scratch = g->size > 1 ? slice * (size_t)(g->size + 1) : 0;
    GM_TRY(gm_pending_new(c, g, GM_CALL_reduce, NULL, t, scratch, 4 * g->size, &p));
    p->scratch2 = gm_at(p->scratch, slice * (size_t)g->size);
    p->step = step_reduce;
    p->rounds = g->size > 1 ? 2 : 0;
    p->op = op;
    p->root = p->record.root = root;
    p->record.reduction = (int32_t)op;
    set_shape(&p->record, t);
    if (root == g->rank) touched(t);
    return gm_pending_start(p, out);
}

/* ---- all_gather, gather ---- */

static bool receives_blocks(const gm_pending *p) { return p->call == GM_CALL_all_gather || p->root == p->group->rank; }

static gm_status step_gather(gm_pending *p, int round)
{
    const gm_group *g = p->group;
    size_t          block = gm_bytes_of(p->in);
    char           *in = p->from;
    for (int k = 1; round == 0 && k < g->size; k++) {
        int   from = from_place(g, k), to = to_place(g, k);
        bool  to_root = p->call == GM_CALL_all_gather || to == p->root;
        char *here = NULL;
        if (receives_blocks(p))
            here = gm_in_one(p->join) ? gm_at(p->to, (size_t)from * block) : gm_at(p->scratch, (size_t)from * block);
        if (receives_blocks(p)) gm_pending_receive(p, from, here, block, false);
        if (to_root) gm_pending_send(p, to, in, block, false);
    }
    if (round == 0 && receives_blocks(p)) gm_block_unpack(p, p->join, in, g->rank);
    for (int k = 1; round == 1 && receives_blocks(p) && !gm_in_one(p->join) && k < g->size; k++)
        gm_block_unpack(p, p->join, gm_at(p->scratch, (size_t)to_place(g, k) * block), to_place(g, k));
    return GM_OK;
}

static gm_status start_gather(gm_comm *c, gm_group *g, gm_collective call, gm_tensor *in, int dim, int root,
                              gm_tensor *to, gm_pending **out)
{
    const char        *op = gm_call_name(call);
    bool               here = call == GM_CALL_all_gather || root == g->rank;
    gm_strip           join = {1, 0};
    gm_pending        *p;
    const gm_machines *m;
    GM_TRY(gm_call_check_group(c, g, op));
    GM_TRY(gm_call_check_tensor(c, g, op, "the block ", in));
    if (here) {
        GM_TRY(gm_call_check_tensor(c, g, op, "the result ", to));
        GM_TRY(check_joined(g, op, in, to, dim));
        join = strip_of(to, dim, g->size);
        touched(to);
    }
    GM_TRY(check_dim(g, op, in, dim));
    GM_TRY(gm_machines_of(g, &m));
    size_t scratch = here && !gm_in_one(join) && g->size > 1 ? gm_bytes_of(to) : 0;
    GM_TRY(gm_pending_new(c, g, call, in, here ? to : NULL, scratch, 2 * g->size, &p));
    p->step = step_gather;
    p->rounds = !gm_in_one(join);
    if (m && call == GM_CALL_all_gather) go_over_machines(p, gm_step_all_gather_over_machines, GM_ALL_GATHER_ROUNDS);
    p->join = join;
    p->root = root;
    p->record.root = call == GM_CALL_gather ? root : -1;
    p->record.dim = dim;
    set_shape(&p->record, in);
    return gm_pending_start(p, out);
}

gm_status gm_comm_all_gather(gm_comm *c, gm_group *g, gm_tensor *in, int dim, gm_tensor *to, gm_pending **out)
{
    return start_gather(c, g, GM_CALL_all_gather, in, dim, -1, to, out);
}

gm_status gm_comm_gather(gm_comm *c, gm_group *g, gm_tensor *in, int dim, int root, gm_tensor *to, gm_pending **out)
{
    GM_TRY(check_place(g, "gather", root));
    return start_gather(c, g, GM_CALL_gather, in, dim, root, to, out);
}

/* ---- reduce_scatter, scatter ---- */

/* Block `place` of p->in, in one piece: where it lies, or packed into scratch. */
static char *piece(gm_pending *p, int place, size_t block)
{
    char *there = gm_block_piece(p, place, block);
    if (!gm_in_one(p->split)) pack(p, p->split, place, there);
    return there;
}

static gm_status step_reduce_scatter(gm_pending *p, int round)
{
    const gm_group *g = p->group;
    size_t          block = gm_bytes_of(p->out);
    if (round == 0) {
        if (!gm_in_one(p->split)) (void)piece(p, g->rank, block);
        bool folded = gm_pending_fold(p, gm_block_piece(p, g->rank, block), p->to, block);
        for (int k = 1; k < g->size; k++) {
            int from = from_place(g, k), to = to_place(g, k);
            if (!folded) gm_pending_receive(p, from, gm_at(p->scratch2, (size_t)from * block), block, false);
            gm_pending_send(p, to, piece(p, to, block), block, false);
        }
        return GM_OK;
    }
    if (p->terms.folded) return GM_OK;
    return combine_terms(p, p->scratch2, gm_block_piece(p, g->rank, block), p->to, block);
}

static gm_status step_reduce_scatter_packed(gm_pending *p, int round)
{
    for (int i = 0; round == 0 && i < p->group->size; i++) (void)piece(p, i, gm_bytes_of(p->out));
    return gm_step_reduce_scatter_over_machines(p, round);
}

gm_status gm_comm_reduce_scatter(gm_comm *c, gm_group *g, gm_tensor *in, int dim, gm_reduction op, gm_tensor *to,
                                 gm_pending **out)
{
    gm_pending        *p;
    const gm_machines *m;
    GM_TRY(gm_call_check_group(c, g, "reduce_scatter"));
    GM_TRY(gm_call_check_tensor(c, g, "reduce_scatter", "the tensor ", in));
    GM_TRY(gm_call_check_tensor(c, g, "reduce_scatter", "the result ", to));
    GM_TRY(check_joined(g, "reduce_scatter", to, in, dim));
    GM_TRY(check_reduction(g, "reduce_scatter", in, op));
    gm_strip split = strip_of(in, dim, g->size);
    size_t   whole = gm_bytes_of(in), packed = gm_in_one(split) ? 0 : whole, terms = g->size > 1 ? whole : 0;
    GM_TRY(gm_machines_of(g, &m));
    bool over = m && gm_sums_over_machines(in, op);
    if (over) terms = gm_sum_scratch_over_machines(g, gm_bytes_of(to));
    GM_TRY(gm_pending_new(c, g, GM_CALL_reduce_scatter, in, to, packed + terms, 2 * g->size, &p));
    p->scratch2 = gm_at(p->scratch, packed);
    p->step = step_reduce_scatter;
    p->rounds = 1;
    if (over) go_over_machines(p, step_reduce_scatter_packed, GM_REDUCE_SCATTER_ROUNDS);
    p->split = split;
    p->op = op;
    p->record.reduction = (int32_t)op;
    p->record.dim = dim;
    set_shape(&p->record, in);
    touched(to);
    return gm_pending_start(p, out);
}

static gm_status step_scatter(gm_pending *p, int round)
{
    const gm_group *g = p->group;
    size_t          block = gm_bytes_of(p->out);
    (void)round; /* there is one */
    if (g->rank != p->root) {
        gm_pending_receive(p, p->root, p->to, block, false);
        return GM_OK;
    }
    pack(p, p->split, g->rank, p->to);
    for (int k = 1; k < g->size; k++) gm_pending_send(p, to_place(g, k), piece(p, to_place(g, k), block), block, false);
    return GM_OK;
}

gm_status gm_comm_scatter(gm_comm *c, gm_group *g, gm_tensor *in, int dim, int root, gm_tensor *to, gm_pending **out)
{
    bool        here = root == g->rank;
    gm_strip    split = {1, 0};
    gm_pending *p;
    GM_TRY(gm_call_check_group(c, g, "scatter"));
    GM_TRY(check_place(g, "scatter", root));
    GM_TRY(gm_call_check_tensor(c, g, "scatter", "the result ", to));
    GM_TRY(check_dim(g, "scatter", to, dim));
    if (here) {
        GM_TRY(gm_call_check_tensor(c, g, "scatter", "the tensor ", in));
        GM_TRY(check_joined(g, "scatter", to, in, dim));
        split = strip_of(in, dim, g->size);
    }
    size_t scratch = here && !gm_in_one(split) ? gm_bytes_of(in) : 0;
    GM_TRY(gm_pending_new(c, g, GM_CALL_scatter, here ? in : NULL, to, scratch, g->size, &p));
    p->step = step_scatter;
    p->split = split;
    p->root = p->record.root = root;
    p->record.dim = dim;
    set_shape(&p->record, to);
    touched(to);
    return gm_pending_start(p, out);
}

/* ---- broadcast ---- */

/* To member v, counted from the root. given, uncounted: see gm_message. */
static void hand_on(gm_pending *p, int v, bool given, bool uncounted)
{
    int first = p->n_messages;
    gm_pending_send(p, (v + p->root) % p->group->size, p->to, gm_bytes_of(p->out), false);
    for (int i = first; i < p->n_messages; i++) {
        p->messages[i].given = given;
        p->messages[i].uncounted = uncounted;
    }
}

/* A binomial tree over places counted from the root: the parent of v is v without its lowest bit. Members who read each
 * other's memory take a longer tensor from the root's, all at the same time: accounts are those of the tree still. */
static gm_status step_broadcast(gm_pending *p, int round)
{
    const gm_group *g = p->group;
    int             v = (g->rank - p->root + g->size) % g->size, low = 1;
    size_t          n = gm_bytes_of(p->out);
    bool            read = n > GM_AT_ONCE_BYTES && gm_members_read(g);
    while (low < g->size && !(v & low)) low <<= 1;
    if (round == 0 && v) gm_pending_receive(p, ((read ? 0 : v - low) + p->root) % g->size, p->to, n, false);
    for (int m = low >> 1; round == 1 && m; m >>= 1)
        if (v + m < g->size) hand_on(p, v + m, read && v, false);
    for (int u = 3; round == 1 && read && !v && u < g->size; u++)
        if (u & (u - 1)) hand_on(p, u, false, true); /* those that the tree would reach through others */
    return GM_OK;
}

gm_status gm_comm_broadcast(gm_comm *c, gm_group *g, gm_tensor *t, int root, gm_pending **out)
{
    gm_pending        *p;
    const gm_machines *m;
    GM_TRY(gm_call_check_group(c, g, "broadcast"));
    GM_TRY(check_place(g, "broadcast", root));
    GM_TRY(gm_call_check_tensor(c, g, "broadcast", "the tensor ", t));
    GM_TRY(gm_machines_of(g, &m));
    GM_TRY(gm_pending_new(c, g, GM_CALL_broadcast, NULL, t, 0, 32, &p));
    p->step = step_broadcast;
    p->rounds = 1;
    if (m) go_over_machines(p, gm_step_broadcast_over_machines, GM_BROADCAST_ROUNDS);
    p->root = p->record.root = root;
    set_shape(&p->record, t);
    if (root != g->rank) touched(t);
    return gm_pending_start(p, out);
}

/* ---- all_to_all ---- */

static gm_status step_all_to_all(gm_pending *p, int round)
{
    const gm_group *g = p->group;
    size_t          block = gm_bytes_of(p->in) / (size_t)g->size;
    char           *to = p->to;
    if (round == 0) {
        for (int k = 1; k < g->size; k++) {
            int from = from_place(g, k), other = to_place(g, k);
            gm_pending_receive(p, from, gm_at(gm_in_one(p->join) ? to : p->scratch2, (size_t)from * block), block,
                               false);
            gm_pending_send(p, other, piece(p, other, block), block, false);
        }
        gm_block_unpack(p, p->join, piece(p, g->rank, block), g->rank);
        return GM_OK;
    }
    for (int k = 1; !gm_in_one(p->join) && k < g->size; k++)
        gm_block_unpack(p, p->join, gm_at(p->scratch2, (size_t)to_place(g, k) * block), to_place(g, k));
    return GM_OK;
}

gm_status gm_comm_all_to_all(gm_comm *c, gm_group *g, gm_tensor *in, int split, gm_tensor *to, int join,
                             gm_pending **out)
{
    char        a[200], b[200];
    gm_pending *p;
    GM_TRY(gm_call_check_group(c, g, "all_to_all"));
    GM_TRY(gm_call_check_tensor(c, g, "all_to_all", "the tensor ", in));
    GM_TRY(gm_call_check_tensor(c, g, "all_to_all", "the result ", to));
    GM_TRY(check_dim(g, "all_to_all", in, split));
    GM_TRY(check_dim(g, "all_to_all", in, join));
    bool fits = in->dtype == to->dtype && in->ndim == to->ndim && in->shape[split] % g->size == 0;
    for (int d = 0; fits && d < in->ndim; d++)
        fits = to->shape[d] == in->shape[d] / (d == split ? g->size : 1) * (d == join ? g->size : 1);
    if (!fits)
        return GM_FAIL(GM_ESHAPE, "all_to_all of group %s: %s split along %d and joined along %d by %d is not %s",
                       g->name, gm_tensor_describe(in, a, sizeof a), split + 1, join + 1, g->size,
                       gm_tensor_describe(to, b, sizeof b));
    size_t bytes = gm_bytes_of(in);
    GM_TRY(gm_pending_new(c, g, GM_CALL_all_to_all, in, to, 2 * bytes, 2 * g->size, &p));
    p->scratch2 = gm_at(p->scratch, bytes);
    p->step = step_all_to_all;
    p->split = strip_of(in, split, g->size);
    p->join = strip_of(to, join, g->size);
    p->rounds = !gm_in_one(p->join);
    p->record.dim = split;
    p->record.join = join;
    set_shape(&p->record, in);
    touched(to);
    return gm_pending_start(p, out);
}
