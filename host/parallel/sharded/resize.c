/* resize.c - see resize.h. Rows are looked up in the rows that were fetched, which are the first dimension for that. */
#include "resize.h"

#include <string.h>
#include "../../autograd/padding.h"
#include "rows.h"

/* What the node keeps as numbers; the scale is its attribute alpha. */
enum { DIM, OUT, PLACES, NEXT };

static gm_halo_axis axis_of(gm_backward *b, const int64_t *shape)
{
    const int64_t *extra = gm_backward_extra(b);
    return (gm_halo_axis){.n = shape[extra[DIM]],
                          .out = extra[OUT],
                          .scale = gm_backward_attrs(b)->alpha,
                          .places = (int)extra[PLACES],
                          .next = extra[NEXT] != 0};
}

/* Where the rows made here are among those that were fetched, i64. */
static gm_tensor *places_of(gm_work *w, const gm_halo *h, const gm_halo_axis *axis)
{
    const gm_halo_place *here = gm_halo_here(h);
    gm_tensor           *t = gm_work_new(w, GM_I64, 1, &here->makes.count);
    if (w->st != GM_OK || !gm_tensor_data(t)) return t;
    for (int64_t i = 0; i < here->makes.count; i++)
        GM_STEP(w, gm_host_store(t, i, (double)(gm_halo_source(axis, here->makes.first + i) - here->reads.first)));
    return t;
}

/* t as (rows along dim, all the rest), contiguous. */
static gm_tensor *as_rows(gm_work *w, gm_tensor *t, int dim)
{
    int order[GM_MAX_DIMS] = {dim}, n = 1;
    if (w->st != GM_OK) return NULL;
    for (int d = 0; d < t->ndim; d++)
        if (d != dim) order[n++] = d;
    int64_t shape[2] = {t->shape[dim], t->shape[dim] ? gm_tensor_numel(t) / t->shape[dim] : 0};
    return gm_work_shaped(w, gm_work_contiguous(w, gm_work_permute(w, t, order)), 2, shape);
}

/* The other way round: (rows, all the rest) as a tensor like `like`, with these rows along dim. A view. */
static gm_tensor *from_rows(gm_work *w, gm_tensor *rows, int dim, int ndim, const int64_t *like)
{
    int     back[GM_MAX_DIMS], n = 1;
    int64_t shape[GM_MAX_DIMS];
    if (w->st != GM_OK) return NULL;
    shape[0] = rows->shape[0];
    for (int d = 0; d < ndim; d++) {
        back[d] = d == dim ? 0 : n;
        if (d != dim) shape[n++] = like[d];
    }
    return gm_work_permute(w, gm_work_shaped(w, rows, ndim, shape), back);
}

static void resized_rule(gm_backward *b)
{
    gm_work         *w = gm_backward_work(b);
    const int64_t   *shape;
    const gm_layout *layout = gm_backward_input_layout(b, 0, &shape);
    const gm_spec   *block = gm_backward_input(b, 0);
    int              dim = (int)gm_backward_extra(b)[DIM];
    gm_halo_axis     axis = axis_of(b, shape);
    gm_halo          h = {0};
    gm_tensor       *dx = NULL;
    GM_STEP(w, gm_halo_open(w->rank, "interpolate", layout, dim, &axis, gm_halo_of_sizes, &h));
    if (w->st == GM_OK && gm_halo_here(&h)->makes.count) {
        gm_tensor *g = gm_work_narrow(w, gm_backward_grad(b, 0), dim, 0, gm_halo_here(&h)->makes.count);
        gm_tensor *in[2] = {places_of(w, &h, &axis), as_rows(w, g, dim)};
        if (w->st == GM_OK) {
            int64_t    size[2] = {gm_halo_here(&h)->reads.count, in[1]->shape[1]};
            gm_tensor *rows = gm_work_new(w, block->dtype, 2, size);
            gm_work_into(w, GM_OP_embedding_grad, 2, in, NULL, 1, &rows);
            dx = gm_work_contiguous(w, from_rows(w, rows, dim, block->ndim, block->shape));
        }
    }
    gm_backward_give(b, 0, gm_halo_return(w, &h, dx, block));
    gm_halo_close(w, &h);
}

static gm_status forward(gm_rank *r, gm_value *x, int dim, const gm_halo_axis *axis, gm_value **y)
{
    gm_work   w;
    gm_halo   h = {0};
    int64_t   shape[GM_MAX_DIMS];
    gm_layout layout = x->layout;
    layout.unit[dim] = 0;
    memcpy(shape, x->shape, sizeof shape);
    shape[dim] = axis->out;
    gm_work_begin(&w, r, "interpolate");
    GM_STEP(&w, gm_halo_open(r, "interpolate", &x->layout, dim, axis, gm_halo_of_sizes, &h));
    GM_STEP(&w, gm_value_new_block(r, "interpolate", x->local->dtype, &layout, x->ndim, shape, y));
    gm_tensor *rows = gm_halo_fetch(&w, &h, x->local);
    if (rows) {
        gm_tensor *in[2] = {as_rows(&w, rows, dim), places_of(&w, &h, axis)};
        gm_tensor *made = gm_work_run(&w, GM_OP_embedding, 2, in, NULL);
        gm_work_copy(&w, from_rows(&w, made, dim, x->ndim, x->local->shape),
                     gm_work_narrow(&w, (*y)->local, dim, 0, gm_halo_here(&h)->makes.count));
    }
    GM_STEP(&w, gm_padding_finish(*y));
    gm_halo_close(&w, &h);
    gm_status st = gm_work_end(&w);
    return w.sent ? gm_comm_once(st) : st;
}

gm_status gm_resized_rows(gm_rank *r, gm_value *x, int dim, const gm_halo_axis *axis, gm_value **y)
{
    gm_device *dev;
    gm_attrs   a = gm_attrs_default();
    gm_value  *out = NULL;
    GM_TRY(gm_rank_device(r, &dev));
    gm_status st = forward(r, x, dim, axis, &out);
    a.alpha = axis->scale;
    gm_record rec = {.name = "interpolate",
                     .rule = resized_rule,
                     .op = GM_OP_embedding,
                     .attrs = &a,
                     .n_in = 1,
                     .in = &x,
                     .n_out = 1,
                     .out = &out,
                     .extra = {[DIM] = dim, [OUT] = axis->out, [PLACES] = (int64_t)axis->places, [NEXT] = axis->next}};
    if (st == GM_OK) st = gm_comm_once(gm_tape_record(r, &rec));
    if (st == GM_OK) *y = out;
    else gm_value_release(out);
    return st;
}
