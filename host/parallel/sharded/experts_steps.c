/* experts_steps.c - see experts_steps.h. */
#include "experts_steps.h"

#include <stdlib.h>

static gm_tensor *integers(gm_experts_work *w, int ndim, const int64_t *shape)
{
    return gm_rows_new(&w->rows, GM_I64, ndim, shape);
}

gm_status gm_experts_begin(gm_experts_work *w, gm_rank *r, const gm_experts_sides *s, gm_tensor *index,
                           gm_tensor *counts, bool known)
{
    gm_experts_plan *p = &w->plan;
    gm_rows_begin(&w->rows, r, s->x.layout, s->x.ndim, s->x.shape, 0);
    if (w->rows.st != GM_OK) return w->rows.st;
    w->width = s->x.shape[s->x.ndim - 1];
    w->rows.sent = !known && gm_layout_dim_axes(s->up.layout, 0);
    gm_rank_place(r, "experts");
    w->rows.st = gm_experts_plan_new(r, s, index, counts, known, p);
    if (w->rows.st != GM_OK) return w->rows.st;
    int64_t n = p->n_here + p->n_sent;
    w->choice = integers(w, 1, &n);
    w->token = integers(w, 1, &n);
    w->row = integers(w, 2, (int64_t[]){p->k, p->tokens});
    if (w->rows.st == GM_OK) gm_experts_order(p, s, r, index, w->choice, w->token, w->row);
    return w->rows.st;
}

gm_status gm_experts_end(gm_experts_work *w)
{
    for (int i = 0; i < w->n_flights; i++) gm_comm_drop(w->plan.comm, w->flights[i]);
    free(w->flights);
    gm_experts_plan_free(&w->plan);
    return gm_rows_end(&w->rows);
}

/* ---- rows ---- */

gm_tensor *gm_experts_part(gm_experts_work *w, gm_tensor *t, int64_t first, int64_t n)
{
    return n && w->rows.st == GM_OK ? gm_rows_part(&w->rows, t, first, n) : NULL;
}

gm_tensor *gm_experts_new(gm_experts_work *w, int64_t rows, int64_t width)
{
    return w->rows.st == GM_OK ? gm_rows_new(&w->rows, w->up->dtype, 2, (int64_t[]){rows, width}) : NULL;
}

void gm_experts_zero(gm_experts_work *w, gm_tensor *t)
{
    gm_attrs a = gm_attrs_default();
    gm_rows_into(&w->rows, GM_OP_fill, 0, NULL, &a, 1, &t);
}

void gm_experts_gather(gm_experts_work *w, gm_tensor *table, gm_tensor *index, gm_tensor *to)
{
    gm_attrs a = gm_attrs_default();
    if (index) gm_rows_into(&w->rows, GM_OP_embedding, 2, (gm_tensor *[]){table, index}, &a, 1, &to);
}

/* ---- travel ---- */

static void start(gm_experts_work *w, bool send, gm_tensor *t, int64_t first, int64_t n, int place)
{
    gm_tensor  *rows = NULL;
    gm_pending *pending = NULL;
    gm_rows    *st = &w->rows;
    if (!n || st->st != GM_OK) return;
    gm_rows_check(st, gm_tensor_narrow(t, 0, first, n, &rows));
    if (st->st != GM_OK) return;
    st->sent = true;
    gm_rows_check(st, send ? gm_comm_send(w->plan.comm, w->plan.group, rows, place, &pending)
                           : gm_comm_receive(w->plan.comm, w->plan.group, rows, place, &pending));
    gm_tensor_release(rows);
    if (st->st == GM_OK) w->flights[w->n_flights++] = pending;
}

void gm_experts_travel(gm_experts_work *w, gm_tensor *ours, gm_tensor *theirs, bool back)
{
    const gm_experts_plan *p = &w->plan;
    if (p->p == 1 || w->rows.st != GM_OK) return;
    size_t most = (size_t)(p->experts + p->p * p->room); /* a message an expert and place */
    if (!w->flights) w->flights = malloc(most * sizeof *w->flights);
    if (!w->flights) {
        gm_rows_check(&w->rows, GM_FAIL(GM_ENOMEM, "experts: no memory for %zu messages", most));
        return;
    }
    for (int k = 1; k < p->p; k++) {
        int                     to = (p->here + k) % p->p, from = (p->here - k + p->p) % p->p;
        const gm_experts_place *other = &p->place[to];
        for (int64_t e = 0; e < p->place[p->here].count; e++)
            start(w, back, theirs, p->in_at[e * p->p + from], p->in[e * p->p + from], from);
        for (int64_t e = other->first; e < other->first + other->count; e++)
            start(w, !back, ours, p->out_at[e], p->out[e], to);
    }
}

void gm_experts_arrive(gm_experts_work *w)
{
    for (int i = 0; i < w->n_flights; i++) {
        if (w->rows.st == GM_OK) gm_rows_check(&w->rows, gm_comm_wait(w->plan.comm, w->flights[i]));
        else gm_comm_drop(w->plan.comm, w->flights[i]);
    }
    w->n_flights = 0;
}

/* ---- products ---- */

void gm_experts_each(gm_experts_work *w, bool away, gm_experts_step step, void *context)
{
    const gm_experts_plan *p = &w->plan;
    int                    before = w->rows.n_held;
    for (int64_t e = 0; w->rows.st == GM_OK && e < p->place[p->here].count; e++) {
        int64_t first, n;
        gm_experts_rows(p, away, e, &first, &n);
        if (n) step(w, context, e, first + (away ? p->n_here : 0), n);
        while (w->rows.n_held > before) gm_tensor_release(w->rows.held[--w->rows.n_held]);
        if (w->n_flights) gm_rows_check(&w->rows, gm_comm_poll(p->comm));
    }
}

gm_tensor *gm_experts_of(gm_experts_work *w, gm_tensor *block, int64_t e, int hidden_dim)
{
    gm_tensor *one = block ? gm_rows_select(&w->rows, block, 0, e) : NULL, *y = NULL;
    if (!one || hidden_dim < 0) return one;
    gm_rows_check(&w->rows, gm_tensor_narrow(one, hidden_dim, 0, w->hidden, &y));
    if (w->rows.st != GM_OK) return NULL;
    gm_tensor *kept = gm_rows_part(&w->rows, y, 0, y->shape[0]); /* on the list of what is to be released */
    gm_tensor_release(y);
    return kept;
}

void gm_experts_multiply(gm_experts_work *w, gm_tensor *a, bool ta, gm_tensor *b, bool tb, bool accumulate,
                         gm_tensor *y)
{
    gm_attrs at = gm_attrs_default();
    at.transpose_a = ta;
    at.transpose_b = tb;
    at.accumulate = accumulate;
    gm_rows_into(&w->rows, GM_OP_matmul, 2, (gm_tensor *[]){a, b}, &at, 1, &y);
}

gm_tensor *gm_experts_activate(gm_experts_work *w, gm_tensor *pre)
{
    return w->f == GM_FN_none || w->rows.st != GM_OK ? pre : gm_rows_unary(&w->rows, w->f, pre);
}
