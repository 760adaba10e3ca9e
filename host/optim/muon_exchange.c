/* muon_exchange.c - see muon_exchange.h.
 *
 * A rank's parts lie in one buffer: those of the matrices of the first member of its cut group, then those of the
 * second member, and so on. It is sent member by member, and what comes back lies in the same order. So the copies of a
 * rank's block receive its buffer as it is. */
#include "muon_exchange.h"

#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"

/* The ranks that differ from one in some axes, in ascending order. */
typedef struct members {
    int  n;
    int *rank;
} members;

typedef struct exchange {
    gm_muon_exchange *x;
    gm_work          *w;
    gm_comm          *comm;
    int               rank;
    members           cut, copies; /* this rank's groups */
    gm_muon_matrix   *own;         /* that this rank owns, */
    gm_tensor       **matrix;      /* and their tensors */
    int               n_own;
    int64_t    *parts, *whole; /* elements that this rank has of each member's matrices; of its own, each member */
    gm_row_run *rows;          /* room for what is sent to each member, and received */
} exchange;

static gm_status find_members(const gm_muon_plan *p, uint32_t axes, int rank, members *out)
{
    out->rank = malloc((size_t)gm_mesh_size(p->mesh) * sizeof *out->rank);
    if (!out->rank) return GM_FAIL(GM_ENOMEM, "no memory for a list of ranks");
    out->n = gm_mesh_members(p->mesh, axes, rank, out->rank);
    return GM_OK;
}

/* Elements that this rank's block has of the matrices of each member of a cut group, into elements[members]; returns
 * the sum. */
static int64_t count_parts(const exchange *e, const members *group, int64_t *elements)
{
    int64_t total = 0;
    for (int v = 0; v < group->n; v++) {
        int64_t sum = 0;
        for (int k = 0; k < e->x->n; k++) {
            const gm_muon_matrix *m = &e->x->matrix[k];
            if (m->owner != group->rank[v]) continue;
            gm_muon_block b = gm_muon_block_of(e->x->plan, m, e->rank);
            sum += gm_muon_elements(m, &b);
        }
        if (elements) elements[v] = sum;
        total += sum;
    }
    return total;
}

/* Elements of this rank's own matrices that each member of its cut group has. */
static int64_t count_whole(const exchange *e)
{
    int64_t total = 0;
    for (int u = 0; u < e->cut.n; u++) {
        e->whole[u] = 0;
        for (int k = 0; k < e->n_own; k++) {
            gm_muon_block b = gm_muon_block_of(e->x->plan, &e->own[k], e->cut.rank[u]);
            e->whole[u] += gm_muon_elements(&e->own[k], &b);
        }
        total += e->whole[u];
    }
    return total;
}

/* ---- between buffers and tensors ---- */

/* n rows of `width` elements, from `at` of a flat buffer on. */
static gm_tensor *flat_rows(gm_work *w, gm_tensor *buffer, int64_t at, int64_t n, int64_t width)
{
    return gm_work_shaped(w, gm_work_narrow(w, buffer, 0, at, n * width), 2, (int64_t[]){n, width});
}

/* A piece of a matrix in this rank's block of the parameter. */
static gm_tensor *in_block(gm_work *w, gm_tensor *t, const gm_muon_matrix *m, const gm_muon_block *b,
                           const gm_muon_piece *piece)
{
    if (t && t->ndim == 3) t = gm_work_select(w, t, 0, m->slice - b->slice[0]);
    t = gm_work_narrow(w, t, 0, piece->row - b->row[0], piece->n);
    return gm_work_narrow(w, t, 1, 0, b->col[1] - b->col[0]);
}

/* The same piece in the whole matrix, which is transposed if it is higher than wide. */
static gm_tensor *in_matrix(gm_work *w, gm_tensor *t, const gm_muon_matrix *m, const gm_muon_block *b,
                            const gm_muon_piece *piece)
{
    if (m->rows > m->cols) t = gm_work_permute(w, t, (int[]){1, 0});
    t = gm_work_narrow(w, t, 0, piece->at, piece->n);
    return gm_work_narrow(w, t, 1, b->col[0], b->col[1] - b->col[0]);
}

static void move(gm_work *w, gm_tensor *rows, gm_tensor *t, bool pack)
{
    if (pack) gm_work_copy(w, t, rows);
    else gm_work_copy(w, rows, t);
}

/* Copies the parts of the matrices of a cut group's members between this rank's blocks and a buffer, from `at` on. */
static void move_parts(exchange *e, const members *group, gm_tensor *buffer, int64_t at, bool pack)
{
    gm_work *w = e->w;
    for (int v = 0; v < group->n; v++)
        for (int k = 0; k < e->x->n && w->st == GM_OK; k++) {
            const gm_muon_matrix *m = &e->x->matrix[k];
            gm_muon_piece         piece = {0};
            if (m->owner != group->rank[v]) continue;
            gm_muon_block b = gm_muon_block_of(e->x->plan, m, e->rank);
            int64_t       width = b.col[1] - b.col[0];
            gm_tensor    *t = e->x->tensor(e->x->context, m->parameter);
            while (gm_muon_next(m, &b, &piece)) {
                int mark = w->n_held;
                move(w, flat_rows(w, buffer, at, piece.n, width), in_block(w, t, m, &b, &piece), pack);
                gm_work_drop(w, mark);
                at += piece.n * width;
            }
        }
}

/* Copies this rank's own matrices between their tensors and a buffer of all members' parts. */
static void move_whole(exchange *e, gm_tensor *buffer, bool pack)
{
    gm_work *w = e->w;
    int64_t  at = 0;
    for (int u = 0; u < e->cut.n; u++)
        for (int k = 0; k < e->n_own && w->st == GM_OK; k++) {
            const gm_muon_matrix *m = &e->own[k];
            gm_muon_piece         piece = {0};
            gm_muon_block         b = gm_muon_block_of(e->x->plan, m, e->cut.rank[u]);
            int64_t               width = b.col[1] - b.col[0];
            while (gm_muon_next(m, &b, &piece)) {
                int mark = w->n_held;
                move(w, flat_rows(w, buffer, at, piece.n, width), in_matrix(w, e->matrix[k], m, &b, &piece), pack);
                gm_work_drop(w, mark);
                at += piece.n * width;
            }
        }
}

/* ---- messages ---- */

/* `send` elements of `from` to each member of the cut group, `receive` of `to` from each. */
static void over_cut(exchange *e, gm_tensor *from, const int64_t *send, gm_tensor *to, const int64_t *receive)
{
    gm_group *g = NULL;
    int       n = e->cut.n;
    if (e->w->st != GM_OK) return;
    if (n == 1) {
        gm_work_copy(e->w, from, to);
        return;
    }
    GM_STEP(e->w, gm_comm_group(e->comm, e->x->set->cut, &g));
    e->w->sent = true;
    gm_row_runs out = gm_row_runs_in_order(send, n, e->rows), in = gm_row_runs_in_order(receive, n, e->rows + n);
    GM_STEP(e->w, gm_comm_all_to_all_rows(e->comm, g, from, out, to, in, NULL));
}

/* The buffers of all copies of this rank's block, of `room` elements each; mine has fewer, or as many. */
static gm_tensor *over_copies(exchange *e, gm_tensor *mine, int64_t room)
{
    gm_work  *w = e->w;
    gm_group *g = NULL;
    int64_t   n = w->st == GM_OK ? mine->shape[0] : 0, all = room * e->copies.n;
    GM_STEP(w, gm_comm_group(e->comm, e->x->set->copies, &g));
    if (n < room) {
        gm_tensor *padded = gm_work_full(w, e->x->set->dtype, 1, &room, 0);
        if (n) gm_work_copy(w, mine, gm_work_narrow(w, padded, 0, 0, n));
        mine = padded;
    }
    gm_tensor *to = gm_work_new(w, e->x->set->dtype, 1, &all);
    w->sent = true;
    GM_STEP(w, gm_comm_all_gather(e->comm, g, mine, 0, to, NULL));
    return to;
}

/* ---- the steps ---- */

static void compute(exchange *e)
{
    gm_work *w = e->w;
    for (int k = 0; k < e->n_own && w->st == GM_OK; k++) {
        int        mark = w->n_held;
        gm_tensor *y = gm_work_keep(w, e->x->compute(e->x->context, &e->own[k], e->matrix[k]));
        gm_work_drop(w, mark);
        if (w->st != GM_OK) return;
        gm_tensor_release(e->matrix[k]);
        e->matrix[k] = y;
    }
}

/* Tensors for this rank's own matrices, no higher than wide. */
static void new_matrices(exchange *e)
{
    gm_work *w = e->w;
    for (int k = 0; k < e->n_own; k++) {
        const gm_muon_matrix *m = &e->own[k];
        bool                  high = m->rows > m->cols;
        int64_t               shape[] = {high ? m->cols : m->rows, high ? m->rows : m->cols};
        e->matrix[k] = gm_work_keep(w, gm_work_new(w, e->x->set->dtype, 2, shape));
    }
}

/* The parts of this rank's cut group: to their owners and back. */
static void to_owners_and_back(exchange *e, gm_tensor *parts)
{
    gm_work   *w = e->w;
    int        mark = w->n_held;
    int64_t    n = count_whole(e);
    gm_tensor *whole = gm_work_new(w, e->x->set->dtype, 1, &n);
    move_parts(e, &e->cut, parts, 0, true);
    over_cut(e, parts, e->parts, whole, e->whole);
    new_matrices(e);
    move_whole(e, whole, false);
    compute(e);
    move_whole(e, whole, true);
    over_cut(e, whole, e->whole, parts, e->parts);
    gm_work_drop(w, mark);
}

/* What has come back, of this rank's cut group and of those of its copies. */
static void spread(exchange *e, gm_tensor *parts)
{
    gm_work *w = e->w;
    int64_t  room = 0;
    if (e->copies.n == 1) {
        move_parts(e, &e->cut, parts, 0, false);
        return;
    }
    members *groups = calloc((size_t)e->copies.n, sizeof *groups);
    if (!groups) GM_STEP(w, GM_FAIL(GM_ENOMEM, "no memory for lists of ranks"));
    for (int c = 0; c < e->copies.n && w->st == GM_OK; c++) {
        GM_STEP(w, find_members(e->x->plan, e->x->set->cut, e->copies.rank[c], &groups[c]));
        if (w->st != GM_OK) break;
        int64_t n = count_parts(e, &groups[c], NULL);
        if (n > room) room = n;
    }
    gm_tensor *all = room ? over_copies(e, parts, room) : NULL;
    for (int c = 0; all && c < e->copies.n; c++) move_parts(e, &groups[c], all, c * room, false);
    for (int c = 0; groups && c < e->copies.n; c++) free(groups[c].rank);
    free(groups);
}

static gm_status begin(exchange *e)
{
    const gm_muon_plan *p = e->x->plan;
    GM_TRY(gm_rank_comm(e->w->rank, &e->comm));
    GM_TRY(find_members(p, e->x->set->cut, e->rank, &e->cut));
    GM_TRY(find_members(p, e->x->set->copies, e->rank, &e->copies));
    e->own = malloc((size_t)e->x->n * sizeof *e->own);
    e->matrix = calloc((size_t)e->x->n, sizeof *e->matrix);
    e->parts = calloc((size_t)e->cut.n, sizeof *e->parts);
    e->whole = calloc((size_t)e->cut.n, sizeof *e->whole);
    e->rows = calloc(2 * (size_t)e->cut.n, sizeof *e->rows);
    if (!e->own || !e->matrix || !e->parts || !e->whole || !e->rows)
        return GM_FAIL(GM_ENOMEM, "no memory for lists of matrices");
    for (int k = 0; k < e->x->n; k++)
        if (e->x->matrix[k].owner == e->rank) e->own[e->n_own++] = e->x->matrix[k];
    return GM_OK;
}

static void end(exchange *e)
{
    for (int k = 0; k < e->n_own; k++) gm_tensor_release(e->matrix[k]);
    free(e->cut.rank);
    free(e->copies.rank);
    free(e->own);
    free(e->matrix);
    free(e->parts);
    free(e->whole);
    free(e->rows);
}

gm_status gm_muon_exchange_run(gm_muon_exchange *x)
{
    gm_work *w = x->work;
    exchange e = {.x = x, .w = w, .rank = w->rank->rank};
    int      mark = w->n_held;
    GM_STEP(w, begin(&e));
    if (w->st == GM_OK) {
        int64_t    n = count_parts(&e, &e.cut, e.parts);
        gm_tensor *parts = gm_work_new(w, x->set->dtype, 1, &n);
        to_owners_and_back(&e, parts);
        spread(&e, parts);
    }
    gm_work_drop(w, mark);
    end(&e);
    return w->st;
}
