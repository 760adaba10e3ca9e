/* summa.c - see summa.h. */
#include "summa.h"

/* ---- products of blocks ---- */

static gm_tensor *leading(gm_work *w, gm_tensor *t, int64_t rows, int64_t columns)
{
    return gm_work_narrow(w, gm_work_narrow(w, t, 0, 0, rows), 1, 0, columns);
}

void gm_block_product(gm_work *w, const gm_operand *a, const gm_operand *b, int64_t m, int64_t k, int64_t n,
                      bool accumulate, gm_tensor *c)
{
    gm_attrs attrs = gm_attrs_default();
    int      mark = w->n_held;
    bool     padded = m < c->shape[0] || n < c->shape[1] || !k;
    if (padded && !accumulate) gm_work_fill(w, c, 0);
    if (!m || !n || !k) return;
    attrs.transpose_a = a->transposed;
    attrs.transpose_b = b->transposed;
    attrs.accumulate = accumulate;
    attrs.dtype = c->dtype;
    gm_tensor *in[2] = {leading(w, a->block, a->transposed ? k : m, a->transposed ? m : k),
                        leading(w, b->block, b->transposed ? n : k, b->transposed ? k : n)};
    gm_tensor *out = leading(w, c, m, n);
    gm_work_into(w, GM_OP_matmul, 2, in, &attrs, 1, &out);
    gm_work_drop(w, mark);
}

/* ---- what is under way ---- */

/* Blocks like one of this rank's, in pairs: one is worked on while the other is filled or sent. */
typedef struct pair {
    gm_tensor  *block[2];
    gm_pending *pending[2];
} pair;

typedef struct run {
    const gm_summa *s;
    gm_work        *work;
    gm_comm        *comm;
    pair            a, b, sums;
    pair            terms; /* of this rank's result, from the others: number i is in block i & 1 */
} run;

/* Of the two, those that some step of another place than ours uses. */
static void make_pair(run *w, const gm_tensor *like, const gm_group *g, pair *p)
{
    for (int l = 0; g && l < w->s->steps; l++)
        if (l != gm_group_rank(g) && !p->block[l & 1]) p->block[l & 1] = gm_work_like(w->work, like);
}

/* How many terms others send, and the place that number i comes from: in order of places. */
static int terms_of(const gm_summa *s) { return s->sum ? s->steps - 1 : 0; }

static int place_of_term(const gm_summa *s, int i) { return i + (i >= gm_group_rank(s->sum)); }

static void make_terms(run *w)
{
    for (int i = 0; i < terms_of(w->s) && i < 2; i++) w->terms.block[i] = gm_work_like(w->work, w->s->out);
}

static void drop_pair(run *w, pair *p)
{
    for (int i = 0; i < 2; i++) gm_comm_drop(w->comm, p->pending[i]);
}

/* ---- steps ---- */

/* The block of an operand that step l works with. */
static gm_tensor *block_at(const gm_operand *o, const pair *p, int l)
{
    return !o->along || gm_group_rank(o->along) == l ? o->block : p->block[l & 1];
}

static void start_travel(run *w, const gm_operand *o, pair *p, int l)
{
    if (!o->along || l >= w->s->steps || w->work->st != GM_OK) return;
    w->work->sent = true;
    w->work->st = gm_comm_broadcast(w->comm, o->along, block_at(o, p, l), l, &p->pending[l & 1]);
}

static void await_term(run *w, int i)
{
    gm_tensor *to = w->terms.block[i & 1];
    if (i >= terms_of(w->s) || w->work->st != GM_OK) return;
    w->work->sent = true;
    w->work->st = gm_comm_receive(w->comm, w->s->sum, to, place_of_term(w->s, i), &w->terms.pending[i & 1]);
}

/* In order of places: one order of the sum, whoever comes first. */
static void add_terms(run *w)
{
    for (int i = 0; i < terms_of(w->s); i++) {
        GM_STEP(w->work, gm_comm_finish(w->comm, &w->terms.pending[i & 1]));
        gm_tensor *out = w->s->out;
        gm_work_into(w->work, GM_OP_axpy, 1, &w->terms.block[i & 1], NULL, 1, &out);
        await_term(w, i + 2);
    }
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

/* c (+)= a b, of m, k and n as step l has them. */
static void multiply_blocks(const gm_summa *s, int l, const gm_operand *a, const gm_operand *b, bool add, gm_tensor *c)
{
    int64_t m = span_at(&s->m, l), k = span_at(&s->k, l), n = span_at(&s->n, l);
    if (!s->product) gm_block_product(s->work, a, b, m, k, n, add, c);
    else if (m && k && n) s->product(s->work, s->context, a->block, b->block, add, c);
    else if (!add) gm_work_fill(s->work, c, 0);
}

static void multiply(run *w, int l)
{
    const gm_summa *s = w->s;
    bool            here = !s->sum || gm_group_rank(s->sum) == l;
    bool            add_up = s->sum ? here && s->accumulate : l || s->accumulate;
    gm_tensor      *c = here ? s->out : w->sums.block[l & 1];
    gm_operand      a = s->a, b = s->b;
    a.block = block_at(&s->a, &w->a, l);
    b.block = block_at(&s->b, &w->b, l);
    if (!here) GM_STEP(w->work, gm_comm_finish(w->comm, &w->sums.pending[l & 1]));
    multiply_blocks(s, l, &a, &b, add_up, c);
    if (!here) GM_STEP(w->work, gm_comm_send(w->comm, s->sum, c, l, &w->sums.pending[l & 1]));
}

static void step(run *w, int l)
{
    start_travel(w, &w->s->a, &w->a, l + 1);
    start_travel(w, &w->s->b, &w->b, l + 1);
    GM_STEP(w->work, gm_comm_finish(w->comm, &w->a.pending[l & 1]));
    GM_STEP(w->work, gm_comm_finish(w->comm, &w->b.pending[l & 1]));
    multiply(w, l);
    if (is_time_to_add(w->s, l)) add_terms(w);
}

void gm_summa_run(const gm_summa *s)
{
    run w = {.s = s, .work = s->work};
    int mark = w.work->n_held;
    GM_STEP(w.work, gm_rank_comm(w.work->rank, &w.comm));
    make_pair(&w, s->a.block, s->a.along, &w.a);
    make_pair(&w, s->b.block, s->b.along, &w.b);
    make_pair(&w, s->out, s->sum, &w.sums);
    make_terms(&w);
    await_term(&w, 0);
    await_term(&w, 1);
    start_travel(&w, &s->a, &w.a, 0);
    start_travel(&w, &s->b, &w.b, 0);
    for (int l = 0; l < s->steps && w.work->st == GM_OK; l++) step(&w, l);
    GM_STEP(w.work, gm_comm_finish(w.comm, &w.sums.pending[0]));
    GM_STEP(w.work, gm_comm_finish(w.comm, &w.sums.pending[1]));
    drop_pair(&w, &w.a);
    drop_pair(&w, &w.b);
    drop_pair(&w, &w.sums);
    drop_pair(&w, &w.terms);
    gm_work_drop(w.work, mark);
}
