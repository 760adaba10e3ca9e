/* experts_steps.c - see experts_steps.h. */
#include "experts_steps.h"

#include <stdlib.h>

static void start_work(gm_experts_work *w, gm_rank *r, const gm_experts_sides *s, int64_t capacity)
{
    w->width = s->x.shape[s->x.ndim - 1];
    GM_STEP(w->work, gm_experts_plan_new(r, s, capacity, &w->plan));
}

/* The numbers of the plan, from the choices of each expert, which `all` begins with. */
static void learn_numbers(gm_experts_work *w, gm_rank *r, const gm_experts_sides *s, gm_tensor *all)
{
    size_t bytes = (size_t)gm_experts_numbers(&w->plan) * sizeof *w->numbers;
    gm_experts_tell(w->work, &w->plan, all);
    if (w->work->st != GM_OK) return;
    w->numbers = malloc(bytes + 1);
    if (!w->numbers) w->work->st = GM_FAIL(GM_ENOMEM, "experts: no memory for %zu bytes of counts", bytes);
    else if (w->work->device->backend->has_data)
        w->work->st = gm_device_read(w->work->device, w->numbers, gm_tensor_data(all), bytes);
    else gm_experts_balance(&w->plan, gm_experts_choices(r, &s->x, w->k), w->numbers);
}

/* The bounds of the rows away, which the host knows; those here are from GM_OP_experts_order. */
static void write_away(gm_experts_work *w)
{
    const gm_experts_plan *p = &w->plan;
    size_t                 bytes = (size_t)(p->place[p->here].count + 1) * sizeof(int64_t);
    gm_tensor             *away = p->p > 1 ? gm_work_select(w->work, w->bounds, 0, 1) : NULL;
    if (!away || !w->work->device->backend->has_data) return;
    int64_t *bounds = malloc(bytes);
    if (!bounds) w->work->st = GM_FAIL(GM_ENOMEM, "experts: no memory for %zu bytes of bounds", bytes);
    if (bounds) gm_experts_away_bounds(p, bounds);
    GM_STEP(w->work, gm_device_write(w->work->device, gm_tensor_data(away), bounds, bytes));
    free(bounds);
}

void gm_experts_begin(gm_experts_work *w, gm_rank *r, const gm_experts_sides *s, gm_tensor *index, int64_t capacity)
{
    gm_experts_plan *p = &w->plan;
    gm_attrs         a = gm_attrs_default();
    start_work(w, r, s, capacity);
    if (w->work->st != GM_OK) return;
    w->tokens = index->shape[0];
    w->k = index->shape[1];
    a.experts = p->experts;
    a.first = p->place[p->here].first;
    a.ahead = p->place[p->here].count;
    a.capacity = capacity;
    int64_t    n = capacity ? p->experts * capacity : w->tokens * w->k, numbers = gm_experts_numbers(p);
    gm_tensor *all = gm_work_new(w->work, GM_I64, 1, &numbers);
    w->choice = gm_work_new(w->work, GM_I64, 1, &n);
    w->row = gm_work_new(w->work, GM_I64, 2, index->shape);
    w->bounds = gm_work_new(w->work, GM_I64, 2, (int64_t[]){p->p > 1 ? 2 : 1, a.ahead + 1});
    gm_work_into(w->work, GM_OP_experts_order, 1, &index, &a, 4,
                 (gm_tensor *[]){w->choice, w->row, gm_work_narrow(w->work, all, 0, 0, p->experts),
                                 gm_work_select(w->work, w->bounds, 0, 0)});
    if (p->p > 1) learn_numbers(w, r, s, all);
    if (w->work->st == GM_OK) gm_experts_lay_rows(p, w->tokens * w->k, w->numbers);
    write_away(w);
}

void gm_experts_resume(gm_experts_work *w, gm_rank *r, const gm_experts_sides *s, const int64_t *numbers,
                       int64_t capacity)
{
    start_work(w, r, s, capacity);
    w->tokens = w->row->shape[0];
    w->k = w->row->shape[1];
    if (w->work->st == GM_OK) gm_experts_lay_rows(&w->plan, w->tokens * w->k, numbers);
}

void gm_experts_end(gm_experts_work *w)
{
    gm_comm_drop(w->plan.comm, w->flight);
    gm_experts_hold(w, NULL);
    free(w->numbers);
    gm_experts_plan_free(&w->plan);
}

void gm_experts_hold(gm_experts_work *w, gm_tensor *const *blocks)
{
    for (int i = 0; i < GM_EXPERTS_HELD; i++) {
        if (w->held[i]) gm_storage_close(w->held[i]->storage, false);
        w->held[i] = NULL;
    }
    for (int i = 0; blocks && i < GM_EXPERTS_HELD; i++) {
        if (blocks[i]) GM_STEP(w->work, gm_storage_open(blocks[i]->storage));
        if (w->work->st == GM_OK) w->held[i] = blocks[i];
    }
}

/* ---- rows ---- */

gm_tensor *gm_experts_part(gm_experts_work *w, gm_tensor *t, int64_t first, int64_t n)
{
    return n ? gm_work_narrow(w->work, t, 0, first, n) : NULL;
}

gm_tensor *gm_experts_new(gm_experts_work *w, int64_t rows, int64_t width)
{
    return w->work->st == GM_OK ? gm_work_new(w->work, w->up->dtype, 2, (int64_t[]){rows, width}) : NULL;
}

void gm_experts_gather(gm_experts_work *w, gm_tensor *x, gm_tensor *choice, gm_tensor *weight, gm_tensor *to)
{
    gm_attrs a = gm_attrs_default();
    a.k = w->k;
    if (choice) gm_work_into(w->work, GM_OP_experts_gather, 3, (gm_tensor *[]){x, choice, weight}, &a, 1, &to);
}

void gm_experts_combine(gm_experts_work *w, gm_tensor *y, gm_tensor *weight, bool accumulate, gm_tensor *x)
{
    gm_attrs a = gm_attrs_default();
    a.accumulate = accumulate;
    gm_work_into(w->work, GM_OP_experts_combine, 3, (gm_tensor *[]){y, w->row, weight}, &a, 1, &x);
}

/* ---- travel ---- */

void gm_experts_travel(gm_experts_work *w, gm_tensor *ours, gm_tensor *theirs, bool back)
{
    const gm_experts_plan *p = &w->plan;
    if (p->p == 1) return;
    if (!ours) ours = gm_experts_new(w, 0, w->width);
    if (!theirs) theirs = gm_experts_new(w, 0, w->width);
    if (w->work->st != GM_OK) return;
    w->work->sent = true;
    GM_STEP(w->work, back ? gm_comm_all_to_all_rows(p->comm, p->group, theirs, p->away, ours, p->sent, &w->flight)
                          : gm_comm_all_to_all_rows(p->comm, p->group, ours, p->sent, theirs, p->away, &w->flight));
}

void gm_experts_arrive(gm_experts_work *w)
{
    if (w->work->st == GM_OK) GM_STEP(w->work, gm_comm_finish(w->plan.comm, &w->flight));
}

/* ---- spans ---- */

void gm_experts_all(gm_experts_work *w, bool away, gm_experts_step step, void *context)
{
    const gm_experts_plan *p = &w->plan;
    gm_experts_span        s = {away, away ? p->n_here : 0, away ? p->n_away : p->n_here};
    int                    mark = w->work->n_held;
    if (w->work->st != GM_OK || s.n == 0) return;
    step(w, context, &s);
    gm_work_drop(w->work, mark);
    if (w->flight) GM_STEP(w->work, gm_comm_poll(p->comm));
}

gm_tensor *gm_experts_span_of(gm_experts_work *w, gm_tensor *t, const gm_experts_span *s, int64_t from)
{
    return t ? gm_experts_part(w, t, s->first - from, s->n) : NULL;
}

gm_tensor *gm_experts_of(gm_experts_work *w, gm_tensor *block, int hidden_dim)
{
    const gm_experts_plan *p = &w->plan;
    if (!block) return NULL;
    gm_tensor *own = gm_work_narrow(w->work, block, 0, 0, p->place[p->here].count);
    return hidden_dim < 0 ? own : gm_work_narrow(w->work, own, hidden_dim, 0, w->hidden);
}

/* ---- products ---- */

/* The rows of a span (n, width) as a batch (experts, rows of each, width). */
static gm_tensor *batch(gm_experts_work *w, gm_tensor *t)
{
    const gm_experts_plan *p = &w->plan;
    return t ? gm_work_shaped(w->work, t, 3, (int64_t[]){p->experts, p->capacity, t->shape[1]}) : NULL;
}

static void multiply(gm_experts_work *w, gm_tensor *a, bool ta, gm_tensor *b, bool tb, bool accumulate, gm_tensor *y)
{
    gm_attrs at = gm_attrs_default();
    at.transpose_a = ta;
    at.transpose_b = tb;
    at.accumulate = accumulate;
    gm_work_into(w->work, GM_OP_matmul, 2, (gm_tensor *[]){a, b}, &at, 1, &y);
}

static gm_tensor *bounds_of(gm_experts_work *w, const gm_experts_span *s)
{
    return gm_work_select(w->work, w->bounds, 0, s->away);
}

/* The bias of each expert in each of its rows: what its products are added to, rounded once, as in the op linear. */
static void spread_bias(gm_experts_work *w, gm_tensor *bias, gm_tensor *y)
{
    const gm_experts_plan *p = &w->plan;
    gm_tensor             *one = gm_work_shaped(w->work, bias, 3, (int64_t[]){p->experts, 1, bias->shape[1]});
    gm_work_copy(w->work, gm_work_expand(w->work, one, 3, (int64_t[]){p->experts, p->capacity, bias->shape[1]}), y);
}

void gm_experts_linear(gm_experts_work *w, const gm_experts_span *s, gm_tensor *x, gm_tensor *weight, gm_tensor *bias,
                       gm_tensor *y)
{
    gm_attrs a = gm_attrs_default();
    if (w->work->st != GM_OK) return;
    if (w->plan.capacity) {
        if (bias) spread_bias(w, bias, batch(w, y));
        multiply(w, batch(w, x), false, weight, true, bias != NULL, batch(w, y));
        return;
    }
    a.transpose_b = true;
    gm_work_into(w->work, GM_OP_grouped_matmul, 4, (gm_tensor *[]){x, weight, bounds_of(w, s), bias}, &a, 1, &y);
}

void gm_experts_input_gradient(gm_experts_work *w, const gm_experts_span *s, gm_tensor *g, gm_tensor *weight,
                               bool accumulate, gm_tensor *dx)
{
    gm_attrs a = gm_attrs_default();
    if (w->work->st != GM_OK) return;
    if (w->plan.capacity) {
        multiply(w, batch(w, g), false, weight, false, accumulate, batch(w, dx));
        return;
    }
    a.accumulate = accumulate;
    gm_work_into(w->work, GM_OP_grouped_matmul, 4, (gm_tensor *[]){g, weight, bounds_of(w, s), NULL}, &a, 1, &dx);
}

static void batch_gradient(gm_experts_work *w, gm_tensor *g, gm_tensor *x, gm_tensor *dw, bool add_dw, gm_tensor *db,
                           bool add_db)
{
    if (dw) multiply(w, batch(w, g), true, batch(w, x), false, add_dw, dw);
    if (!db) return;
    gm_tensor *sum = gm_work_sum(w->work, batch(w, g), 1u << 1, false, add_db ? NULL : db);
    if (add_db) gm_work_into(w->work, GM_OP_axpy, 1, &sum, NULL, 1, &db);
}

static void group_gradient(gm_experts_work *w, const gm_experts_span *s, gm_tensor *g, gm_tensor *x, gm_tensor *dw,
                           gm_tensor *db, bool add)
{
    gm_attrs a = gm_attrs_default();
    a.accumulate = add;
    if (dw || db)
        gm_work_into(w->work, GM_OP_grouped_weight_grad, 3, (gm_tensor *[]){g, x, bounds_of(w, s)}, &a, 2,
                     (gm_tensor *[]){dw, db});
}

void gm_experts_weight_gradient(gm_experts_work *w, const gm_experts_span *s, gm_tensor *g, gm_tensor *x, gm_tensor *dw,
                                bool add_dw, gm_tensor *db, bool add_db)
{
    bool together = !dw || !db || add_dw == add_db;
    if (w->work->st != GM_OK) return;
    if (w->plan.capacity) {
        batch_gradient(w, g, x, dw, add_dw, db, add_db);
        return;
    }
    group_gradient(w, s, g, x, dw, together ? db : NULL, dw ? add_dw : add_db);
    if (!together) group_gradient(w, s, g, x, NULL, db, add_db);
}

gm_tensor *gm_experts_activate(gm_experts_work *w, gm_tensor *gate, gm_tensor *pre)
{
    if (w->f == GM_FN_none || w->work->st != GM_OK) return pre;
    return gate ? gm_work_binary(w->work, w->f, gate, pre) : gm_work_unary(w->work, w->f, pre);
}

void gm_experts_slope(gm_experts_work *w, gm_tensor *g, gm_tensor *gate, gm_tensor *pre, gm_tensor *dgate,
                      gm_tensor *dpre)
{
    gm_attrs a = gm_attrs_default();
    a.function = w->f;
    if (gate)
        gm_work_into(w->work, GM_OP_gate_grad, 3, (gm_tensor *[]){g, gate, pre}, &a, 2, (gm_tensor *[]){dgate, dpre});
    else gm_work_into(w->work, GM_OP_unary_grad, 2, (gm_tensor *[]){pre, g}, &a, 1, &dpre);
}
