/* muon_plan.c - see muon_plan.h. */
#include "muon_plan.h"

#include <stdlib.h>
#include <string.h>

#define ROUND_BYTES (INT64_C(64) << 20) /* enough to keep a network busy */

/* ---- matrices ---- */

static int64_t slices_of(const gm_muon_shape *s) { return s->ndim == 3 ? s->shape[0] : 1; }
static int64_t rows_of(const gm_muon_shape *s) { return s->shape[s->ndim - 2]; }
static int64_t cols_of(const gm_muon_shape *s) { return s->shape[s->ndim - 1]; }

static int64_t period_of(const gm_muon_shape *s)
{
    int64_t rows = 0;
    for (int i = 0; i < s->n_parts; i++) rows += s->part[i];
    return s->n_parts ? rows : rows_of(s);
}

static gm_status check_parts(const gm_muon_shape *s, int parameter)
{
    int64_t period = period_of(s);
    bool    fits = period > 0 && rows_of(s) % period == 0;
    for (int i = 0; i < s->n_parts; i++) fits = fits && s->part[i] > 0;
    if (fits || !rows_of(s)) return GM_OK;
    return GM_FAIL(GM_EINVAL, "muon: parameter %d has %lld rows, which cannot be shared out in parts of %lld rows",
                   parameter + 1, (long long)rows_of(s), (long long)period);
}

/* The matrices of a parameter; returns their number. out NULL: counts only. */
static int64_t matrices_of(const gm_muon_shape *s, int parameter, gm_muon_matrix *out)
{
    int64_t n = 0, period = period_of(s), rows = rows_of(s);
    int     parts = s->n_parts ? s->n_parts : 1;
    if (!rows || !cols_of(s)) return 0;
    for (int64_t slice = 0; slice < slices_of(s); slice++) {
        int64_t first = 0;
        for (int i = 0; i < parts; i++, n++) {
            int64_t length = s->n_parts ? s->part[i] : rows, count = rows / period;
            if (out)
                out[n] = (gm_muon_matrix){.parameter = parameter,
                                          .slice = slice,
                                          .first = first,
                                          .length = length,
                                          .step = period,
                                          .count = count,
                                          .rows = length * count,
                                          .cols = cols_of(s)};
            first += length;
        }
    }
    return n;
}

/* Multiply-adds of an iteration, but for a constant factor. */
static double work_of(const gm_muon_matrix *m)
{
    double least = (double)(m->rows < m->cols ? m->rows : m->cols);
    return (double)m->rows * (double)m->cols * least;
}

/* The largest first; equal ones in order of the parameters. */
static int by_work(const void *x, const void *y)
{
    const gm_muon_matrix *a = x, *b = y;
    double                wa = work_of(a), wb = work_of(b);
    if (wa != wb) return wa < wb ? 1 : -1;
    if (a->parameter != b->parameter) return a->parameter < b->parameter ? -1 : 1;
    if (a->slice != b->slice) return a->slice < b->slice ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

/* ---- parts ---- */

gm_muon_block gm_muon_block_of(const gm_muon_plan *p, const gm_muon_matrix *m, int rank)
{
    const gm_muon_shape *s = &p->shape[m->parameter];
    int                  coordinate[GM_MAX_AXES], d = s->ndim - 2;
    gm_box               box;
    int64_t              local[GM_MAX_DIMS], n[GM_MAX_DIMS];
    gm_muon_block        b = {.slice = {0, 1}};
    gm_mesh_coordinates(p->mesh, rank, coordinate);
    gm_layout_block(p->mesh, &s->layout, coordinate, s->ndim, s->shape, &box, local, n);
    if (d) b.slice[0] = box.offset[0], b.slice[1] = box.offset[0] + n[0];
    b.row[0] = box.offset[d], b.row[1] = box.offset[d] + n[d];
    b.col[0] = box.offset[d + 1], b.col[1] = box.offset[d + 1] + n[d + 1];
    return b;
}

bool gm_muon_next(const gm_muon_matrix *m, const gm_muon_block *b, gm_muon_piece *piece)
{
    if (m->slice < b->slice[0] || m->slice >= b->slice[1] || b->col[0] == b->col[1]) return false;
    for (int64_t i = piece->next; i < m->count; i++) {
        int64_t from = m->first + i * m->step, to = from + m->length, at = i * m->length;
        if (from >= b->row[1]) return false;
        if (from < b->row[0]) at += b->row[0] - from, from = b->row[0];
        if (to > b->row[1]) to = b->row[1];
        if (from >= to) continue;
        *piece = (gm_muon_piece){from, at, to - from, i + 1};
        return true;
    }
    return false;
}

int64_t gm_muon_elements(const gm_muon_matrix *m, const gm_muon_block *b)
{
    int64_t rows = 0;
    for (gm_muon_piece piece = {0}; gm_muon_next(m, b, &piece);) rows += piece.n;
    return rows * (b->col[1] - b->col[0]);
}

int gm_muon_round(const gm_muon_plan *p, const gm_muon_set *s, int first)
{
    int64_t bytes = 0;
    int     n = 0;
    while (first + n < s->n && (n < p->ranks || bytes < ROUND_BYTES)) {
        const gm_muon_matrix *m = &s->matrix[first + n++];
        bytes += m->rows * m->cols * (int64_t)gm_dtype_size(s->dtype);
    }
    return n;
}

/* ---- owners ---- */

/* Gives each matrix to the rank with the least work among those that hold a part of it. */
static gm_status deal_out(const gm_muon_plan *p, gm_muon_matrix *matrix, int64_t n, const int *ranks)
{
    double *work = calloc((size_t)p->ranks, sizeof *work);
    if (!work) return GM_FAIL(GM_ENOMEM, "no memory for the work of %d ranks", p->ranks);
    for (int64_t k = 0; k < n; k++) {
        int best = -1;
        for (int i = 0; i < p->ranks; i++) {
            if (best >= 0 && work[i] >= work[best]) continue;
            gm_muon_block b = gm_muon_block_of(p, &matrix[k], ranks[i]);
            gm_muon_piece piece = {0};
            if (gm_muon_next(&matrix[k], &b, &piece)) best = i;
        }
        work[best] += work_of(&matrix[k]);
        matrix[k].owner = ranks[best];
    }
    free(work);
    return GM_OK;
}

static bool belongs(const gm_muon_plan *p, const gm_muon_set *s, const gm_muon_matrix *m)
{
    const gm_muon_shape *shape = &p->shape[m->parameter];
    return s->cut == gm_layout_cut_axes(&shape->layout) && s->dtype == shape->dtype;
}

static gm_muon_set *set_of(gm_muon_plan *p, const gm_muon_matrix *m, uint32_t stage)
{
    for (int i = 0; i < p->n_sets; i++)
        if (belongs(p, &p->set[i], m)) return &p->set[i];
    const gm_muon_shape *shape = &p->shape[m->parameter];
    uint32_t             cut = gm_layout_cut_axes(&shape->layout);
    gm_muon_set         *s = &p->set[p->n_sets++];
    *s = (gm_muon_set){.cut = cut, .copies = stage & ~cut, .dtype = shape->dtype};
    return s;
}

/* Sets in order of their first matrix. */
static gm_status make_sets(gm_muon_plan *p, const gm_muon_matrix *matrix, int64_t n, uint32_t stage)
{
    for (int64_t k = 0; k < n; k++) set_of(p, &matrix[k], stage)->n++;
    for (int i = 0; i < p->n_sets; i++) {
        gm_muon_set *s = &p->set[i];
        s->matrix = malloc((size_t)s->n * sizeof *s->matrix);
        if (!s->matrix) return GM_FAIL(GM_ENOMEM, "no memory for a plan of %d matrices", s->n);
        s->n = 0;
    }
    for (int64_t k = 0; k < n; k++) {
        gm_muon_set *s = set_of(p, &matrix[k], stage);
        s->matrix[s->n++] = matrix[k];
    }
    return GM_OK;
}

static gm_status fill(gm_muon_plan *p, int rank, int n)
{
    uint32_t        stage = ((1u << p->mesh->n_axes) - 1) & ~gm_mesh_mask(p->mesh, GM_AXIS_PIPELINE);
    int            *ranks = malloc((size_t)gm_mesh_size(p->mesh) * sizeof *ranks);
    gm_muon_matrix *matrix = NULL;
    gm_status       st = GM_OK;
    int64_t         total = 0, at = 0;
    for (int i = 0; i < n && st == GM_OK; i++) st = check_parts(&p->shape[i], i);
    for (int i = 0; i < n && st == GM_OK; i++) total += matrices_of(&p->shape[i], i, NULL);
    matrix = malloc(((size_t)total + 1) * sizeof *matrix);
    if (!ranks || !matrix) st = GM_FAIL(GM_ENOMEM, "no memory for a plan of %d parameters", n);
    if (st == GM_OK) {
        p->ranks = gm_mesh_members(p->mesh, stage, rank, ranks);
        for (int i = 0; i < n; i++) at += matrices_of(&p->shape[i], i, matrix + at);
        qsort(matrix, (size_t)total, sizeof *matrix, by_work);
        st = deal_out(p, matrix, total, ranks);
    }
    if (st == GM_OK) st = make_sets(p, matrix, total, stage);
    free(ranks);
    free(matrix);
    return st;
}

gm_status gm_muon_plan_new(const gm_mesh *mesh, int rank, const gm_muon_shape *shapes, int n, gm_muon_plan **out)
{
    gm_muon_plan *p = calloc(1, sizeof *p);
    gm_status     st = GM_OK;
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for a plan of %d parameters", n);
    p->mesh = mesh;
    p->shape = malloc(((size_t)n + 1) * sizeof *p->shape);
    p->set = calloc((size_t)n + 1, sizeof *p->set);
    if (!p->shape || !p->set) st = GM_FAIL(GM_ENOMEM, "no memory for a plan of %d parameters", n);
    if (st == GM_OK && n) memcpy(p->shape, shapes, (size_t)n * sizeof *shapes);
    if (st == GM_OK) st = fill(p, rank, n);
    if (st != GM_OK) gm_muon_plan_free(p);
    else *out = p;
    return st;
}

void gm_muon_plan_free(gm_muon_plan *p)
{
    if (!p) return;
    for (int i = 0; p->set && i < p->n_sets; i++) free(p->set[i].matrix);
    free(p->set);
    free(p->shape);
    free(p);
}
