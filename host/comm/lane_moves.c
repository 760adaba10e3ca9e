/* lane_moves.c - what an operation between devices moves (lane.h): the calls of the library for it, and blocks along
 * other dimensions than the first, which are packed before and unpacked after. */
#include "lane.h"

#include <stdlib.h>

static const gm_queues *queues_of(const gm_device *dev) { return dev->backend->queues; }

/* ---- what an operation moves ---- */

static bool in_one(gm_strip s) { return s.outer <= 1; }

static size_t count_of(const gm_tensor *t) { return (size_t)gm_tensor_numel(t); }

static char *part(const gm_tensor *t, size_t elements)
{
    return (char *)gm_tensor_data(t) + elements * gm_dtype_size(t->dtype);
}

/* Where the blocks that are sent lie one after the other, and those that are received. */
static const gm_tensor *sent(const gm_pending *p) { return p->packed ? p->packed : p->in ? p->in : p->out; }
static const gm_tensor *received(const gm_pending *p) { return p->unpacked ? p->unpacked : p->out; }

typedef struct plan {
    gm_link_move *moves;
    int           n;
} plan;

static void add(plan *l, const gm_pending *p, gm_link_kind kind, int peer, const void *from, void *to, size_t count)
{
    const gm_tensor *t = p->in ? p->in : p->out;
    if (!count) return;
    l->moves[l->n++] = (gm_link_move){kind, t->dtype, (gm_link_sum)p->op, peer, from, to, count};
}

static void send_block(plan *l, const gm_pending *p, int peer, size_t start, size_t count)
{
    add(l, p, GM_LINK_SEND, peer, part(sent(p), start), NULL, count);
}

static void receive_block(plan *l, const gm_pending *p, int peer, size_t start, size_t count)
{
    add(l, p, GM_LINK_RECEIVE, peer, NULL, part(received(p), start), count);
}

static size_t row_elements(const gm_tensor *t)
{
    size_t n = 1;
    for (int d = 1; d < t->ndim; d++) n *= (size_t)t->shape[d];
    return n;
}

static void plan_rows(plan *l, const gm_pending *p)
{
    size_t            row = row_elements(p->in);
    const gm_row_run *s = p->sends.run, *r = p->receives.run;
    for (int i = 0; i < p->sends.n; i++) send_block(l, p, s[i].place, (size_t)s[i].first * row, (size_t)s[i].n * row);
    for (int i = 0; i < p->receives.n; i++)
        receive_block(l, p, r[i].place, (size_t)r[i].first * row, (size_t)r[i].n * row);
}

/* Pieces of this rank for itself go the same way: one call moves all. */
static void plan_blocks(plan *l, const gm_pending *p)
{
    bool   here = p->root == p->group->rank;
    int    size = p->group->size, root = p->root;
    size_t block = p->call == GM_CALL_scatter ? count_of(p->out) : count_of(p->in);
    if (p->call == GM_CALL_all_to_all) block /= (size_t)size;
    for (int i = 0; i < size; i++) {
        if (p->call == GM_CALL_all_to_all || (p->call == GM_CALL_scatter && here))
            send_block(l, p, i, (size_t)i * block, block);
        if (p->call == GM_CALL_all_to_all || (p->call == GM_CALL_gather && here))
            receive_block(l, p, i, (size_t)i * block, block);
    }
    if (p->call == GM_CALL_gather) send_block(l, p, root, 0, block);
    if (p->call == GM_CALL_scatter) receive_block(l, p, root, 0, block);
}

static void plan_moves(plan *l, const gm_pending *p)
{
    void *out = p->out ? gm_tensor_data(p->out) : NULL;
    switch (p->call) {
    case GM_CALL_all_reduce: add(l, p, GM_LINK_ALL_REDUCE, 0, out, out, count_of(p->out)); break;
    case GM_CALL_reduce:
        add(l, p, GM_LINK_REDUCE, p->root, out, p->root == p->group->rank ? out : NULL, count_of(p->out));
        break;
    case GM_CALL_broadcast: add(l, p, GM_LINK_BROADCAST, p->root, out, out, count_of(p->out)); break;
    case GM_CALL_all_gather:
        add(l, p, GM_LINK_ALL_GATHER, 0, gm_tensor_data(p->in), gm_tensor_data(received(p)), count_of(p->in));
        break;
    case GM_CALL_reduce_scatter:
        add(l, p, GM_LINK_REDUCE_SCATTER, 0, gm_tensor_data(sent(p)), out, count_of(p->out));
        break;
    case GM_CALL_all_to_all_rows: plan_rows(l, p); break;
    case GM_CALL_send: send_block(l, p, 1, 0, count_of(p->in)); break;
    case GM_CALL_receive: receive_block(l, p, 0, 0, count_of(p->out)); break;
    default: plan_blocks(l, p); break;
    }
}

/* ---- blocks along other dimensions than the first ---- */

/* t as (parts, outer, inner) in the sense of s; apart: its blocks lie one after the other. */
static gm_status as_blocks(gm_tensor *t, gm_strip s, int parts, bool apart, gm_tensor **out)
{
    int64_t inner = (int64_t)(s.inner / gm_dtype_size(t->dtype)), shape[3] = {parts, s.outer, inner};
    int64_t strided[3] = {inner, parts * inner, 1}, plain[3] = {s.outer * inner, inner, 1};
    return gm_tensor_view(t, 3, shape, apart ? plain : strided, t->offset, out);
}

/* Between a tensor and its blocks one after the other, in the lane's queue. */
static gm_status turn(gm_pending *p, gm_strip s, gm_tensor *whole, gm_tensor *blocks, bool pack)
{
    const gm_queues *queues = queues_of(p->linked);
    gm_tensor       *a = NULL, *b = NULL;
    gm_status        st;
    GM_TRY_OR(as_blocks(whole, s, p->group->size, false, &a), st, done);
    GM_TRY_OR(as_blocks(blocks, s, p->group->size, true, &b), st, done);
    GM_TRY_OR(queues->launch_on(p->linked, gm_links_queue(p->lane->link), pack ? p->ticket : NULL), st, done);
    st = gm_run_one(p->linked, GM_OP_copy, NULL, pack ? a : b, pack ? b : a);
    (void)queues->launch_on(p->linked, NULL, NULL); /* which cannot fail where the call before did not */
    p->account->copied += count_of(whole) * gm_dtype_size(whole->dtype);
done:
    gm_tensor_release(a);
    gm_tensor_release(b);
    return st;
}

static gm_status take_like(gm_pending *p, const gm_tensor *t, gm_tensor **out)
{
    int64_t n = gm_tensor_numel(t);
    gm_pool_set_place(p->linked->pool, gm_comm_place(p->comm), gm_call_name((int)p->call));
    return gm_tensor_new(p->linked, t->dtype, 1, &n, out);
}

/* ---- for lane.c ---- */

gm_status gm_lane_take_blocks(gm_pending *p)
{
    bool splits = p->call == GM_CALL_reduce_scatter || p->call == GM_CALL_all_to_all || p->call == GM_CALL_scatter;
    bool joins = p->call == GM_CALL_all_gather || p->call == GM_CALL_all_to_all || p->call == GM_CALL_gather;
    if (splits && p->in && !in_one(p->split)) GM_TRY(take_like(p, p->in, &p->packed));
    if (joins && p->out && !in_one(p->join)) GM_TRY(take_like(p, p->out, &p->unpacked));
    return GM_OK;
}

gm_status gm_lane_pack(gm_pending *p) { return p->packed ? turn(p, p->split, p->in, p->packed, true) : GM_OK; }

gm_status gm_lane_unpack(gm_pending *p) { return p->unpacked ? turn(p, p->join, p->out, p->unpacked, false) : GM_OK; }

gm_status gm_lane_move(gm_pending *p)
{
    plan   moves = {0};
    size_t most = p->rows ? (size_t)(p->sends.n + p->receives.n) : 2 * (size_t)p->group->size;
    moves.moves = calloc(most + 1, sizeof *moves.moves);
    if (!moves.moves) return GM_FAIL(GM_ECOMM, "no memory for an operation that has begun");
    plan_moves(&moves, p);
    gm_status st = gm_links_issue(p->lane->link, p->ticket, moves.moves, moves.n);
    free(moves.moves);
    return st;
}
