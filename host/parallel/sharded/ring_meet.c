/* ring_meet.c - see ring_meet.h. */
#include "ring_meet.h"

#include "../../../kernels/journal.h"

#define GM_RING_PIECES 4 /* of one block's work: messages move only when somebody looks, which is done in between */

/* The operands of one call of the attention op or its gradient, whole or in pieces. */
typedef struct call {
    gm_tensor *q, *k, *v, *mask, *limits, *o, *lse;
    gm_tensor *g, *dq, *dk, *dv; /* gradient: g is not NULL */
    gm_attrs   attrs;
} call;

/* Of t, n[d] elements of dimension d from from[d] on. NULL stays NULL. */
static gm_status window(gm_tensor *t, const int64_t *from, const int64_t *n, gm_tensor **out)
{
    *out = NULL;
    if (!t) return GM_OK;
    int64_t offset = t->offset;
    for (int d = 0; d < t->ndim; d++) offset += from[d] * t->stride[d];
    return gm_tensor_view(t, t->ndim, n, t->stride, offset, out);
}

/* Dimensions of what an operand is: which of them are batch, positions, heads. */
typedef struct part {
    int64_t batch, n_batch, at, n, head, n_heads;
} part;

static gm_status rows_part(gm_tensor *t, const part *p, gm_tensor **out)
{
    if (!t) return window(t, NULL, NULL, out);
    return window(t, (int64_t[]){p->batch, p->at, p->head, 0}, (int64_t[]){p->n_batch, p->n, p->n_heads, t->shape[3]},
                  out);
}

static gm_status lse_part(gm_tensor *t, const part *p, gm_tensor **out)
{
    return window(t, (int64_t[]){p->batch, p->head, p->at}, (int64_t[]){p->n_batch, p->n_heads, p->n}, out);
}

static gm_status limits_part(gm_tensor *t, const part *p, int64_t at, gm_tensor **out)
{
    return window(t, (int64_t[]){p->batch, at, 0}, (int64_t[]){p->n_batch, p->n, 2}, out);
}

static gm_status mask_part(gm_tensor *t, const part *p, int64_t at, gm_tensor **out)
{
    return window(t, (int64_t[]){p->batch, at}, (int64_t[]){p->n_batch, p->n}, out);
}

static void release_call(call *c)
{
    gm_tensor *all[] = {c->q, c->k, c->v, c->mask, c->limits, c->o, c->lse, c->g, c->dq, c->dk, c->dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) gm_tensor_release(all[i]);
}

/* What is run, or only recorded, of a call. */
typedef gm_status (*call_user)(gm_device *dev, const gm_call *call);

static gm_status use_call(gm_ring *w, call *c, call_user use)
{
    gm_tensor *in[] = {c->q, c->k, c->v, c->mask, c->limits, NULL}, *out[] = {c->o, c->lse};
    gm_tensor *saved[] = {c->q, c->k, c->v, c->mask, c->o, c->lse, c->g, c->limits, NULL};
    gm_tensor *grads[] = {c->dq, c->dk, c->dv, NULL};
    gm_call    forward = {.op = GM_OP_attention, .n_in = 6, .n_out = 2, .in = in, .out = out, .attrs = &c->attrs};
    gm_call    gradient = {
           .op = GM_OP_attention_grad, .n_in = 9, .n_out = 4, .in = saved, .out = grads, .attrs = &c->attrs};
    return use(w->dev, c->g ? &gradient : &forward);
}

static gm_status record_call(gm_device *dev, const gm_call *call)
{
    double flops, bytes;
    gm_cost(call, &flops, &bytes);
    gm_journal_call(dev->journal, dev, call, flops, bytes);
    return GM_OK;
}

/* The queries [at, at + n) of those worked on here, which are `run` of the sequence, against `keys` of it, which are
 * rows [skip, skip + n) of a block. */
typedef struct meeting {
    int64_t     at, skip;
    gm_ring_run run, keys;
    gm_tensor  *k, *v, *dk, *dv;
} meeting;

/* Piece i of n of a meeting, cut along the batch or the key heads. */
static gm_status make_piece(gm_ring *w, const gm_ring_queries *x, const meeting *m, int i, int n, call *c)
{
    bool    by_batch = w->batch >= w->key_heads;
    int64_t whole = by_batch ? w->batch : w->key_heads, from = whole * i / n, to = whole * (i + 1) / n;
    int64_t group = w->heads / w->key_heads;
    part    keys = {0, w->batch, m->skip, m->keys.count, 0, w->key_heads}, rows;
    int64_t last_key = m->keys.first + m->keys.count - 1;
    if (by_batch) keys.batch = from, keys.n_batch = to - from;
    else keys.head = from, keys.n_heads = to - from;
    rows = (part){keys.batch, keys.n_batch, m->at, m->run.count, keys.head * group, keys.n_heads * group};
    *c = (call){.attrs = x->attrs};
    c->attrs.accumulate = true;
    c->attrs.causal = x->attrs.causal && (x->attrs.window || last_key > m->run.first);
    if (x->attrs.window) c->attrs.behind = m->run.first + m->run.count - 1 - last_key;
    c->attrs.first = m->keys.first;
    if (c->attrs.box.ndim) {
        int64_t at[4] = {rows.batch, rows.head, m->run.first, m->keys.first};
        for (int d = 0; d < 4; d++) c->attrs.box.offset[d] += at[d];
    }
    GM_TRY(rows_part(x->q, &rows, &c->q));
    GM_TRY(rows_part(x->o, &rows, &c->o));
    GM_TRY(rows_part(x->g, &rows, &c->g));
    GM_TRY(rows_part(x->dq, &rows, &c->dq));
    GM_TRY(lse_part(x->lse, &rows, &c->lse));
    GM_TRY(rows_part(m->k, &keys, &c->k));
    GM_TRY(rows_part(m->v, &keys, &c->v));
    GM_TRY(rows_part(m->dk, &keys, &c->dk));
    GM_TRY(rows_part(m->dv, &keys, &c->dv));
    GM_TRY(limits_part(x->limits, &rows, m->run.first, &c->limits));
    return mask_part(x->mask, &keys, m->keys.first, &c->mask);
}

static gm_status use_piece(gm_ring *w, const gm_ring_queries *x, const meeting *m, int i, int n, call_user use)
{
    call      c;
    gm_status st = make_piece(w, x, m, i, n, &c);
    if (st == GM_OK) st = use_call(w, &c, use);
    release_call(&c);
    return st;
}

static gm_status run_pieces(gm_ring *w, const gm_ring_queries *x, const meeting *m)
{
    int64_t whole = w->batch >= w->key_heads ? w->batch : w->key_heads;
    int     pieces = whole < GM_RING_PIECES ? (int)whole : GM_RING_PIECES;
    for (int i = 0; i < pieces; i++) {
        GM_TRY(use_piece(w, x, m, i, pieces, gm_run));
        if (w->plan.p > 1) GM_TRY(gm_comm_poll(w->comm));
    }
    return GM_OK;
}

/* A record has one op for all pieces of a meeting: they follow each other at once, and an op of a record stands for
 * what lies between two ops, too (launch of host/plan/machine.h). */
static gm_status meet(gm_ring *w, const gm_ring_queries *x, const meeting *m)
{
    gm_journal *r = w->dev->journal;
    if (!r || r->inside) return run_pieces(w, x, m);
    GM_TRY(use_piece(w, x, m, 0, 1, record_call));
    int64_t at = r->n - 1;
    r->inside++;
    gm_status st = run_pieces(w, x, m);
    r->inside--;
    gm_journal_took(r, at);
    return st;
}

gm_status gm_ring_attend(gm_ring *w, const gm_ring_queries *x, int t, gm_tensor *k, gm_tensor *v, gm_tensor *dk,
                         gm_tensor *dv)
{
    const gm_ring_place *here = &w->plan.place[w->plan.here];
    int                  block = gm_ring_step(&w->plan, w->plan.here, t);
    for (int i = 0; i < 2; i++) {
        meeting m = {.at = i ? here->work[0].count : 0, .run = here->work[i], .k = k, .v = v, .dk = dk, .dv = dv};
        m.keys = gm_ring_seen(&w->plan, m.run, block);
        m.skip = m.keys.first - w->plan.place[block].keys.first;
        if (m.keys.count > 0) GM_TRY(meet(w, x, &m));
    }
    return GM_OK;
}
