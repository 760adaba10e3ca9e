/* work.c - see work.h. */
#include "work.h"

#include <string.h>

#include "../comm/comm.h"
#include "padding.h"

void gm_work_begin(gm_work *w, gm_rank *r, const char *place)
{
    w->rank = r;
    w->place = place;
    w->sent = false;
    w->n_held = 0;
    w->device = NULL;
    w->st = gm_rank_device(r, &w->device);
    if (w->st != GM_OK) return;
    gm_rank_place(r, place);
    w->charged = gm_pool_place(w->device->pool);
}

gm_status gm_work_end(gm_work *w)
{
    gm_work_drop(w, 0);
    return w->sent ? gm_comm_once(w->st) : w->st;
}

void gm_work_drop(gm_work *w, int mark)
{
    while (w->n_held > mark) gm_tensor_release(w->held[--w->n_held]);
}

gm_tensor *gm_work_hold(gm_work *w, gm_tensor *t)
{
    if (w->st == GM_OK && w->n_held == GM_WORK_HELD)
        w->st = GM_FAIL(GM_EINVAL, "%s holds more than %d tensors at once", w->place, GM_WORK_HELD);
    if (w->st == GM_OK) return w->held[w->n_held++] = t;
    gm_tensor_release(t);
    return NULL;
}

gm_tensor *gm_work_keep(gm_work *w, gm_tensor *t)
{
    if (w->st != GM_OK) return NULL;
    for (int i = w->n_held - 1; i >= 0; i--) {
        if (w->held[i] != t) continue;
        w->held[i] = w->held[--w->n_held];
        return t;
    }
    gm_tensor_retain(t);
    return t;
}

void gm_work_slot(gm_work *w, gm_tensor *t, gm_value **out)
{
    if (t) GM_STEP(w, gm_value_take(w->rank, gm_work_keep(w, t), out));
}

gm_tensor *gm_work_yield(gm_work *w, gm_tensor *t)
{
    int views = 0;
    if (!gm_work_keep(w, t)) return NULL;
    for (int i = 0; i < w->n_held; i++) views += w->held[i] != t && w->held[i]->storage == t->storage;
    if (t->storage->refs > views + 1) return t; /* others have it, too */
    for (int i = w->n_held - 1; views && i >= 0; i--) {
        gm_tensor *other = w->held[i];
        if (other == t || other->storage != t->storage) continue;
        w->held[i] = w->held[--w->n_held];
        gm_tensor_release(other);
    }
    return t;
}

gm_tensor *gm_work_share(gm_work *w, gm_tensor *t)
{
    if (w->st != GM_OK) return NULL;
    gm_tensor_retain(t);
    return gm_work_hold(w, t);
}

/* ---- views ---- */

/* What a call that makes a view has made, as a step; out is NULL before. */
#define VIEW(w, call)      \
    gm_tensor *out = NULL; \
    GM_STEP(w, call);      \
    return gm_work_hold(w, out)

gm_tensor *gm_work_narrow(gm_work *w, gm_tensor *t, int dim, int64_t from, int64_t n)
{
    VIEW(w, gm_tensor_narrow(t, dim, from, n, &out));
}

gm_tensor *gm_work_select(gm_work *w, gm_tensor *t, int dim, int64_t i) { VIEW(w, gm_tensor_select(t, dim, i, &out)); }

gm_tensor *gm_work_permute(gm_work *w, gm_tensor *t, const int *order) { VIEW(w, gm_tensor_permute(t, order, &out)); }

gm_tensor *gm_work_expand(gm_work *w, gm_tensor *t, int ndim, const int64_t *shape)
{
    VIEW(w, gm_tensor_expand(t, ndim, shape, &out));
}

gm_tensor *gm_work_shaped(gm_work *w, gm_tensor *t, int ndim, const int64_t *shape)
{
    if (w->st == GM_OK && !gm_tensor_can_reshape(t, ndim, shape)) t = gm_work_cast(w, t, t->dtype);
    VIEW(w, gm_tensor_reshape(t, ndim, shape, &out));
}

int64_t gm_work_lines(const gm_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim - 1; d++) n *= t->shape[d];
    return n;
}

gm_tensor *gm_work_flat(gm_work *w, gm_tensor *t)
{
    if (w->st != GM_OK) return NULL;
    return gm_work_shaped(w, t, 2, (int64_t[]){gm_work_lines(t), t->ndim ? t->shape[t->ndim - 1] : 1});
}

gm_tensor *gm_work_column(gm_work *w, gm_tensor *t)
{
    return w->st == GM_OK ? gm_work_shaped(w, t, 2, (int64_t[]){gm_tensor_numel(t), 1}) : NULL;
}

gm_tensor *gm_work_contiguous(gm_work *w, gm_tensor *t)
{
    return w->st != GM_OK || gm_tensor_is_contiguous(t) ? t : gm_work_cast(w, t, t->dtype);
}

gm_tensor *gm_work_compact(gm_work *w, gm_tensor *t) { return gm_work_contiguous(w, gm_work_flat(w, t)); }

/* ---- new tensors ---- */

gm_tensor *gm_work_new(gm_work *w, gm_dtype dtype, int ndim, const int64_t *shape)
{
    gm_tensor *t = NULL;
    if (w->st != GM_OK) return NULL;
    if (gm_pool_place(w->device->pool) != w->charged) gm_rank_place(w->rank, w->place); /* an op on the way moved it */
    w->st = gm_tensor_new(w->device, dtype, ndim, shape, &t);
    if (w->st == GM_OK && (w->st = gm_padding_poison_new(w->rank, t)) != GM_OK) t = NULL;
    return gm_work_hold(w, t);
}

gm_tensor *gm_work_like(gm_work *w, const gm_tensor *t)
{
    return w->st == GM_OK ? gm_work_new(w, t->dtype, t->ndim, t->shape) : NULL;
}

gm_tensor *gm_work_full(gm_work *w, gm_dtype dtype, int ndim, const int64_t *shape, double value)
{
    gm_tensor *t = gm_work_new(w, dtype, ndim, shape);
    gm_work_fill(w, t, value);
    return t;
}

gm_tensor *gm_work_scalar(gm_work *w, gm_dtype dtype, double value) { return gm_work_full(w, dtype, 0, NULL, value); }

/* ---- ops ---- */

void gm_work_into(gm_work *w, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs, int n_out,
                  gm_tensor *const *out)
{
    gm_attrs defaults = gm_attrs_default();
    gm_call  c = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs ? attrs : &defaults};
    GM_STEP(w, gm_run(w->device, &c));
}

void gm_work_copy(gm_work *w, gm_tensor *from, gm_tensor *to)
{
    gm_attrs a = gm_attrs_default();
    if (w->st != GM_OK) return;
    a.dtype = to->dtype;
    gm_work_into(w, GM_OP_copy, 1, &from, &a, 1, &to);
}

void gm_work_fill(gm_work *w, gm_tensor *t, double value)
{
    gm_attrs a = gm_attrs_default();
    a.value = value;
    gm_work_into(w, GM_OP_fill, 0, NULL, &a, 1, &t);
}

void gm_work_run_all(gm_work *w, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs, int n_out,
                     gm_tensor **out)
{
    gm_attrs defaults = gm_attrs_default();
    gm_spec  spec[GM_MAX_OUT];
    gm_call  c = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs ? attrs : &defaults};
    memset(out, 0, (size_t)n_out * sizeof *out);
    GM_STEP(w, gm_infer(&c, spec));
    for (int i = 0; i < n_out && w->st == GM_OK; i++)
        out[i] = gm_work_new(w, spec[i].dtype, spec[i].ndim, spec[i].shape);
    GM_STEP(w, gm_run(w->device, &c));
}

gm_tensor *gm_work_run(gm_work *w, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs)
{
    gm_tensor *y;
    gm_work_run_all(w, op, n_in, in, attrs, 1, &y);
    return y;
}

gm_tensor *gm_work_affine(gm_work *w, gm_tensor *x, double alpha, double beta)
{
    gm_attrs a = gm_attrs_default();
    a.alpha = alpha;
    a.beta = beta;
    return gm_work_run(w, GM_OP_affine, 1, &x, &a);
}

gm_tensor *gm_work_unary(gm_work *w, gm_function f, gm_tensor *x)
{
    gm_attrs a = gm_attrs_default();
    a.function = f;
    return gm_work_run(w, GM_OP_unary, 1, &x, &a);
}

gm_tensor *gm_work_binary(gm_work *w, gm_function f, gm_tensor *a, gm_tensor *b)
{
    gm_attrs at = gm_attrs_default();
    at.function = f;
    return gm_work_run(w, f >= GM_FN_eq ? GM_OP_compare : GM_OP_binary, 2, (gm_tensor *[]){a, b}, &at);
}

gm_tensor *gm_work_where(gm_work *w, gm_tensor *condition, gm_tensor *a, gm_tensor *b)
{
    return gm_work_run(w, GM_OP_where, 3, (gm_tensor *[]){condition, a, b}, NULL);
}

gm_tensor *gm_work_cast(gm_work *w, gm_tensor *x, gm_dtype dtype)
{
    gm_attrs a = gm_attrs_default();
    a.dtype = dtype;
    return gm_work_run(w, GM_OP_copy, 1, &x, &a);
}

gm_tensor *gm_work_sum(gm_work *w, gm_tensor *x, uint32_t dims, bool keepdim, gm_tensor *to)
{
    gm_attrs a = gm_attrs_default();
    a.dims = dims;
    a.keepdim = keepdim;
    if (!to) return gm_work_run(w, GM_OP_sum, 1, &x, &a);
    gm_work_into(w, GM_OP_sum, 1, &x, &a, 1, &to);
    return to;
}

gm_tensor *gm_work_sum_to(gm_work *w, gm_tensor *x, int ndim, const int64_t *shape)
{
    uint32_t dims = 0;
    if (w->st != GM_OK) return NULL;
    int lead = x->ndim - ndim;
    for (int d = 0; d < x->ndim; d++)
        if (d < lead || (shape[d - lead] == 1 && x->shape[d] != 1)) dims |= 1u << d;
    return dims ? gm_work_shaped(w, gm_work_sum(w, x, dims, true, NULL), ndim, shape) : x;
}
