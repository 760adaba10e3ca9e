/* halo.c - see halo.h. */
#include "halo.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../../kernels/infer.h"

/* ---- which rows are read ---- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t floor_of(int64_t a, int64_t by) { return a >= 0 ? a / by : -((-a + by - 1) / by); }
static int64_t ceil_of(int64_t a, int64_t by) { return -floor_of(-a, by); }

/* Rows [first, end) as far as there are such. */
static gm_halo_run inside(const gm_halo_axis *axis, int64_t first, int64_t end)
{
    first = most(first, 0);
    end = least(end, axis->n);
    return (gm_halo_run){end > first ? first : 0, most(end - first, 0)};
}

gm_halo_run gm_halo_of_windows(const gm_halo_axis *axis, gm_halo_run made)
{
    int64_t first = made.first * axis->stride - axis->before;
    return inside(axis, first, first + (made.count - 1) * axis->stride + gm_halo_reach(axis));
}

gm_halo_run gm_halo_of_kernels(const gm_halo_axis *axis, gm_halo_run made)
{
    int64_t from = made.first + axis->before, to = from + made.count; /* rows made, counted from the first kernel */
    int64_t reach = gm_halo_reach(axis), s = axis->stride;
    int64_t first = most(least(ceil_of(from - reach + 1, s), floor_of(from, s)), 0);
    int64_t end = most(floor_of(to - 1, s), ceil_of(to - reach, s)) + 1;
    first = least(first, axis->n - 1);
    return inside(axis, first, most(end, first + 1));
}

int64_t gm_halo_source(const gm_halo_axis *axis, int64_t o)
{
    double at, i = (double)o;
    if (axis->places == GM_HALO_NEAREST) at = i * axis->scale;
    else if (axis->places == GM_HALO_LINEAR) at = fmax(0, (i + 0.5) * axis->scale - 0.5);
    else at = axis->out > 1 ? i * (double)(axis->n - 1) / (double)(axis->out - 1) : 0;
    int64_t row = least((int64_t)floor(at), axis->n - 1);
    return axis->next ? least(row + 1, axis->n - 1) : row;
}

gm_halo_run gm_halo_of_sizes(const gm_halo_axis *axis, gm_halo_run made) /* places do not fall */
{
    return inside(axis, gm_halo_source(axis, made.first), gm_halo_source(axis, made.first + made.count - 1) + 1);
}

/* ---- the plan ---- */

/* The rows of a dimension that a rank has. */
static gm_halo_run rows_of_rank(const gm_mesh *mesh, const gm_layout *layout, int64_t n, int rank)
{
    gm_box  box;
    int     at[GM_MAX_AXES];
    int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    gm_mesh_coordinates(mesh, rank, at);
    gm_layout_block(mesh, layout, at, 1, &n, &box, local, logical);
    return (gm_halo_run){box.offset[0], logical[0]};
}

static gm_status plan(gm_rank *r, const char *op, const gm_layout *layout, int dim, const gm_halo_axis *axis,
                      gm_halo_reads reads, gm_halo *h)
{
    gm_layout x = gm_layout_replicated(), y;
    gm_layout_copy_dim(&x, 0, layout, dim);
    y = x;
    y.unit[0] = 0;
    for (int j = 0; j < h->p; j++) {
        gm_halo_place *at = &h->place[j];
        int            rank = gm_group_member(h->group, j);
        at->has = rows_of_rank(&r->mesh, &x, axis->n, rank);
        at->makes = rows_of_rank(&r->mesh, &y, axis->out, rank);
        if (!at->makes.count) continue;
        at->reads = reads(axis, at->makes);
        if (!at->reads.count)
            return GM_FAIL(GM_ESHAPE,
                           "%s: ranks share dimension %d, and places %" PRId64 " to %" PRId64
                           " of the result lie in the padding alone; pad less, or make the dimension whole",
                           op, dim + 1, at->makes.first + 1, at->makes.first + at->makes.count);
    }
    return GM_OK;
}

gm_status gm_halo_open(gm_rank *r, const char *op, const gm_layout *layout, int dim, const gm_halo_axis *axis,
                       gm_halo_reads reads, gm_halo *h)
{
    gm_comm *comm;
    *h = (gm_halo){.dim = dim};
    GM_TRY(gm_rank_comm(r, &comm));
    GM_TRY(gm_comm_group(comm, gm_layout_dim_axes(layout, dim), &h->group));
    h->p = gm_group_size(h->group);
    h->here = gm_group_rank(h->group);
    h->place = calloc((size_t)h->p, sizeof *h->place);
    h->flight = calloc(2 * (size_t)h->p, sizeof *h->flight);
    if (!h->place || !h->flight) return GM_FAIL(GM_ENOMEM, "%s: no memory for a plan of %d ranks", op, h->p);
    return plan(r, op, layout, dim, axis, reads, h);
}

void gm_halo_close(gm_work *w, gm_halo *h)
{
    for (int i = 0; h->flight && i < 2 * h->p; i++) {
        gm_comm_drop(w->rank->comm, h->flight[i].pending);
        gm_tensor_release(h->flight[i].t);
    }
    free(h->place);
    free(h->flight);
    *h = (gm_halo){0};
}

/* ---- messages ---- */

static gm_halo_run meet(gm_halo_run a, gm_halo_run b)
{
    int64_t first = most(a.first, b.first), end = least(a.first + a.count, b.first + b.count);
    return (gm_halo_run){first, most(end - first, 0)};
}

/* The rows that one place has and the other reads. */
static gm_halo_run crossing(const gm_halo *h, int has, int reads)
{
    return meet(h->place[has].has, h->place[reads].reads);
}

/* These rows of t, whose first row is `first`. */
static gm_tensor *part(gm_work *w, const gm_halo *h, gm_tensor *t, int64_t first, gm_halo_run rows)
{
    return gm_work_narrow(w, t, h->dim, rows.first - first, rows.count);
}

gm_tensor *gm_halo_rows(gm_work *w, const gm_halo *h, gm_dtype dtype, int ndim, const int64_t *like, int64_t rows)
{
    int64_t shape[GM_MAX_DIMS];
    memcpy(shape, like, (size_t)ndim * sizeof *shape);
    shape[h->dim] = rows;
    return gm_work_new(w, dtype, ndim, shape);
}

gm_tensor *gm_halo_made(gm_work *w, const gm_halo *h, gm_tensor *block)
{
    int64_t count = gm_halo_here(h)->makes.count;
    return count < block->shape[h->dim] ? gm_halo_rows(w, h, block->dtype, block->ndim, block->shape, count) : block;
}

void gm_halo_put(gm_work *w, const gm_halo *h, gm_tensor *made, gm_tensor *block)
{
    if (made != block) gm_work_copy(w, made, gm_work_narrow(w, block, h->dim, 0, gm_halo_here(h)->makes.count));
}

/* Starts all messages: rows of `from`, whose first row is `first`, go out, back: as gradients to where they come from.
 * dtype, ndim and shape: of what comes, but for the number of rows. */
static void start(gm_work *w, gm_halo *h, gm_tensor *from, int64_t first, bool back, const gm_spec *like)
{
    gm_comm *comm = w->rank->comm;
    int      mark = w->n_held;
    if (w->st != GM_OK) return;
    w->sent = true;
    for (int j = 0; j < h->p; j++) {
        gm_halo_run     in = back ? crossing(h, h->here, j) : crossing(h, j, h->here);
        gm_halo_flight *f = &h->flight[j];
        if (j == h->here || !in.count) continue;
        f->t = gm_work_keep(w, gm_halo_rows(w, h, like->dtype, like->ndim, like->shape, in.count));
        GM_STEP(w, gm_comm_receive(comm, h->group, f->t, j, &f->pending));
    }
    for (int j = 0; j < h->p; j++) {
        gm_halo_run out = back ? crossing(h, j, h->here) : crossing(h, h->here, j);
        if (j == h->here || !out.count) continue;
        gm_tensor *rows = gm_work_contiguous(w, part(w, h, from, first, out));
        GM_STEP(w, gm_comm_send(comm, h->group, rows, j, &h->flight[h->p + j].pending));
        gm_work_drop(w, mark); /* the comm holds it */
    }
}

/* What has come from place j, once it is there; NULL: nothing comes. */
static gm_tensor *arrived(gm_work *w, gm_halo *h, int j)
{
    gm_halo_flight *f = &h->flight[j];
    if (!f->t) return NULL;
    GM_STEP(w, gm_comm_finish(w->rank->comm, &f->pending));
    gm_tensor *t = gm_work_hold(w, f->t);
    f->t = NULL;
    return t;
}

static void finish_sends(gm_work *w, gm_halo *h)
{
    for (int j = 0; j < h->p; j++) GM_STEP(w, gm_comm_finish(w->rank->comm, &h->flight[h->p + j].pending));
}

static gm_spec spec_of(const gm_tensor *t) { return gm_spec_of(t->dtype, t->ndim, t->shape); }

void gm_halo_start_fetch(gm_work *w, gm_halo *h, gm_tensor *block)
{
    if (w->st != GM_OK) return;
    gm_spec like = spec_of(block);
    start(w, h, block, gm_halo_here(h)->has.first, false, &like);
}

gm_tensor *gm_halo_end_fetch(gm_work *w, gm_halo *h, gm_tensor *block)
{
    if (w->st != GM_OK) return NULL;
    const gm_halo_place *here = gm_halo_here(h);
    gm_halo_run          own = meet(here->has, here->reads);
    gm_tensor           *rows = NULL;
    if (own.count == here->reads.count) {
        if (own.count) rows = gm_work_contiguous(w, part(w, h, block, here->has.first, own));
    } else {
        rows = gm_halo_rows(w, h, block->dtype, block->ndim, block->shape, here->reads.count);
        int mark = w->n_held;
        if (own.count)
            gm_work_copy(w, part(w, h, block, here->has.first, own), part(w, h, rows, here->reads.first, own));
        for (int j = 0; j < h->p; j++) {
            gm_tensor *t = arrived(w, h, j);
            if (t) gm_work_copy(w, t, part(w, h, rows, here->reads.first, crossing(h, j, h->here)));
            gm_work_drop(w, mark);
        }
    }
    finish_sends(w, h);
    return rows;
}

gm_tensor *gm_halo_fetch(gm_work *w, gm_halo *h, gm_tensor *block)
{
    gm_halo_start_fetch(w, h, block);
    return gm_halo_end_fetch(w, h, block);
}

/* The gradient of the rows that this rank has, of its own reading alone. */
static gm_tensor *own_gradient(gm_work *w, const gm_halo *h, gm_tensor *rows, const gm_spec *block)
{
    const gm_halo_place *here = gm_halo_here(h);
    gm_halo_run          own = meet(here->has, here->reads);
    int64_t              room = block->shape[h->dim];
    if (own.count == room && here->reads.count == room) return rows; /* none of it was sent */
    gm_tensor *to = gm_work_new(w, block->dtype, block->ndim, block->shape);
    if (own.count < room) gm_work_fill(w, to, 0);
    if (own.count) gm_work_copy(w, part(w, h, rows, here->reads.first, own), part(w, h, to, here->has.first, own));
    return to;
}

void gm_halo_start_return(gm_work *w, gm_halo *h, gm_tensor *rows, const gm_spec *block)
{
    if (w->st == GM_OK) start(w, h, rows, gm_halo_here(h)->reads.first, true, block);
}

gm_tensor *gm_halo_end_return(gm_work *w, gm_halo *h, gm_tensor *rows, const gm_spec *block)
{
    if (w->st != GM_OK) return NULL;
    gm_tensor *to = own_gradient(w, h, rows, block);
    int        mark = w->n_held;
    for (int j = 0; j < h->p; j++) {
        gm_tensor *t = arrived(w, h, j), *at;
        if (!t) continue;
        at = part(w, h, to, gm_halo_here(h)->has.first, crossing(h, h->here, j));
        gm_work_into(w, GM_OP_axpy, 1, &t, NULL, 1, &at);
        gm_work_drop(w, mark);
    }
    finish_sends(w, h);
    return to;
}

gm_tensor *gm_halo_return(gm_work *w, gm_halo *h, gm_tensor *rows, const gm_spec *block)
{
    gm_halo_start_return(w, h, rows, block);
    return gm_halo_end_return(w, h, rows, block);
}
