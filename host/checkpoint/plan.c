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
    gm_extent e = {.ndim = piece->tensor->ndim};
    gm_layout_block(mesh, &piece->layout, coordinate, e.ndim, piece->shape, &box, local, e.shape);
    memcpy(e.offset, box.offset, (size_t)e.ndim * sizeof *e.offset);
    return e;
}

static gm_status check_piece(const gm_mesh *mesh, const gm_piece *p)
{
    const gm_tensor *t = p->tensor;
    const int        first[GM_MAX_AXES] = {0};
    int64_t          local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    gm_box           box;
    char             got[96], want[96], layout[160];
    GM_TRY(gm_layout_check(mesh, &p->layout, t->ndim));
    if (p->layout.partial)
        return GM_FAIL(GM_EINVAL,
                       "tensor '%s' is still a sum over ranks (%s); reduce it before it goes into a checkpoint or "
                       "comes out of one",
                       p->name, gm_layout_describe(mesh, &p->layout, t->ndim, layout, sizeof layout));
    gm_layout_block(mesh, &p->layout, first, t->ndim, p->shape, &box, local, logical);
    for (int d = 0; d < t->ndim; d++)
        if (local[d] != t->shape[d])
            return GM_FAIL(GM_ESHAPE, "tensor '%s': a rank's block is %s, here is %s", p->name,
                           gm_shape_describe(t->ndim, local, want, sizeof want),
                           gm_shape_describe(t->ndim, t->shape, got, sizeof got));
    return GM_OK;
}

static bool is_empty(const gm_piece *p)
{
    for (int d = 0; d < p->tensor->ndim; d++)
        if (!p->shape[d]) return true;
    return false;
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

/* The lowest rank that holds the same box as the one at c, which is changed into its coordinates. */
static int lowest_holder(const share *s, uint32_t cut, int *c)
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
        int *best = &s->best[lowest_holder(s, cut, c)];
        if (*best < 0 || s->load[r] < s->load[*best]) *best = r;
    }
    gm_mesh_coordinates(s->mesh, s->rank, c);
    out->extent = gm_plan_extent(s->mesh, p, c);
    if (empty) {
        memset(out->extent.offset, 0, sizeof out->extent.offset);
        memcpy(out->extent.shape, p->shape, (size_t)p->tensor->ndim * sizeof *p->shape);
    }
    int mine = s->best[lowest_holder(s, cut, c)];
    out->mine = mine == s->rank && (empty || gm_extent_numel(&out->extent) > 0);
    for (int r = 0; r < s->world; r++) {
        if (s->best[r] < 0) continue;
        gm_mesh_coordinates(s->mesh, r, c);
        gm_extent e = gm_plan_extent(s->mesh, p, c);
        s->load[s->best[r]] += gm_extent_numel(&e) * (int64_t)gm_dtype_size(p->tensor->dtype);
    }
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
        st = check_piece(mesh, &pieces[i]);
        int64_t bytes = gm_tensor_numel(pieces[i].tensor) * (int64_t)gm_dtype_size(pieces[i].tensor->dtype);
        order[i] = (weighed){&pieces[i], i, bytes};
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
        const int64_t   what[] = {p->tensor->dtype, p->tensor->ndim};
        crc = gm_crc32c(crc, p->name, strlen(p->name) + 1);
        crc = add_numbers(add_numbers(crc, 2, what), p->tensor->ndim, p->shape);
        gm_layout_describe(mesh, &p->layout, p->tensor->ndim, text, sizeof text);
        crc = gm_crc32c(crc, text, strlen(text));
    }
    return crc;
}
