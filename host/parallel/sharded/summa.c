/* summa.c - see summa.h. */
#include "summa.h"

/* ---- products of blocks ---- */

static gm_status leading(gm_tensor *t, int64_t rows, int64_t columns, gm_tensor **out)
{
    gm_tensor *part = NULL;
    GM_TRY(gm_tensor_narrow(t, 0, 0, rows, &part));
    gm_status st = gm_tensor_narrow(part, 1, 0, columns, out);
    gm_tensor_release(part);
    return st;
}

gm_status gm_block_product(gm_device *dev, const gm_operand *a, const gm_operand *b, int64_t m, int64_t k, int64_t n,
                           bool accumulate, gm_tensor *c)
{
    gm_tensor *in[2] = {NULL, NULL}, *out = NULL;
    gm_attrs   attrs = gm_attrs_default();
    gm_status  st = GM_OK;
    bool       padded = m < c->shape[0] || n < c->shape[1] || !k;
    if (padded && !accumulate) GM_TRY(gm_run_one(dev, GM_OP_fill, NULL, NULL, c));
    if (!m || !n || !k) return GM_OK;
    attrs.transpose_a = a->transposed;
    attrs.transpose_b = b->transposed;
    attrs.accumulate = accumulate;
    attrs.dtype = c->dtype;
    GM_TRY_OR(leading(a->block, a->transposed ? k : m, a->transposed ? m : k, &in[0]), st, done);
    GM_TRY_OR(leading(b->block, b->transposed ? n : k, b->transposed ? k : n, &in[1]), st, done);
    GM_TRY_OR(leading(c, m, n, &out), st, done);
    gm_call call = {.op = GM_OP_matmul, .n_in = 2, .n_out = 1, .in = in, .out = &out, .attrs = &attrs};
    st = gm_run(dev, &call);
done:
    gm_tensor_release(in[0]);
    gm_tensor_release(in[1]);
    gm_tensor_release(out);
    return st;
}

/* ---- what is under way ---- */

/* Blocks like one of this rank's, in pairs: one is worked on while the other is filled or sent. */
typedef struct pair {
    gm_tensor  *block[2];
    gm_pending *pending[2];
} pair;

typedef struct run {
    const gm_summa *s;
    gm_device      *dev;
    gm_comm        *comm;
    pair            a, b, sums;
    pair            terms; /* of this rank's result, from the others: number i is in block i & 1 */
    bool            sent;
} run;

static gm_status block_like(run *w, const gm_tensor *t, gm_tensor **out)
{
    gm_rank_place(w->s->rank, "linear");
    return gm_tensor_new(w->dev, t->dtype, t->ndim, t->shape, out);
}

/* Of the two, those that some step of another place than ours uses. */
static gm_status make_pair(run *w, const gm_tensor *like, const gm_group *g, pair *p)
{
    for (int l = 0; g && l < w->s->steps; l++)
        if (l != gm_group_rank(g) && !p->block[l & 1]) GM_TRY(block_like(w, like, &p->block[l & 1]));
    return GM_OK;
}

/* How many terms others send, and the place that number i comes from: in order of places. */
static int terms_of(const gm_summa *s) { return s->sum ? s->steps - 1 : 0; }

static int place_of_term(const gm_summa *s, int i) { return i + (i >= gm_group_rank(s->sum)); }

static gm_status make_terms(run *w)
{
    for (int i = 0; i < terms_of(w->s) && i < 2; i++) GM_TRY(block_like(w, w->s->out, &w->terms.block[i]));
    return GM_OK;
}

static void release_pair(run *w, pair *p)
{
    for (int i = 0; i < 2; i++) {
        gm_comm_drop(w->comm, p->pending[i]);
        gm_tensor_release(p->block[i]);
    }
}

static void release_all(run *w)
{
    release_pair(w, &w->a);
    release_pair(w, &w->b);
    release_pair(w, &w->sums);
    release_pair(w, &w->terms);
}

/* ---- steps ---- */

/* The block of an operand that step l works with. */
static gm_tensor *block_at(const gm_operand *o, const pair *p, int l)
{
    return !o->along || gm_group_rank(o->along) == l ? o->block : p->block[l & 1];
}

static gm_status start_travel(run *w, const gm_operand *o, pair *p, int l)
{
    if (!o->along || l >= w->s->steps) return GM_OK;
    w->sent = true;
    return gm_comm_broadcast(w->comm, o->along, block_at(o, p, l), l, &p->pending[l & 1]);
}

static gm_status await_term(run *w, int i)
{
    if (i >= terms_of(w->s)) return GM_OK;
    w->sent = true;
    return gm_comm_receive(w->comm, w->s->sum, w->terms.block[i & 1], place_of_term(w->s, i), &w->terms.pending[i & 1]);
}

/* In order of places: one order of the sum, whoever comes first. */
static gm_status add_terms(run *w)
{
    for (int i = 0; i < terms_of(w->s); i++) {
        GM_TRY(gm_comm_finish(w->comm, &w->terms.pending[i & 1]));
        GM_TRY(gm_run_one(w->dev, GM_OP_axpy, NULL, w->terms.block[i & 1], w->s->out));
        GM_TRY(await_term(w, i + 2));
    }
    return GM_OK;
}

/* Terms are added a step after this rank's own: the others have sent theirs by then. Nobody waits in a circle: who
 * waits for terms of step l has come to step l + 1, and who waits in step l for a sum to be taken sent it in step
 * l - 2. */
static bool is_time_to_add(const gm_summa *s, int l)
{
    int at = s->sum ? gm_group_rank(s->sum) + 1 : -1;
    return l == at || (l == s->steps - 1 && at == s->steps);
}

static int64_t span_at(const gm_span *s, int l)
{
    if (!s->block) return s->n;
    int64_t left = s->n - l * s->block;
    return left < 0 ? 0 : left < s->block ? left : s->block;
}

static gm_status multiply(run *w, int l)
{
    const gm_summa *s = w->s;
    bool            here = !s->sum || gm_group_rank(s->sum) == l;
    bool            add_up = s->sum ? here && s->accumulate : l || s->accumulate;
    gm_tensor      *c = here ? s->out : w->sums.block[l & 1];
    gm_operand      a = s->a, b = s->b;
    a.block = block_at(&s->a, &w->a, l);
    b.block = block_at(&s->b, &w->b, l);
    if (!here) GM_TRY(gm_comm_finish(w->comm, &w->sums.pending[l & 1]));
    GM_TRY(gm_block_product(w->dev, &a, &b, span_at(&s->m, l), span_at(&s->k, l), span_at(&s->n, l), add_up, c));
    return here ? GM_OK : gm_comm_send(w->comm, s->sum, c, l, &w->sums.pending[l & 1]);
}

static gm_status step(run *w, int l)
{
    GM_TRY(start_travel(w, &w->s->a, &w->a, l + 1));
    GM_TRY(start_travel(w, &w->s->b, &w->b, l + 1));
    GM_TRY(gm_comm_finish(w->comm, &w->a.pending[l & 1]));
    GM_TRY(gm_comm_finish(w->comm, &w->b.pending[l & 1]));
    GM_TRY(multiply(w, l));
    return is_time_to_add(w->s, l) ? add_terms(w) : GM_OK;
}

static gm_status prepare(run *w)
{
    const gm_summa *s = w->s;
    GM_TRY(gm_rank_device(s->rank, &w->dev));
    GM_TRY(gm_rank_comm(s->rank, &w->comm));
    GM_TRY(make_pair(w, s->a.block, s->a.along, &w->a));
    GM_TRY(make_pair(w, s->b.block, s->b.along, &w->b));
    GM_TRY(make_pair(w, s->out, s->sum, &w->sums));
    return make_terms(w);
}

static gm_status run_steps(run *w)
{
    GM_TRY(await_term(w, 0));
    GM_TRY(await_term(w, 1));
    GM_TRY(start_travel(w, &w->s->a, &w->a, 0));
    GM_TRY(start_travel(w, &w->s->b, &w->b, 0));
    for (int l = 0; l < w->s->steps; l++) GM_TRY(step(w, l));
    GM_TRY(gm_comm_finish(w->comm, &w->sums.pending[0]));
    return gm_comm_finish(w->comm, &w->sums.pending[1]);
}

gm_status gm_summa_run(const gm_summa *s)
{
    run       w = {.s = s};
    gm_status st = prepare(&w);
    if (st == GM_OK) st = run_steps(&w);
    release_all(&w);
    return w.sent ? gm_comm_once(st) : st;
}
