/* rows.c - see rows.h. */
#include "rows.h"

#include <inttypes.h>

/* Elements of a piece, or one line: what a core's cache holds; on a device, so much that launches cost next to nothing
 * (a piece of 128 KiB took thousands of them for the logits of one batch). */
#define PIECE       (INT64_C(1) << 15) /* 128 KiB of f32 */
#define PIECE_APART (INT64_C(1) << 24) /* 64 MiB of f32 */

gm_rows gm_rows_here(const gm_rank *r, const gm_layout *layout, int ndim, const int64_t *shape, int dim)
{
    gm_box  box;
    int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    gm_layout_block(&r->mesh, layout, r->coordinate, ndim, shape, &box, local, logical);
    return (gm_rows){.axes = gm_layout_dim_axes(layout, dim),
                     .n = shape[dim],
                     .first = box.offset[dim],
                     .count = logical[dim],
                     .room = local[dim]};
}

gm_tensor *gm_rows_inside(gm_work *w, const gm_rows *k, gm_tensor *t) { return gm_work_narrow(w, t, 1, 0, k->count); }

/* GM_EINVAL: the largest (or smallest) of these numbers is no place in the dimension. */
static void check_extreme(gm_work *w, int64_t n, gm_op op, gm_tensor *t, const char *what, const char *of)
{
    gm_tensor *out[2];
    gm_attrs   a = gm_attrs_default();
    double     v = 0, at = 0;
    a.dim = 0;
    gm_work_run_all(w, op, 1, &t, &a, 2, out);
    if (w->st != GM_OK || !gm_tensor_data(out[0])) return;
    GM_STEP(w, gm_host_load(out[0], 0, &v));
    GM_STEP(w, gm_host_load(out[1], 0, &at));
    if (!(v >= 0 && v < (double)n))
        GM_STEP(w, GM_FAIL(GM_EINVAL, "%s: %s %.0f at position %.0f (from 0) of the block is none of %" PRId64 " %s",
                           w->place, what, v, at, n, of));
}

/* The same on a device, without a wait: looking them up in a table of that many rows, all of them one number, makes the
 * kernel refuse what is outside, which the next wait for the device says. */
static void refuse_extremes(gm_work *w, int64_t n, gm_tensor *t)
{
    gm_tensor *table = gm_work_full(w, GM_F32, 2, (int64_t[]){1, 1}, 0), *index = gm_work_cast(w, t, GM_I64);
    gm_tensor *in[2] = {gm_work_expand(w, table, 2, (int64_t[]){n, 1}), index};
    gm_work_run(w, GM_OP_embedding, 2, in, NULL);
}

gm_rows_places gm_rows_locate(gm_work *w, const gm_rows *k, gm_tensor *index, const int64_t *ignore, const char *what,
                              const char *of)
{
    gm_rows_places p = {NULL, NULL, NULL};
    gm_tensor     *zero = gm_work_scalar(w, GM_F64, 0), *judged;
    p.global = gm_work_column(w, gm_work_cast(w, index, GM_F64));
    judged = p.global;
    if (ignore)
        judged = gm_work_where(w, gm_work_binary(w, GM_FN_eq, judged, gm_work_scalar(w, GM_F64, (double)*ignore)), zero,
                               judged);
    if (w->st == GM_OK && gm_tensor_numel(judged)) {
        judged = gm_work_shaped(w, judged, 1, judged->shape);
        if (w->device->backend->has_data && !w->device->backend->on_host) {
            refuse_extremes(w, k->n, judged);
        } else {
            check_extreme(w, k->n, GM_OP_max, judged, what, of);
            check_extreme(w, k->n, GM_OP_min, judged, what, of);
        }
    }
    gm_tensor *here = gm_work_affine(w, p.global, 1, -(double)k->first);
    gm_tensor *last = gm_work_scalar(w, GM_F64, (double)(k->count ? k->count - 1 : 0));
    p.local = gm_work_binary(w, GM_FN_minimum, gm_work_binary(w, GM_FN_maximum, here, zero), last);
    p.owned = gm_work_binary(w, GM_FN_eq, p.local, here);
    return p;
}

gm_tensor *gm_rows_line(gm_work *w, gm_tensor *t, int i, int64_t lines)
{
    return gm_work_narrow(w, gm_work_select(w, t, 0, i), 0, 0, lines);
}

gm_tensor *gm_rows_stack(gm_work *w, int n, gm_tensor *const *t)
{
    if (w->st != GM_OK) return NULL;
    gm_tensor *all = gm_work_new(w, t[0]->dtype, 3, (int64_t[]){n, t[0]->shape[0], 1});
    for (int i = 0; i < n; i++) gm_work_copy(w, t[i], gm_work_select(w, all, 0, i));
    return all;
}

void gm_rows_pieces(gm_work *w, int64_t room, int64_t lines,
                    void (*step)(gm_work *w, void *context, int64_t from, int64_t n), void *context)
{
    int64_t piece = gm_rank_is_apart(w->rank) ? PIECE_APART : PIECE, most = piece / (room ? room : 1) + 1;
    int     mark = w->n_held;
    for (int64_t from = 0; from < lines && w->st == GM_OK; from += most) {
        step(w, context, from, lines - from < most ? lines - from : most);
        gm_work_drop(w, mark);
    }
}

/* ---- communication ---- */

gm_group *gm_rows_group(gm_work *w, uint32_t axes)
{
    gm_comm  *comm = NULL;
    gm_group *g = NULL;
    GM_STEP(w, gm_rank_comm(w->rank, &comm));
    GM_STEP(w, gm_comm_group(comm, axes, &g));
    return g;
}

void gm_rows_reduce(gm_work *w, uint32_t axes, gm_tensor *t, gm_reduction op)
{
    gm_group *g = gm_rows_group(w, axes);
    w->sent |= w->st == GM_OK;
    GM_STEP(w, gm_comm_all_reduce(w->rank->comm, g, t, op, NULL));
}

void gm_rows_all_to_all(gm_work *w, gm_group *g, gm_tensor *in, int split, gm_tensor *to, int join)
{
    w->sent |= w->st == GM_OK;
    GM_STEP(w, gm_comm_all_to_all(w->rank->comm, g, in, split, to, join, NULL));
}

void gm_rows_all_gather(gm_work *w, gm_group *g, gm_tensor *in, int dim, gm_tensor *to, gm_pending **pending)
{
    w->sent |= w->st == GM_OK;
    GM_STEP(w, gm_comm_all_gather(w->rank->comm, g, in, dim, to, pending));
}
