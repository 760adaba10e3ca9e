/* parts.c - see parts.h. */
#include "parts.h"

void gm_parts_find(const gm_value *v, uint32_t axes, gm_parts *out)
{
    const gm_mesh *mesh = &v->rank->mesh;
    gm_parts       p = {.rank = v->rank, .ndim = v->ndim, .whole = v->layout, .outer = 1, .inner = 1};
    p.dim = axes ? gm_layout_divide(mesh, &v->layout, v->ndim, v->shape, axes, &p.owned) : -1;
    if (p.dim >= 0 && gm_layout_parts(mesh, &p.owned, p.dim) > gm_layout_parts(mesh, &p.whole, p.dim)) {
        p.owners = gm_layout_cut_axes(&p.owned) & ~gm_layout_cut_axes(&v->layout);
        for (int d = 0; d < v->ndim; d++) p.global[d] = v->shape[d];
        gm_layout_local(mesh, &p.whole, p.ndim, p.global, p.block);
        gm_layout_local(mesh, &p.owned, p.ndim, p.global, p.part);
        for (int d = 0; d < p.dim; d++) p.outer *= p.block[d];
        for (int d = p.dim + 1; d < p.ndim; d++) p.inner *= p.block[d];
        p.n = p.block[p.dim];
        p.len = p.part[p.dim];
    }
    *out = p;
}

int64_t gm_parts_numel(const gm_parts *p) { return p->outer * p->len * p->inner; }

gm_status gm_parts_group(const gm_parts *p, gm_comm **comm, gm_group **group)
{
    GM_TRY(gm_rank_comm(p->rank, comm));
    return gm_comm_group(*comm, p->owners, group);
}

static gm_owned_rows rows_of(const gm_mesh *mesh, const gm_layout *whole, const gm_layout *owned, int dim, int ndim,
                             const int64_t *global, int rank)
{
    int     coordinate[GM_MAX_AXES];
    gm_box  block, part;
    int64_t padded[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    gm_mesh_coordinates(mesh, rank, coordinate);
    gm_layout_block(mesh, whole, coordinate, ndim, global, &block, padded, logical);
    gm_layout_block(mesh, owned, coordinate, ndim, global, &part, padded, logical);
    return (gm_owned_rows){dim, part.offset[dim] - block.offset[dim], logical[dim]};
}

gm_owned_rows gm_owned_rows_of(const gm_value *v, const gm_layout *owned, int rank)
{
    int dim = 0;
    while (dim < v->ndim - 1 && owned->n_cuts[dim] == v->layout.n_cuts[dim]) dim++;
    return rows_of(&v->rank->mesh, &v->layout, owned, dim, v->ndim, v->shape, rank);
}

bool gm_is_shared_out(const gm_value *v) { return v->param && (v->param->own || v->param->stored); }

const gm_layout *gm_owned_layout(const gm_value *v) { return gm_is_shared_out(v) ? &v->param->owned : &v->layout; }

gm_status gm_owned_part(const gm_value *v, gm_tensor *t, gm_tensor **out)
{
    if (gm_is_shared_out(v)) {
        bool          whole = t == v->local || t == v->param->grad;
        gm_owned_rows rows = gm_owned_rows_of(v, &v->param->owned, v->rank->rank);
        return gm_tensor_narrow(t, rows.dim, whole ? rows.start : 0, rows.length, out);
    }
    *out = t;
    gm_tensor_retain(t);
    return GM_OK;
}

static gm_owned_rows rows(const gm_parts *p, int rank)
{
    return rows_of(&p->rank->mesh, &p->whole, &p->owned, p->dim, p->ndim, p->global, rank);
}

bool gm_parts_are_block(const gm_parts *p, const gm_group *g)
{
    return p->dim == 0 && p->len * gm_group_size(g) == p->n;
}

static gm_status copy_view(const gm_parts *p, const int64_t *shape, gm_tensor *from, const int64_t *from_stride,
                           int64_t from_at, gm_tensor *to, const int64_t *to_stride, int64_t to_at)
{
    gm_tensor *a = NULL, *b = NULL;
    gm_status  st = gm_tensor_view(from, 3, shape, from_stride, from->offset + from_at, &a);
    if (st == GM_OK) st = gm_tensor_view(to, 3, shape, to_stride, to->offset + to_at, &b);
    if (st == GM_OK) st = gm_run_one(p->rank->device, GM_OP_copy, NULL, a, b);
    gm_tensor_release(a);
    gm_tensor_release(b);
    return st;
}

/* Copies the parts of `n` owners, `length` rows each, from row `start` of the block on. */
static gm_status copy_rows(const gm_parts *p, gm_tensor *block, int64_t start, int64_t n, int64_t length,
                           gm_tensor *parts, int64_t stride, int64_t at, bool pack)
{
    int64_t shape[] = {n, p->outer, length * p->inner};
    int64_t in_block[] = {length * p->inner, p->n * p->inner, 1}, in_parts[] = {stride, p->len * p->inner, 1};
    if (!n || !length || !p->outer || !p->inner) return GM_OK;
    return pack ? copy_view(p, shape, block, in_block, start * p->inner, parts, in_parts, at)
                : copy_view(p, shape, parts, in_parts, at, block, in_block, start * p->inner);
}

gm_status gm_parts_copy(const gm_parts *p, const gm_group *g, gm_tensor *block, gm_tensor *parts, int64_t stride,
                        int64_t at, bool pack)
{
    int n = gm_group_size(g);
    if (p->len * n == p->n) return copy_rows(p, block, 0, n, p->len, parts, stride, at, pack);
    for (int j = 0; j < n; j++) {
        gm_owned_rows r = rows(p, gm_group_member(g, j));
        GM_TRY(copy_rows(p, block, r.start, 1, r.length, parts, stride, j * stride + at, pack));
    }
    return GM_OK;
}

gm_status gm_parts_copy_own(const gm_parts *p, gm_tensor *block, gm_tensor *part, int64_t at, bool pack)
{
    gm_owned_rows r = rows(p, p->rank->rank);
    return copy_rows(p, block, r.start, 1, r.length, part, gm_parts_numel(p), at, pack);
}

gm_status gm_parts_flatten(gm_tensor *t, gm_tensor **out)
{
    int64_t n = gm_tensor_numel(t), one = 1;
    return gm_tensor_view(t, 1, &n, &one, t->offset, out);
}
