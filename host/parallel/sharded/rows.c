/* rows.c - see rows.h. */
#include "rows.h"

#include <inttypes.h>
#include <string.h>

#define PIECE (INT64_C(1) << 15) /* elements of a piece, or one line: 128 KiB of f32 */

void gm_rows_begin(gm_rows *w, gm_rank *r, const gm_layout *layout, int ndim, const int64_t *shape, int dim)
{
    gm_box  box;
    int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    *w = (gm_rows){.rank = r, .axes = gm_layout_dim_axes(layout, dim), .n = shape[dim]};
    gm_layout_block(&r->mesh, layout, r->coordinate, ndim, shape, &box, local, logical);
    w->first = box.offset[dim];
    w->count = logical[dim];
    w->room = local[dim];
    w->st = gm_rank_device(r, &w->device);
}

gm_status gm_rows_end(gm_rows *w)
{
    for (int i = 0; i < w->n_held; i++) gm_tensor_release(w->held[i]);
    w->n_held = 0;
    return w->sent ? gm_comm_once(w->st) : w->st;
}

void gm_rows_check(gm_rows *w, gm_status st)
{
    if (w->st == GM_OK) w->st = st;
}

/* Takes t, a new reference; st: of the call that made it. */
static gm_tensor *hold(gm_rows *w, gm_status st, gm_tensor *t)
{
    gm_rows_check(w, st);
    if (st != GM_OK) return NULL;
    if (w->n_held == GM_ROWS_HELD) {
        gm_tensor_release(t);
        gm_rows_check(w, GM_FAIL(GM_EINVAL, "an op on rows that are cut holds more than %d tensors", GM_ROWS_HELD));
        return NULL;
    }
    w->held[w->n_held++] = t;
    return t;
}

/* Strikes t off the list: true if it was there. */
static bool let_go(gm_rows *w, gm_tensor *t)
{
    for (int i = w->n_held - 1; t && i >= 0; i--) {
        if (w->held[i] != t) continue;
        w->held[i] = w->held[--w->n_held];
        return true;
    }
    return false;
}

gm_tensor *gm_rows_keep(gm_rows *w, gm_tensor *t)
{
    if (w->st != GM_OK) return NULL;
    if (!let_go(w, t)) gm_tensor_retain(t);
    return t;
}

/* ---- operands ---- */

gm_tensor *gm_rows_shaped(gm_rows *w, gm_tensor *t, int ndim, const int64_t *shape)
{
    gm_tensor *y = NULL;
    if (w->st != GM_OK) return NULL;
    if (!gm_tensor_can_reshape(t, ndim, shape)) t = gm_rows_cast(w, t, t->dtype);
    if (!t) return NULL;
    gm_status st = gm_tensor_reshape(t, ndim, shape, &y);
    return hold(w, st, y);
}

gm_tensor *gm_rows_flat(gm_rows *w, gm_tensor *t)
{
    int64_t lines = 1;
    if (w->st != GM_OK) return NULL;
    for (int d = 0; d < t->ndim - 1; d++) lines *= t->shape[d];
    return gm_rows_shaped(w, t, 2, (int64_t[]){lines, t->shape[t->ndim - 1]});
}

gm_tensor *gm_rows_compact(gm_rows *w, gm_tensor *t)
{
    gm_tensor *y = gm_rows_flat(w, t);
    return y && !gm_tensor_is_contiguous(y) ? gm_rows_cast(w, y, y->dtype) : y;
}

gm_tensor *gm_rows_column(gm_rows *w, gm_tensor *t)
{
    return w->st == GM_OK ? gm_rows_shaped(w, t, 2, (int64_t[]){gm_tensor_numel(t), 1}) : NULL;
}

static gm_tensor *narrow(gm_rows *w, gm_tensor *t, int dim, int64_t from, int64_t n)
{
    gm_tensor *y = NULL;
    if (w->st != GM_OK) return NULL;
    gm_status st = gm_tensor_narrow(t, dim, from, n, &y);
    return hold(w, st, y);
}

gm_tensor *gm_rows_inside(gm_rows *w, gm_tensor *t) { return narrow(w, t, 1, 0, w->count); }
gm_tensor *gm_rows_part(gm_rows *w, gm_tensor *t, int64_t from, int64_t n) { return narrow(w, t, 0, from, n); }

/* GM_EINVAL: the largest (or smallest) of these numbers is no place in the dimension. */
static void check_extreme(gm_rows *w, gm_op op, gm_tensor *t, const char *name, const char *what, const char *of)
{
    gm_tensor *out[2];
    gm_attrs   a = gm_attrs_default();
    a.dim = 0;
    gm_rows_run(w, op, 1, &t, &a, 2, out);
    if (w->st != GM_OK || !gm_tensor_data(out[0])) return;
    double    v = 0, at = 0;
    gm_status st = gm_host_load(out[0], 0, &v);
    if (st == GM_OK) st = gm_host_load(out[1], 0, &at);
    if (st == GM_OK && !(v >= 0 && v < (double)w->n))
        st = GM_FAIL(GM_EINVAL, "%s: %s %.0f at position %.0f (from 0) of the block is none of %" PRId64 " %s", name,
                     what, v, at, w->n, of);
    gm_rows_check(w, st);
}

/* The same on a device, without a wait: looking them up in a table of that many rows, all of them one number, makes the
 * kernel refuse what is outside, which the next wait for the device says. */
static void refuse_extremes(gm_rows *w, gm_tensor *t)
{
    gm_tensor *table = gm_rows_full(w, GM_F32, 2, (int64_t[]){1, 1}, 0), *all = NULL, *y;
    gm_attrs   a = gm_attrs_default();
    if (w->st != GM_OK) return;
    gm_tensor *in[2] = {NULL, gm_rows_cast(w, t, GM_I64)};
    gm_status  st = gm_tensor_expand(table, 2, (int64_t[]){w->n, 1}, &all);
    in[0] = hold(w, st, all);
    gm_rows_run(w, GM_OP_embedding, 2, in, &a, 1, &y);
}

gm_rows_places gm_rows_locate(gm_rows *w, gm_tensor *index, const int64_t *ignore, const char *op, const char *what,
                              const char *of)
{
    gm_rows_places p = {NULL, NULL, NULL};
    gm_tensor     *zero = gm_rows_scalar(w, GM_F64, 0), *judged;
    p.global = gm_rows_column(w, gm_rows_cast(w, index, GM_F64));
    judged = p.global;
    if (ignore)
        judged = gm_rows_where(w, gm_rows_binary(w, GM_FN_eq, judged, gm_rows_scalar(w, GM_F64, (double)*ignore)), zero,
                               judged);
    if (w->st == GM_OK && gm_tensor_numel(judged)) {
        judged = gm_rows_shaped(w, judged, 1, judged->shape);
        if (w->device->backend->has_data && !w->device->backend->on_host) {
            refuse_extremes(w, judged);
        } else {
            check_extreme(w, GM_OP_max, judged, op, what, of);
            check_extreme(w, GM_OP_min, judged, op, what, of);
        }
    }
    gm_tensor *here = gm_rows_affine(w, p.global, 1, -(double)w->first);
    gm_tensor *last = gm_rows_scalar(w, GM_F64, (double)(w->count ? w->count - 1 : 0));
    p.local = gm_rows_binary(w, GM_FN_minimum, gm_rows_binary(w, GM_FN_maximum, here, zero), last);
    p.owned = gm_rows_binary(w, GM_FN_eq, p.local, here);
    return p;
}

/* ---- steps ---- */

gm_tensor *gm_rows_new(gm_rows *w, gm_dtype dtype, int ndim, const int64_t *shape)
{
    gm_tensor *t = NULL;
    if (w->st != GM_OK) return NULL;
    gm_status st = gm_tensor_new(w->device, dtype, ndim, shape, &t);
    return hold(w, st, t);
}

void gm_rows_into(gm_rows *w, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs, int n_out,
                  gm_tensor *const *out)
{
    gm_call c = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs};
    if (w->st == GM_OK) w->st = gm_run(w->device, &c);
}

void gm_rows_run(gm_rows *w, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs, int n_out,
                 gm_tensor **out)
{
    gm_spec spec[GM_MAX_OUT];
    gm_call c = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs};
    memset(out, 0, (size_t)n_out * sizeof *out);
    if (w->st != GM_OK) return;
    gm_rows_check(w, gm_infer(&c, spec));
    for (int i = 0; i < n_out && w->st == GM_OK; i++)
        out[i] = gm_rows_new(w, spec[i].dtype, spec[i].ndim, spec[i].shape);
    gm_rows_into(w, op, n_in, in, attrs, n_out, out);
}

static gm_tensor *run(gm_rows *w, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs)
{
    gm_tensor *y;
    gm_rows_run(w, op, n_in, in, attrs, 1, &y);
    return y;
}

gm_tensor *gm_rows_full(gm_rows *w, gm_dtype dtype, int ndim, const int64_t *shape, double value)
{
    gm_attrs   a = gm_attrs_default();
    gm_tensor *t = gm_rows_new(w, dtype, ndim, shape);
    a.value = value;
    gm_rows_into(w, GM_OP_fill, 0, NULL, &a, 1, &t);
    return t;
}

gm_tensor *gm_rows_scalar(gm_rows *w, gm_dtype dtype, double value) { return gm_rows_full(w, dtype, 0, NULL, value); }

gm_tensor *gm_rows_affine(gm_rows *w, gm_tensor *x, double alpha, double beta)
{
    gm_attrs a = gm_attrs_default();
    a.alpha = alpha;
    a.beta = beta;
    return run(w, GM_OP_affine, 1, &x, &a);
}

gm_tensor *gm_rows_unary(gm_rows *w, gm_function f, gm_tensor *x)
{
    gm_attrs a = gm_attrs_default();
    a.function = f;
    return run(w, GM_OP_unary, 1, &x, &a);
}

gm_tensor *gm_rows_binary_to(gm_rows *w, gm_function f, gm_tensor *a, gm_tensor *b, gm_tensor *to)
{
    gm_attrs   at = gm_attrs_default();
    gm_op      op = f >= GM_FN_eq ? GM_OP_compare : GM_OP_binary;
    gm_tensor *in[2] = {a, b};
    at.function = f;
    if (!to) return run(w, op, 2, in, &at);
    gm_rows_into(w, op, 2, in, &at, 1, &to);
    return to;
}

gm_tensor *gm_rows_binary(gm_rows *w, gm_function f, gm_tensor *a, gm_tensor *b)
{
    return gm_rows_binary_to(w, f, a, b, NULL);
}

gm_tensor *gm_rows_where(gm_rows *w, gm_tensor *condition, gm_tensor *a, gm_tensor *b)
{
    gm_attrs at = gm_attrs_default();
    return run(w, GM_OP_where, 3, (gm_tensor *[]){condition, a, b}, &at);
}

gm_tensor *gm_rows_cast(gm_rows *w, gm_tensor *x, gm_dtype dtype)
{
    gm_attrs a = gm_attrs_default();
    a.dtype = dtype;
    return run(w, GM_OP_copy, 1, &x, &a);
}

gm_tensor *gm_rows_sum(gm_rows *w, gm_tensor *x, int dim, gm_tensor *to)
{
    gm_attrs a = gm_attrs_default();
    a.dims = 1u << dim;
    a.keepdim = dim == 1;
    if (!to) return run(w, GM_OP_sum, 1, &x, &a);
    gm_rows_into(w, GM_OP_sum, 1, &x, &a, 1, &to);
    return to;
}

gm_tensor *gm_rows_select(gm_rows *w, gm_tensor *t, int dim, int64_t i)
{
    gm_tensor *y = NULL;
    if (w->st != GM_OK) return NULL;
    gm_status st = gm_tensor_select(t, dim, i, &y);
    return hold(w, st, y);
}

gm_tensor *gm_rows_of_stack(gm_rows *w, gm_tensor *t, int i) { return gm_rows_select(w, t, 0, i); }

gm_tensor *gm_rows_line(gm_rows *w, gm_tensor *t, int i, int64_t lines)
{
    return narrow(w, gm_rows_select(w, t, 0, i), 0, 0, lines);
}

gm_tensor *gm_rows_stack(gm_rows *w, int n, gm_tensor *const *t)
{
    gm_attrs a = gm_attrs_default();
    if (w->st != GM_OK) return NULL;
    gm_tensor *all = gm_rows_new(w, t[0]->dtype, 3, (int64_t[]){n, t[0]->shape[0], 1});
    for (int i = 0; i < n; i++) {
        gm_tensor *to = gm_rows_of_stack(w, all, i);
        gm_rows_into(w, GM_OP_copy, 1, &t[i], &a, 1, &to);
    }
    return all;
}

void gm_rows_pieces(gm_rows *w, int64_t lines, void (*step)(gm_rows *w, void *context, int64_t from, int64_t n),
                    void *context)
{
    int64_t most = PIECE / (w->room ? w->room : 1) + 1;
    int     before = w->n_held;
    for (int64_t from = 0; from < lines && w->st == GM_OK; from += most) {
        step(w, context, from, lines - from < most ? lines - from : most);
        while (w->n_held > before) gm_tensor_release(w->held[--w->n_held]);
    }
}

gm_group *gm_rows_group(gm_rows *w, uint32_t axes)
{
    gm_comm  *comm;
    gm_group *g = NULL;
    if (w->st == GM_OK) w->st = gm_rank_comm(w->rank, &comm);
    if (w->st == GM_OK) w->st = gm_comm_group(comm, axes ? axes : w->axes, &g);
    return g;
}

void gm_rows_reduce(gm_rows *w, uint32_t axes, gm_tensor *t, gm_reduction op)
{
    gm_group *g = gm_rows_group(w, axes);
    if (w->st != GM_OK) return;
    w->sent = true;
    w->st = gm_comm_all_reduce(w->rank->comm, g, t, op, NULL);
}

void gm_rows_all_to_all(gm_rows *w, gm_group *g, gm_tensor *in, int split, gm_tensor *to, int join)
{
    if (w->st != GM_OK) return;
    w->sent = true;
    w->st = gm_comm_all_to_all(w->rank->comm, g, in, split, to, join, NULL);
}

void gm_rows_all_gather(gm_rows *w, gm_group *g, gm_tensor *in, int dim, gm_tensor *to)
{
    if (w->st != GM_OK) return;
    w->sent = true;
    w->st = gm_comm_all_gather(w->rank->comm, g, in, dim, to, NULL);
}
