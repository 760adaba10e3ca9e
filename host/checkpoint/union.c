/* union.c - see union.h. A list is a run of records, each followed by a name and its 0; ranks of a job run the same
 * program, so a record is a struct as it lies in memory. */
#include "union.h"

#include <stdlib.h>
#include <string.h>

typedef struct record {
    uint32_t  name_size; /* with its 0 */
    int32_t   dtype, ndim;
    int64_t   shape[GM_MAX_DIMS];
    gm_layout layout;
} record;

typedef struct entry {
    gm_piece piece;
    int      stage;
} entry;

/* ---- lists ---- */

gm_status gm_save_list(const gm_piece *pieces, int n, char **bytes, size_t *size)
{
    size_t total = 0;
    for (int i = 0; i < n; i++) total += sizeof(record) + strlen(pieces[i].name) + 1;
    char *to = *bytes = malloc(total + 1);
    if (!to) return GM_FAIL(GM_ENOMEM, "no memory for a list of %d tensors", n);
    for (int i = 0; i < n; i++) {
        const gm_piece *p = &pieces[i];
        record          r;
        memset(&r, 0, sizeof r); /* equal pieces make equal bytes */
        r.name_size = (uint32_t)strlen(p->name) + 1;
        r.dtype = (int32_t)p->dtype, r.ndim = p->ndim;
        memcpy(r.shape, p->shape, (size_t)p->ndim * sizeof *r.shape);
        r.layout = p->layout;
        memcpy(to, &r, sizeof r);
        memcpy(to + sizeof r, p->name, r.name_size);
        to += sizeof r + r.name_size;
    }
    *size = total;
    return GM_OK;
}

/* The piece at *at of a list; moves on behind it. */
static gm_status read_piece(const gm_mesh *mesh, const gm_stage_list *list, int stage, size_t *at, gm_piece *p)
{
    record r;
    size_t left = list->size - *at;
    bool   right = left > sizeof r;
    if (right) {
        memcpy(&r, list->bytes + *at, sizeof r);
        right = r.name_size > 0 && r.name_size <= left - sizeof r && r.ndim >= 0 && r.ndim <= GM_MAX_DIMS &&
                r.dtype >= 0 && r.dtype < GM_DTYPE_COUNT && !list->bytes[*at + sizeof r + r.name_size - 1];
    }
    if (!right) return GM_FAIL(GM_EINVAL, "what stage %d says it holds is no list of tensors", stage);
    *p = (gm_piece){.name = list->bytes + *at + sizeof r, .dtype = (gm_dtype)r.dtype, .ndim = r.ndim};
    memcpy(p->shape, r.shape, sizeof r.shape);
    p->layout = r.layout;
    *at += sizeof r + r.name_size;
    return gm_layout_check(mesh, &p->layout, p->ndim);
}

/* Adds the pieces of a list to *n; to: entries to fill from the n-th on, or NULL. */
static gm_status read_list(const gm_mesh *mesh, const gm_stage_list *list, int stage, entry *to, int *n)
{
    entry e = {.stage = stage};
    for (size_t at = 0; at < list->size; (*n)++) {
        GM_TRY(read_piece(mesh, list, stage, &at, &e.piece));
        if (to) to[*n] = e;
    }
    return GM_OK;
}

/* ---- the union ---- */

static int by_name_and_stage(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int          order = strcmp(x->piece.name, y->piece.name);
    return order ? order : (x->stage > y->stage) - (x->stage < y->stage);
}

/* Two stages that hold a tensor of one name hold the same. */
static gm_status check_same(const gm_mesh *mesh, const gm_piece *p, int p_stage, const gm_piece *q, int q_stage)
{
    char shapes[2][96], layouts[2][160];
    if (p->dtype == q->dtype && p->ndim == q->ndim && !memcmp(p->shape, q->shape, (size_t)p->ndim * sizeof *p->shape) &&
        gm_layout_equal(&p->layout, &q->layout))
        return GM_OK;
    return GM_FAIL(GM_EINVAL,
                   "tensor '%s' is %s %s %s on stage %d, %s %s %s on stage %d of the pipeline; stages that hold a "
                   "tensor of the same name must hold the same one: give one of the two another name",
                   p->name, gm_dtype_name(p->dtype), gm_shape_describe(p->ndim, p->shape, shapes[0], sizeof *shapes),
                   gm_layout_describe(mesh, &p->layout, p->ndim, layouts[0], sizeof *layouts), p_stage,
                   gm_dtype_name(q->dtype), gm_shape_describe(q->ndim, q->shape, shapes[1], sizeof *shapes),
                   gm_layout_describe(mesh, &q->layout, q->ndim, layouts[1], sizeof *layouts), q_stage);
}

/* Entries in order of name and stage into one piece a name. stages: 0 where there is no pipeline to tell of. */
static gm_status unite(const gm_mesh *mesh, const entry *entries, int n, int stages, gm_union *out)
{
    int first = 0; /* of this name */
    for (int i = 0; i < n; i++) {
        const entry *e = &entries[i], *before = i ? &entries[i - 1] : NULL;
        bool         again = before && !strcmp(before->piece.name, e->piece.name);
        if (again && before->stage == e->stage) return GM_FAIL(GM_EINVAL, "two tensors are called '%s'", e->piece.name);
        if (again) GM_TRY(check_same(mesh, &entries[first].piece, entries[first].stage, &e->piece, e->stage));
        else first = i, out->pieces[out->n++] = e->piece;
        gm_piece *p = &out->pieces[out->n - 1];
        if (e->piece.tensor) p->tensor = e->piece.tensor;
        if (!stages) continue;
        bool *held = out->held + (size_t)(out->n - 1) * (size_t)stages;
        held[e->stage] = true;
        p->stages = held;
    }
    return GM_OK;
}

/* The rank's own blocks, for the entries of its own stage. */
static gm_status add_blocks(entry *entries, int count, const gm_piece *mine, int n, int stage)
{
    bool same = count == n;
    for (int i = 0; same && i < n; i++) same = !strcmp(entries[i].piece.name, mine[i].name);
    if (!same) return GM_FAIL(GM_EINVAL, "the list of stage %d is not that of this rank, which is on it", stage);
    for (int i = 0; i < n; i++) entries[i].piece.tensor = mine[i].tensor;
    return GM_OK;
}

/* Entries of all stages, or of `mine` where there are no lists. */
static gm_status read_all(const gm_mesh *mesh, int rank, const gm_stage_list *lists, int stages, const gm_piece *mine,
                          int n, entry *entries)
{
    int at = 0, c[GM_MAX_AXES];
    gm_mesh_coordinates(mesh, rank, c);
    for (int i = 0; !stages && i < n; i++) entries[i].piece = mine[i];
    for (int s = 0; s < stages; s++) {
        int first = at;
        GM_TRY(read_list(mesh, &lists[s], s, entries, &at));
        if (s == c[gm_mesh_axis(mesh, GM_AXIS_PIPELINE)]) GM_TRY(add_blocks(entries + first, at - first, mine, n, s));
    }
    return GM_OK;
}

gm_status gm_union_make(const gm_mesh *mesh, int rank, const gm_stage_list *lists, const gm_piece *mine, int n,
                        gm_union *out)
{
    int axis = gm_mesh_axis(mesh, GM_AXIS_PIPELINE), stages = 0, total = n;
    *out = (gm_union){0};
    if (lists && axis < 0) return GM_FAIL(GM_EINVAL, "lists of stages, but the mesh has no axis pipeline");
    if (lists) stages = mesh->axis[axis].size, total = 0;
    for (int s = 0; s < stages; s++) GM_TRY(read_list(mesh, &lists[s], s, NULL, &total));
    entry *entries = calloc((size_t)total + 1, sizeof *entries);
    out->pieces = calloc((size_t)total + 1, sizeof *out->pieces);
    out->held = calloc((size_t)total * (size_t)stages + 1, sizeof *out->held);
    gm_status st = entries && out->pieces && out->held
                       ? GM_OK
                       : GM_FAIL(GM_ENOMEM, "no memory for the list of %d tensors", total);
    if (st == GM_OK) st = read_all(mesh, rank, lists, stages, mine, n, entries);
    if (st == GM_OK) {
        qsort(entries, (size_t)total, sizeof *entries, by_name_and_stage);
        st = unite(mesh, entries, total, stages, out);
    }
    free(entries);
    if (st != GM_OK) gm_union_free(out);
    return st;
}

void gm_union_free(gm_union *s)
{
    free(s->pieces);
    free(s->held);
    *s = (gm_union){0};
}
