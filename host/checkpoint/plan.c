/* plan.c - see plan.h. */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

gm_extent gm_plan_extent(const gm_mesh *mesh, const gm_piece *piece, const int *coordinate)
{
    int64_t   local[GM_MAX_DIMS];
    gm_box    box;
    gm_extent e = {.ndim = piece->ndim};
    gm_layout_block(mesh, &piece->layout, coordinate, e.ndim, piece->shape, &box, local, e.shape);
    memcpy(e.offset, box.offset, (size_t)e.ndim * sizeof *e.offset);
    return e;
}

/* Does the rank at these coordinates hold a block of it? */
static bool holds(const gm_mesh *mesh, const gm_piece *p, const int *coordinate)
{
    return !p->stages || p->stages[coordinate[gm_mesh_axis(mesh, GM_AXIS_PIPELINE)]];
}

static gm_status check_stages(const gm_mesh *mesh, const gm_piece *p)
{
    int axis = gm_mesh_axis(mesh, GM_AXIS_PIPELINE);
    if (!p->stages) return GM_OK;
    if (axis < 0) return GM_FAIL(GM_EINVAL, "tensor '%s' is held by stages of a pipeline that there is not", p->name);
    if (gm_layout_cut_axes(&p->layout) & 1u << axis)
        return GM_FAIL(GM_EINVAL, "tensor '%s' is cut over the axis pipeline, which cuts no tensor", p->name);
    return GM_OK;
}

static gm_status check_block(const gm_mesh *mesh, const gm_piece *p)
{
    const gm_tensor *t = p->tensor;
    int64_t          local[GM_MAX_DIMS];
    char             got[96], want[96];
    gm_layout_local(mesh, &p->layout, p->ndim, p->shape, local);
    for (int d = 0; d < p->ndim; d++)
        if (local[d] != t->shape[d])
            return GM_FAIL(GM_ESHAPE, "tensor '%s': a rank's block is %s, here is %s", p->name,
                           gm_shape_describe(p->ndim, local, want, sizeof want),
                           gm_shape_describe(p->ndim, t->shape, got, sizeof got));
    return GM_OK;
}

static gm_status check_piece(const gm_mesh *mesh, int rank, const gm_piece *p)
{
    int  c[GM_MAX_AXES];
    char layout[160];
    GM_TRY(gm_layout_check(mesh, &p->layout, p->ndim));
    if (p->layout.partial)
        return GM_FAIL(GM_EINVAL,
                       "tensor '%s' is still a sum over ranks (%s); reduce it before it goes into a checkpoint or "
                       "comes out of one",
                       p->name, gm_layout_describe(mesh, &p->layout, p->ndim, layout, sizeof layout));
    GM_TRY(check_stages(mesh, p));
    gm_mesh_coordinates(mesh, rank, c);
    if (!holds(mesh, p, c)) return GM_OK;
    return p->tensor ? check_block(mesh, p) : GM_FAIL(GM_EINVAL, "tensor '%s' is not there", p->name);
}

static bool is_empty(const gm_piece *p)
{
    for (int d = 0; d < p->ndim; d++)
        if (!p->shape[d]) return true;
    return false;
}

gm_piece gm_piece_of(const char *name, const gm_tensor *block, const gm_layout *layout, const int64_t *shape)
{
    gm_piece p = {.name = name, .tensor = block, .dtype = block->dtype, .ndim = block->ndim, .layout = *layout};
    memcpy(p.shape, shape, (size_t)p.ndim * sizeof *shape);
    return p;
}

/* ---- sharing the work ---- */

typedef struct weighed {
    const gm_piece *piece;
    int             index;
    int64_t         bytes; /* of a rank's padded block */
} weighed;

static int heaviest_first(const void *a, const void *b)
{
    const weighed *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->piece->name, y->piece->name);
}

typedef struct share {
    const gm_mesh *mesh;
    int            rank, world;
    int64_t       *load; /* bytes that each rank writes */
    int           *best; /* of those that hold the same box, by the lowest of them; -1: nobody yet */
} share;

/* The lowest rank of those that hold the same box as the one at c would (its stage may hold none), whose coordinates c
 * becomes. */
static int box_of(const share *s, uint32_t cut, int *c)
{
    for (int a = 0; a < s->mesh->n_axes; a++)
        if (!(cut & 1u << a)) c[a] = 0;
    return gm_mesh_rank(s->mesh, c);
}

/* Who writes each box of one piece. */
static void choose(share *s, const gm_piece *p, gm_planned *out)
{
    int      c[GM_MAX_AXES];
    bool     empty = is_empty(p);
    uint32_t cut = empty ? 0 : gm_layout_cut_axes(&p->layout);
    for (int r = 0; r < s->world; r++) s->best[r] = -1;
    for (int r = 0; r < s->world; r++) {
        gm_mesh_coordinates(s->mesh, r, c);
        if (!holds(s->mesh, p, c)) continue;
        int *best = &s->best[box_of(s, cut, c)];
        if (*best < 0 || s->load[r] < s->load[*best]) *best = r;
    }
    gm_mesh_coordinates(s->mesh, s->rank, c);
    out->extent = gm_plan_extent(s->mesh, p, c);
    if (empty) {
        memset(out->extent.offset, 0, sizeof out->extent.offset);
        memcpy(out->extent.shape, p->shape, (size_t)p->ndim * sizeof *p->shape);
    }
    int mine = s->best[box_of(s, cut, c)];
    out->mine = mine == s->rank && (empty || gm_extent_numel(&out->extent) > 0);
    for (int r = 0; r < s->world; r++) {
        if (s->best[r] < 0) continue;
        gm_mesh_coordinates(s->mesh, r, c);
        gm_extent e = gm_plan_extent(s->mesh, p, c);
        s->load[s->best[r]] += gm_extent_numel(&e) * (int64_t)gm_dtype_size(p->dtype);
    }
}

/* Bytes of a rank's padded block. */
static int64_t weight(const gm_mesh *mesh, const gm_piece *p)
{
    int64_t local[GM_MAX_DIMS], bytes = (int64_t)gm_dtype_size(p->dtype);
    gm_layout_local(mesh, &p->layout, p->ndim, p->shape, local);
    for (int d = 0; d < p->ndim; d++) bytes *= local[d];
    return bytes;
}

gm_status gm_plan(const gm_mesh *mesh, int rank, const gm_piece *pieces, int n, gm_planned *planned)
{
    share     s = {mesh, rank, gm_mesh_size(mesh), NULL, NULL};
    weighed  *order = malloc((size_t)n * sizeof *order + 1);
    gm_status st = GM_OK;
    s.load = calloc((size_t)s.world, sizeof *s.load);
    s.best = malloc((size_t)s.world * sizeof *s.best);
    if (!order || !s.load || !s.best)
        st = GM_FAIL(GM_ENOMEM, "no memory to share %d tensors among %d ranks", n, s.world);
    for (int i = 0; st == GM_OK && i < n; i++) {
        st = check_piece(mesh, rank, &pieces[i]);
        if (st == GM_OK) order[i] = (weighed){&pieces[i], i, weight(mesh, &pieces[i])};
    }
    if (st == GM_OK) qsort(order, (size_t)n, sizeof *order, heaviest_first);
    for (int i = 0; st == GM_OK && i < n; i++) choose(&s, order[i].piece, &planned[order[i].index]);
    free(order);
    free(s.load);
    free(s.best);
    return st;
}

/* ---- saying what was planned ---- */

static uint32_t add_numbers(uint32_t crc, int n, const int64_t *list)
{
    for (int i = 0; i < n; i++) {
        char text[24];
        crc = gm_crc32c(crc, text, (size_t)snprintf(text, sizeof text, "%lld,", (long long)list[i]));
    }
    return crc;
}

uint32_t gm_plan_digest(const gm_mesh *mesh, const gm_piece *pieces, int n)
{
    uint32_t crc = 0;
    char     text[256];
    for (int a = 0; a < mesh->n_axes; a++)
        crc = gm_crc32c(crc, text,
                        (size_t)snprintf(text, sizeof text, "%s=%d;", mesh->axis[a].name, mesh->axis[a].size));
    for (int i = 0; i < n; i++) {
        const gm_piece *p = &pieces[i];
        const int64_t   what[] = {p->dtype, p->ndim};
        crc = gm_crc32c(crc, p->name, strlen(p->name) + 1);
        crc = add_numbers(add_numbers(crc, 2, what), p->ndim, p->shape);
        gm_layout_describe(mesh, &p->layout, p->ndim, text, sizeof text);
        crc = gm_crc32c(crc, text, strlen(text));
        if (p->stages) crc = gm_crc32c(crc, p->stages, (size_t)mesh->axis[gm_mesh_axis(mesh, GM_AXIS_PIPELINE)].size);
    }
    return crc;
}
