/* owned.c - sums of gradients that are shared out over their owners, and parameters that come back after the update
 * (ZeRO stages 1 and 2: Rajbhandari et al. 2020, arXiv:1910.02054).
 *
 * An owner has a block of each member of a bucket: the member's layout, cut further by the axes of the owners
 * (gm_layout_divide). Gradients are packed by owner: the part of an owner is its blocks of all members, one behind the
 * other. One reduce-scatter then gives every owner its part, and sends (p-1)/p of the bytes. After the update the parts
 * of the parameters travel back in one all-gather, which sends (p-1)/p again. A large parameter, which has a bucket of
 * its own, needs no packing if it is divided by rows: its gradient is the parts as it is.
 *
 * When all sums are there, one small sum tells which parameters no rank had a gradient of: a number for each. */
#include "owned.h"

#include <stdlib.h>
#include "buckets.h"

/* A member as three dimensions: outer x n x inner, of which n is shared out in blocks of len. */
typedef struct folded {
    int64_t outer, n, inner, len;
} folded;

static folded fold(const slot *s)
{
    const gm_tensor *t = s->leaf->local;
    folded           f = {1, t->shape[s->dim], 1, s->view->shape[s->dim]};
    for (int d = 0; d < s->dim; d++) f.outer *= t->shape[d];
    for (int d = s->dim + 1; d < t->ndim; d++) f.inner *= t->shape[d];
    return f;
}

static gm_status owners_of(gm_reducer *d, const bucket *b, gm_group **out)
{
    gm_comm *comm;
    GM_TRY(gm_rank_comm(d->rank, &comm));
    return gm_comm_group(comm, b->owners, out);
}

uint32_t gm_owned_layout(gm_reducer *d, slot *s)
{
    const gm_value *v = s->leaf;
    s->dim = d->owners ? gm_layout_divide(&d->rank->mesh, &v->layout, v->ndim, v->shape, d->owners, &s->owned) : -1;
    return s->dim < 0 ? 0 : gm_layout_cut_axes(&s->owned) & ~gm_layout_cut_axes(&v->layout);
}

gm_owned_rows gm_owned_rows_of(const gm_value *leaf, const gm_layout *owned, int rank)
{
    const gm_mesh *mesh = &leaf->rank->mesh;
    int            coordinate[GM_MAX_AXES], dim = 0;
    gm_box         whole, part;
    int64_t        padded[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    while (dim < leaf->ndim - 1 && owned->n_cuts[dim] == leaf->layout.n_cuts[dim]) dim++;
    gm_mesh_coordinates(mesh, rank, coordinate);
    gm_layout_block(mesh, &leaf->layout, coordinate, leaf->ndim, leaf->shape, &whole, padded, logical);
    gm_layout_block(mesh, owned, coordinate, leaf->ndim, leaf->shape, &part, padded, logical);
    return (gm_owned_rows){dim, part.offset[dim] - whole.offset[dim], logical[dim]};
}

gm_status gm_owned_make(gm_reducer *d, bucket *b)
{
    gm_attrs zero = gm_attrs_default();
    int64_t  stride[GM_MAX_DIMS], shape[GM_MAX_DIMS], at = 0;
    b->numel = 0;
    for (int i = b->first; i >= 0; i = d->slots[i].next) {
        const gm_value *v = d->slots[i].leaf;
        gm_layout_local(&d->rank->mesh, &d->slots[i].owned, v->ndim, v->shape, shape);
        d->slots[i].at = b->numel;
        int64_t numel = 1;
        for (int k = 0; k < v->ndim; k++) numel *= shape[k];
        b->numel += numel;
    }
    gm_rank_place(d->rank, "gradient");
    GM_TRY(gm_tensor_new(d->rank->device, b->dtype, 1, &b->numel, &b->flat));
    GM_TRY(gm_run_one(d->rank->device, GM_OP_fill, &zero, NULL, b->flat));
    for (int i = b->first; i >= 0; i = d->slots[i].next) {
        slot     *s = &d->slots[i];
        gm_value *v = s->leaf;
        gm_layout_local(&d->rank->mesh, &s->owned, v->ndim, v->shape, shape);
        gm_shape_strides(v->ndim, shape, stride);
        GM_TRY(gm_tensor_view(b->flat, v->ndim, shape, stride, at, &s->view));
        at += gm_tensor_numel(s->view);
        v->param->own = s->view;
        v->param->owned = s->owned;
        v->param->own_set = false;
        gm_tensor_retain(s->view);
    }
    return GM_OK;
}

/* ---- between whole blocks and parts ---- */

static gm_status copy_view(gm_reducer *d, int ndim, const int64_t *shape, gm_tensor *from, const int64_t *from_stride,
                           int64_t from_at, gm_tensor *to, const int64_t *to_stride, int64_t to_at)
{
    gm_tensor *a = NULL, *b = NULL;
    gm_status  st = gm_tensor_view(from, ndim, shape, from_stride, from->offset + from_at, &a);
    if (st == GM_OK) st = gm_tensor_view(to, ndim, shape, to_stride, to->offset + to_at, &b);
    if (st == GM_OK) st = gm_run_one(d->rank->device, GM_OP_copy, NULL, a, b);
    gm_tensor_release(a);
    gm_tensor_release(b);
    return st;
}

/* Copies the blocks of `n` owners, `length` rows each, between the contiguous block of the leaf, from row `start` on,
 * and parts that are `part` elements long. */
static gm_status move_blocks(gm_reducer *d, const slot *s, gm_tensor *whole, int64_t start, int64_t n, int64_t length,
                             gm_tensor *parts, int64_t part, int64_t at, bool pack)
{
    folded  f = fold(s);
    int64_t shape[] = {n, f.outer, length * f.inner};
    int64_t in_whole[] = {length * f.inner, f.n * f.inner, 1}, in_parts[] = {part, f.len * f.inner, 1};
    if (!n || !length || !f.outer || !f.inner) return GM_OK;
    return pack ? copy_view(d, 3, shape, whole, in_whole, start * f.inner, parts, in_parts, at)
                : copy_view(d, 3, shape, parts, in_parts, at, whole, in_whole, start * f.inner);
}

/* The blocks of all owners of a member. */
static gm_status move_member(gm_reducer *d, const slot *s, gm_group *g, gm_tensor *whole, gm_tensor *parts,
                             int64_t part, bool pack)
{
    folded f = fold(s);
    int    p = gm_group_size(g);
    if (f.len * p == f.n) return move_blocks(d, s, whole, 0, p, f.len, parts, part, s->at, pack);
    for (int j = 0; j < p; j++) {
        gm_owned_rows rows = gm_owned_rows_of(s->leaf, &s->owned, gm_group_member(g, j));
        GM_TRY(move_blocks(d, s, whole, rows.start, 1, rows.length, parts, part, j * part + s->at, pack));
    }
    return GM_OK;
}

/* ---- sums ---- */

/* Does this rank's gradient of the member count? One that is replicated over an axis counts at its coordinate 0. */
static bool counts(const gm_reducer *d, const slot *s, uint32_t axes)
{
    const gm_rank *r = d->rank;
    for (int a = 0; a < r->mesh.n_axes; a++)
        if (axes & ~s->leaf->param->grad_partial & 1u << a && r->coordinate[a]) return false;
    return s->used;
}

/* Is t, which belongs to the only member and is like its block, the parts of all owners as it is? */
static bool is_packed(const bucket *b, const slot *s, gm_group *g, const gm_tensor *t)
{
    return b->members == 1 && s->dim == 0 && s->view->shape[0] * gm_group_size(g) == s->leaf->local->shape[0] &&
           t->dtype == b->dtype && gm_tensor_is_contiguous(t);
}

/* t as one dimension. */
static gm_status flatten(gm_tensor *t, gm_tensor **out)
{
    int64_t n = gm_tensor_numel(t), one = 1;
    return gm_tensor_view(t, 1, &n, &one, t->offset, out);
}

/* The parts of all owners, of zeros where this rank has nothing to add. */
static gm_status pack(gm_reducer *d, bucket *b, gm_group *g, uint32_t axes)
{
    gm_attrs    zero = gm_attrs_default();
    int64_t     n = b->numel * gm_group_size(g);
    const slot *first = &d->slots[b->first];
    if (counts(d, first, axes) && is_packed(b, first, g, first->leaf->param->grad))
        return flatten(first->leaf->param->grad, &b->packed);
    gm_rank_place(d->rank, "gradient");
    GM_TRY(gm_tensor_new(d->rank->device, b->dtype, 1, &n, &b->packed));
    GM_TRY(gm_run_one(d->rank->device, GM_OP_fill, &zero, NULL, b->packed));
    for (int i = b->first; i >= 0; i = d->slots[i].next) {
        const slot *s = &d->slots[i];
        if (counts(d, s, axes)) GM_TRY(move_member(d, s, g, s->leaf->param->grad, b->packed, b->numel, true));
    }
    return GM_OK;
}

static void free_gradients(gm_reducer *d, const bucket *b)
{
    for (int i = b->first; i >= 0; i = d->slots[i].next) {
        gm_parameter *p = d->slots[i].leaf->param;
        gm_tensor_release(p->grad);
        p->grad = NULL;
        p->grad_set = false;
        p->grad_partial = 0;
    }
}

/* Has a member a sum of an earlier pass? */
static bool adds(const gm_reducer *d, const bucket *b)
{
    for (int i = b->first; i >= 0; i = d->slots[i].next)
        if (d->slots[i].leaf->param->own_set) return true;
    return false;
}

gm_status gm_owned_launch(gm_reducer *d, bucket *b, uint32_t axes)
{
    gm_comm  *comm;
    gm_group *g;
    GM_TRY(gm_rank_comm(d->rank, &comm));
    GM_TRY(owners_of(d, b, &g));
    b->rest = axes & ~b->owners;
    d->summed_over |= axes;
    GM_TRY(pack(d, b, g, axes));
    free_gradients(d, b);
    b->sum = b->flat;
    if (adds(d, b)) {
        gm_rank_place(d->rank, "gradient");
        GM_TRY(gm_tensor_new(d->rank->device, b->dtype, 1, &b->numel, &b->sum));
    } else {
        gm_tensor_retain(b->sum);
    }
    return gm_comm_reduce_scatter(comm, g, b->packed, 0, GM_SUM, b->sum, &b->pending);
}

/* A sum beside the one of an earlier pass joins it. What of that is no gradient is not zero, and is replaced. */
static gm_status add_sum(gm_reducer *d, const bucket *b)
{
    gm_attrs zero = gm_attrs_default();
    for (int i = b->first; i >= 0; i = d->slots[i].next)
        if (!d->slots[i].leaf->param->own_set)
            GM_TRY(gm_run_one(d->rank->device, GM_OP_fill, &zero, NULL, d->slots[i].view));
    return gm_run_one(d->rank->device, GM_OP_axpy, NULL, b->sum, b->flat);
}

gm_status gm_owned_finish(gm_reducer *d, bucket *b)
{
    gm_comm  *comm;
    gm_group *g;
    GM_TRY(gm_rank_comm(d->rank, &comm));
    GM_TRY(gm_comm_finish(comm, &b->pending));
    gm_tensor_release(b->packed);
    b->packed = NULL;
    GM_TRY(gm_comm_group(comm, b->rest, &g));
    if (gm_group_size(g) > 1) GM_TRY(gm_comm_all_reduce(comm, g, b->sum, GM_SUM, NULL));
    gm_status st = b->sum == b->flat ? GM_OK : add_sum(d, b);
    gm_tensor_release(b->sum);
    b->sum = NULL;
    return gm_comm_once(st);
}

void gm_owned_drop(bucket *b)
{
    gm_tensor_release(b->packed);
    gm_tensor_release(b->sum);
    b->packed = b->sum = NULL;
}

/* flags[i]: how many ranks had a gradient of leaf i. */
static gm_status count_users(gm_reducer *d, gm_tensor *flags)
{
    gm_comm  *comm;
    gm_group *g;
    double   *used = malloc((size_t)d->n * sizeof *used);
    if (!used) return GM_FAIL(GM_ENOMEM, "no memory for a list of %d parameters", d->n);
    for (int i = 0; i < d->n; i++) used[i] = d->slots[i].used;
    gm_status st = GM_OK;
    if (gm_tensor_data(flags))
        st = gm_device_write(d->rank->device, gm_tensor_data(flags), used, (size_t)d->n * sizeof *used);
    if (st == GM_OK) st = gm_rank_comm(d->rank, &comm);
    if (st == GM_OK) st = gm_comm_group(comm, d->summed_over, &g);
    if (st == GM_OK) st = gm_comm_all_reduce(comm, g, flags, GM_SUM, NULL);
    free(used);
    return st;
}

gm_status gm_owned_settle(gm_reducer *d)
{
    gm_tensor *flags;
    int64_t    n = d->n;
    gm_rank_place(d->rank, "gradient");
    GM_TRY(gm_tensor_new(d->rank->device, GM_F64, 1, &n, &flags));
    gm_status st = count_users(d, flags);
    for (int i = 0; i < d->n && st == GM_OK; i++) {
        slot  *s = &d->slots[i];
        double users = 1; /* without data: as if all were used */
        if (!d->buckets[s->bucket].owners) continue;
        if (!s->used && gm_tensor_data(flags)) st = gm_host_load(flags, i, &users);
        s->unused = users == 0;
        if (!s->unused) s->leaf->param->own_set = true;
    }
    gm_tensor_release(flags);
    d->summed_over = 0;
    return gm_comm_once(st);
}

/* ---- parameters ---- */

/* The rows of its members that this rank has updated, as a part. */
static gm_status pack_own(gm_reducer *d, const bucket *b, gm_tensor *mine)
{
    for (int i = b->first; i >= 0; i = d->slots[i].next) {
        const slot   *s = &d->slots[i];
        gm_owned_rows rows = gm_owned_rows_of(s->leaf, &s->owned, d->rank->rank);
        GM_TRY(move_blocks(d, s, s->leaf->local, rows.start, 1, rows.length, mine, b->numel, s->at, true));
    }
    return GM_OK;
}

/* Where the parts of all owners arrive: in the parameter itself where that is what they are. */
static gm_status place_of_all(gm_reducer *d, const bucket *b, gm_group *g, gm_tensor **out)
{
    const slot *first = &d->slots[b->first];
    int64_t     n = b->numel * gm_group_size(g);
    if (is_packed(b, first, g, first->leaf->local)) return flatten(first->leaf->local, out);
    gm_rank_place(d->rank, "parameter");
    return gm_tensor_new(d->rank->device, b->dtype, 1, &n, out);
}

static gm_status unpack_all(gm_reducer *d, const bucket *b, gm_group *g, gm_tensor *all)
{
    for (int i = b->first; i >= 0; i = d->slots[i].next) {
        const slot *s = &d->slots[i];
        gm_value_touched(s->leaf);
        if (all->storage != s->leaf->local->storage) GM_TRY(move_member(d, s, g, s->leaf->local, all, b->numel, false));
    }
    return GM_OK;
}

static gm_status gather_bucket(gm_reducer *d, bucket *b)
{
    gm_comm   *comm;
    gm_group  *g;
    gm_attrs   zero = gm_attrs_default();
    gm_tensor *mine = NULL, *all = NULL;
    gm_status  st;
    GM_TRY(gm_rank_comm(d->rank, &comm));
    GM_TRY(owners_of(d, b, &g));
    gm_rank_place(d->rank, "parameter");
    GM_TRY_OR(gm_tensor_new(d->rank->device, b->dtype, 1, &b->numel, &mine), st, done);
    GM_TRY_OR(gm_run_one(d->rank->device, GM_OP_fill, &zero, NULL, mine), st, done);
    GM_TRY_OR(pack_own(d, b, mine), st, done);
    GM_TRY_OR(place_of_all(d, b, g, &all), st, done);
    GM_TRY_OR(gm_comm_all_gather(comm, g, mine, 0, all, NULL), st, done);
    st = unpack_all(d, b, g, all);
done:
    gm_tensor_release(mine);
    gm_tensor_release(all);
    return st;
}

gm_status gm_reducer_gather(gm_reducer *d)
{
    for (int k = 0; k < d->n_buckets; k++)
        if (d->buckets[k].owners) GM_TRY(gather_bucket(d, &d->buckets[k]));
    return GM_OK;
}
