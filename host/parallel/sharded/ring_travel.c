/* ring_travel.c - see ring_travel.h.
 *
 * In step t place r has block j = r + t, and these messages are its calls, in this order:
 *     receive from r + 1       gradient of j, so far                               backward; taken in this step
 *     send    to   r - 1       the rows of j that it has next
 *     send    to   r - t - 1   the rows of r's own block that place r - t does not hand on to it
 *     receive from r + 1 and j + 1: the block of the next step
 *     receive from r - t       gradient of r's own block                           backward; taken in the next step
 *     send    to   r - 1 and j: gradient of j, after the work                      backward
 * No place waits in step t for anything that another place does in a later step, so the ring cannot deadlock. */
#include "ring_travel.h"

/* ---- small things ---- */

gm_status gm_ring_open(gm_rank *r, gm_ring *w)
{
    *w = (gm_ring){.rank = r};
    GM_TRY(gm_rank_device(r, &w->dev));
    return gm_rank_comm(r, &w->comm);
}

static void drop(gm_ring *w, gm_flights *f)
{
    for (int i = 0; i < f->n; i++) gm_comm_drop(w->comm, f->pending[i]);
    f->n = 0;
}

void gm_ring_close(gm_ring *w)
{
    drop(w, &w->key_sends);
    drop(w, &w->key_receives);
    drop(w, &w->before_receives);
    drop(w, &w->moves);
    gm_tensor_release(w->home);
    gm_tensor_release(w->gradient);
    gm_tensor_release(w->before);
    for (int i = 0; i < 2; i++) {
        drop(w, &w->part_sends[i]);
        drop(w, &w->returned_receives[i]);
        gm_tensor_release(w->passing[i]);
        gm_tensor_release(w->part[i]);
        gm_tensor_release(w->returned[i]);
    }
    gm_ring_plan_free(&w->plan);
}

gm_status gm_ring_new(gm_ring *w, int ndim, const int64_t *shape, gm_tensor **out)
{
    gm_rank_place(w->rank, "ring_attention");
    return gm_tensor_new(w->dev, w->dtype, ndim, shape, out);
}

static gm_status run(gm_ring *w, gm_op op, gm_tensor *in, gm_tensor *out)
{
    return gm_tensor_numel(out) ? gm_run_one(w->dev, op, NULL, in, out) : GM_OK;
}

gm_status gm_ring_zero(gm_ring *w, gm_tensor *t) { return run(w, GM_OP_fill, NULL, t); }
gm_status gm_ring_copy(gm_ring *w, gm_tensor *from, gm_tensor *to) { return run(w, GM_OP_copy, from, to); }

gm_status gm_ring_turn(gm_tensor *t, gm_tensor **out) { return gm_tensor_permute(t, (int[]){1, 0, 2, 3}, out); }

/* Waits for all; the first failure. */
static gm_status wait_for(gm_ring *w, gm_flights *f)
{
    gm_status st = GM_OK;
    for (int i = 0; i < f->n && st == GM_OK; i++) {
        st = gm_comm_finish(w->comm, &f->pending[i]);
        if (st == GM_OK) continue;
        for (int k = i + 1; k < f->n; k++) gm_comm_drop(w->comm, f->pending[k]);
    }
    f->n = 0;
    return st;
}

/* Starts a message of rows [from, to) of t between here and another place; none where there are no rows. */
static gm_status start(gm_ring *w, gm_flights *f, bool send, gm_tensor *t, int64_t from, int64_t to, int place)
{
    gm_tensor *rows = NULL;
    if (to <= from) return GM_OK;
    GM_TRY(gm_tensor_narrow(t, 0, from, to - from, &rows));
    w->sent = true;
    int       member = w->plan.place[place].member;
    gm_status st = send ? gm_comm_send(w->comm, w->plan.group, rows, member, &f->pending[f->n])
                        : gm_comm_receive(w->comm, w->plan.group, rows, member, &f->pending[f->n]);
    gm_tensor_release(rows);
    if (st == GM_OK) f->n++;
    return st;
}

static int block_of_step(const gm_ring *w, int t) { return gm_ring_step(&w->plan, w->plan.here, t); }

/* ---- keys and values ---- */

/* Part `which` (0: keys, 1: values) of the first rows, (batch, rows, heads, size). */
static gm_status half_of(gm_tensor *both, int which, int64_t rows, gm_tensor **out)
{
    gm_tensor *first = NULL, *one = NULL;
    gm_status  st;
    *out = NULL;
    GM_TRY(gm_tensor_narrow(both, 0, 0, rows, &first));
    GM_TRY_OR(gm_tensor_select(first, 1, which, &one), st, done);
    st = gm_ring_turn(one, out);
done:
    gm_tensor_release(first);
    gm_tensor_release(one);
    return st;
}

static gm_status halves_of(gm_tensor *both, int64_t rows, gm_tensor **k, gm_tensor **v)
{
    *k = *v = NULL;
    GM_TRY(half_of(both, 0, rows, k));
    gm_status st = half_of(both, 1, rows, v);
    if (st == GM_OK) return GM_OK;
    gm_tensor_release(*k);
    *k = NULL;
    return st;
}

static gm_status new_block(gm_ring *w, int64_t rows, gm_tensor **out)
{
    return gm_ring_new(w, 5, (int64_t[]){rows, 2, w->batch, w->key_heads, w->size}, out);
}

static void at_least(int64_t *most, int64_t n) { *most = n > *most ? n : *most; }

/* Rows that step t brings of the gradient of this place's block: [*from, *to), from place here - t. */
static int returned_rows(const gm_ring *w, int t, int64_t *from, int64_t *to)
{
    const gm_ring_plan *p = &w->plan;
    int                 place = gm_ring_step(p, p->here, -t);
    *from = gm_ring_handed(p, gm_ring_step(p, place, -1), p->here);
    *to = t ? gm_ring_need(p, place, p->here) : 0;
    return place;
}

/* Rows of the gradient of step t's block that come from place here + 1: not from the block's home, which has none. */
static int64_t rows_before(const gm_ring *w, int t)
{
    return t > 1 ? gm_ring_handed(&w->plan, w->plan.here, block_of_step(w, t)) : 0;
}

static gm_status take_memory(gm_ring *w, bool gradients)
{
    int64_t own = w->plan.place[w->plan.here].keys.count, most[2] = {0, 0}, before = 0, back[2] = {0, 0}, from, to;
    for (int t = 1; t < w->plan.p; t++) {
        at_least(&most[t & 1], gm_ring_need(&w->plan, w->plan.here, block_of_step(w, t)));
        at_least(&before, rows_before(w, t));
        returned_rows(w, t, &from, &to);
        at_least(&back[t & 1], to - from);
    }
    GM_TRY(new_block(w, own, &w->home));
    for (int i = 0; i < 2; i++) GM_TRY(new_block(w, most[i], &w->passing[i]));
    if (!gradients) return GM_OK;
    GM_TRY(new_block(w, own, &w->gradient));
    GM_TRY(new_block(w, before, &w->before));
    for (int i = 0; i < 2; i++) {
        GM_TRY(new_block(w, most[i], &w->part[i]));
        GM_TRY(new_block(w, back[i], &w->returned[i]));
    }
    return gm_ring_zero(w, w->gradient);
}

gm_status gm_ring_keys_pack(gm_ring *w, gm_tensor *k, gm_tensor *v, bool gradients)
{
    gm_tensor *in[2] = {k, v}, *to[2] = {NULL, NULL}, *rows = NULL;
    int64_t    own = w->plan.place[w->plan.here].keys.count;
    gm_status  st = GM_OK;
    GM_TRY(take_memory(w, gradients));
    GM_TRY(halves_of(w->home, own, &to[0], &to[1]));
    for (int i = 0; i < 2 && st == GM_OK; i++) {
        st = gm_tensor_narrow(in[i], 1, 0, own, &rows);
        if (st == GM_OK) st = gm_ring_copy(w, rows, to[i]);
        gm_tensor_release(rows);
        rows = NULL;
    }
    gm_tensor_release(to[0]);
    gm_tensor_release(to[1]);
    return st;
}

static gm_tensor *keys_of_step(gm_ring *w, int t) { return t ? w->passing[t & 1] : w->home; }

static gm_status send_keys(gm_ring *w, int t)
{
    const gm_ring_plan *p = &w->plan;
    int                 next = gm_ring_step(p, p->here, -1), far = gm_ring_step(p, p->here, -t - 1);
    GM_TRY(start(w, &w->key_sends, true, keys_of_step(w, t), 0, gm_ring_handed(p, next, block_of_step(w, t)), next));
    return start(w, &w->key_sends, true, w->home, gm_ring_handed(p, far, p->here), gm_ring_need(p, far, p->here), far);
}

static gm_status receive_keys(gm_ring *w, int t)
{
    const gm_ring_plan *p = &w->plan;
    int                 block = block_of_step(w, t);
    int64_t             handed = gm_ring_handed(p, p->here, block), need = gm_ring_need(p, p->here, block);
    gm_tensor          *to = keys_of_step(w, t);
    GM_TRY(start(w, &w->key_receives, false, to, 0, handed, gm_ring_step(p, p->here, 1)));
    return start(w, &w->key_receives, false, to, handed, need, block);
}

gm_status gm_ring_keys_step(gm_ring *w, int t, gm_tensor **k, gm_tensor **v)
{
    int64_t rows = gm_ring_need(&w->plan, w->plan.here, block_of_step(w, t));
    *k = *v = NULL;
    GM_TRY(wait_for(w, &w->key_receives));
    GM_TRY(wait_for(w, &w->key_sends)); /* of the step before: what it sent is about to be replaced */
    if (t + 1 < w->plan.p) {
        GM_TRY(send_keys(w, t));
        GM_TRY(receive_keys(w, t + 1));
    }
    return rows ? halves_of(keys_of_step(w, t), rows, k, v) : GM_OK;
}

gm_status gm_ring_keys_end(gm_ring *w) { return wait_for(w, &w->key_sends); }

/* ---- gradients of keys and values ---- */

gm_status gm_ring_gradient_await(gm_ring *w, int t)
{
    return start(w, &w->before_receives, false, w->before, 0, rows_before(w, t),
                 gm_ring_step(&w->plan, w->plan.here, 1));
}

gm_status gm_ring_gradient_step(gm_ring *w, int t, gm_tensor **dk, gm_tensor **dv)
{
    int64_t from, to, rows = gm_ring_need(&w->plan, w->plan.here, block_of_step(w, t));
    int     place = returned_rows(w, t, &from, &to);
    *dk = *dv = NULL;
    if (!t) return rows ? halves_of(w->gradient, rows, dk, dv) : GM_OK;
    GM_TRY(start(w, &w->returned_receives[t & 1], false, w->returned[t & 1], 0, to - from, place));
    GM_TRY(wait_for(w, &w->part_sends[t & 1])); /* of two steps before */
    GM_TRY(gm_ring_zero(w, w->part[t & 1]));
    return rows ? halves_of(w->part[t & 1], rows, dk, dv) : GM_OK;
}

/* The first rows of `more` are added to rows [from, to) of t. */
static gm_status add(gm_ring *w, gm_tensor *t, int64_t from, int64_t to, gm_tensor *more)
{
    gm_tensor *rows = NULL, *term = NULL;
    gm_status  st;
    if (to <= from) return GM_OK;
    GM_TRY(gm_tensor_narrow(t, 0, from, to - from, &rows));
    GM_TRY_OR(gm_tensor_narrow(more, 0, 0, to - from, &term), st, done);
    st = run(w, GM_OP_axpy, term, rows);
done:
    gm_tensor_release(rows);
    gm_tensor_release(term);
    return st;
}

static gm_status take_returned(gm_ring *w, int t)
{
    int64_t from, to;
    if (t < 1) return GM_OK;
    returned_rows(w, t, &from, &to);
    GM_TRY(wait_for(w, &w->returned_receives[t & 1]));
    return add(w, w->gradient, from, to, w->returned[t & 1]);
}

gm_status gm_ring_gradient_leave(gm_ring *w, int t)
{
    const gm_ring_plan *p = &w->plan;
    int                 block = block_of_step(w, t), next = gm_ring_step(p, p->here, -1);
    gm_tensor          *part = w->part[t & 1];
    gm_flights         *sends = &w->part_sends[t & 1];
    if (!t) return GM_OK;
    GM_TRY(wait_for(w, &w->before_receives));
    GM_TRY(add(w, part, 0, rows_before(w, t), w->before));
    int64_t onward = gm_ring_handed(p, next, block);
    GM_TRY(start(w, sends, true, part, 0, onward, next));
    GM_TRY(start(w, sends, true, part, onward, gm_ring_need(p, p->here, block), block));
    return take_returned(w, t - 1);
}

/* The first rows of to (batch, room, heads, size) = from; the others zero. */
static gm_status put_rows(gm_ring *w, gm_tensor *from, gm_tensor *to)
{
    gm_tensor *rows = NULL;
    if (from->shape[1] < to->shape[1]) GM_TRY(gm_ring_zero(w, to));
    GM_TRY(gm_tensor_narrow(to, 1, 0, from->shape[1], &rows));
    gm_status st = gm_ring_copy(w, from, rows);
    gm_tensor_release(rows);
    return st;
}

gm_status gm_ring_gradient_home(gm_ring *w, gm_tensor *dk, gm_tensor *dv)
{
    gm_tensor *k = NULL, *v = NULL;
    GM_TRY(take_returned(w, w->plan.p - 1));
    for (int i = 0; i < 2; i++) GM_TRY(wait_for(w, &w->part_sends[i]));
    GM_TRY(gm_ring_keys_end(w));
    GM_TRY(halves_of(w->gradient, w->gradient->shape[0], &k, &v));
    gm_status st = put_rows(w, k, dk);
    if (st == GM_OK) st = put_rows(w, v, dv);
    gm_tensor_release(k);
    gm_tensor_release(v);
    return st;
}

/* ---- queries ---- */

/* Where chunk k begins among the rows of its home, and of its worker. */
static int64_t offset_at_home(const gm_ring_plan *p, int k) { return k % 2 ? gm_ring_chunk(p, k - 1).count : 0; }
static int64_t offset_at_work(const gm_ring_plan *p, int k)
{
    return k < p->p ? 0 : p->place[gm_ring_worker(p, k)].work[0].count;
}

static gm_status copy_rows(gm_ring *w, gm_tensor *from, int64_t at, gm_tensor *to, int64_t to_at, int64_t n)
{
    gm_tensor *a = NULL, *b = NULL;
    gm_status  st;
    GM_TRY(gm_tensor_narrow(from, 0, at, n, &a));
    GM_TRY_OR(gm_tensor_narrow(to, 0, to_at, n, &b), st, done);
    st = gm_ring_copy(w, a, b);
done:
    gm_tensor_release(a);
    gm_tensor_release(b);
    return st;
}

/* Chunk k, as far as this place has to do with it. */
static gm_status move_chunk(gm_ring *w, int k, bool back, gm_tensor *home, gm_tensor *work)
{
    const gm_ring_plan *p = &w->plan;
    int                 at = gm_ring_home(k), worker = gm_ring_worker(p, k);
    int64_t             n = gm_ring_chunk(p, k).count, h = offset_at_home(p, k), o = offset_at_work(p, k);
    if (at == p->here && worker == p->here)
        return back ? copy_rows(w, work, o, home, h, n) : copy_rows(w, home, h, work, o, n);
    if (at == p->here) return start(w, &w->moves, !back, home, h, h + n, worker);
    if (worker == p->here) return start(w, &w->moves, back, work, o, o + n, at);
    return GM_OK;
}

gm_status gm_ring_move(gm_ring *w, bool back, gm_tensor *home, gm_tensor *work)
{
    for (int k = 0; k < 2 * w->plan.p; k++) GM_TRY(move_chunk(w, k, back, home, work));
    return GM_OK;
}

gm_status gm_ring_moved(gm_ring *w) { return wait_for(w, &w->moves); }
