/* redistribute_blocks.h - global tensors cut into blocks element by element, for tests of host/parallel: what a rank
 * should hold, worked out from the global tensor alone. */
#ifndef GM_REDISTRIBUTE_BLOCKS_H
#define GM_REDISTRIBUTE_BLOCKS_H

#include "../../host/autograd/apply.h"
#include "../../host/parallel/redistribute.h"
#include "unit.h"

#define MOST_RANKS 9
#define MOST_AXES  3
#define MOST_DIMS  3

/* A whole number for element i of tensor `which`: sums and differences of these are exact. */
static inline double whole_number(uint64_t which, int64_t i)
{
    return (double)(gm_mix64(which * 1000003 + (uint64_t)i) % 2001) - 1000;
}

typedef struct block_walk {
    gm_box  box;
    int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS], n; /* n: elements of the padded block */
    int     ndim;
} block_walk;

static inline block_walk walk_block(const gm_mesh *mesh, const gm_layout *l, int rank, int ndim, const int64_t *shape)
{
    block_walk w = {.ndim = ndim, .n = 1};
    int        c[GM_MAX_AXES];
    gm_mesh_coordinates(mesh, rank, c);
    gm_layout_block(mesh, l, c, ndim, shape, &w.box, w.local, w.logical);
    for (int d = 0; d < ndim; d++) w.n *= w.local[d];
    return w;
}

/* Where element i of the block is in the global tensor; -1: in the padding. */
static inline int64_t global_index(const block_walk *w, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = w->ndim - 1; d >= 0; d--) {
        int64_t k = i % w->local[d];
        i /= w->local[d];
        if (k >= w->logical[d]) return -1;
        at += (w->box.offset[d] + k) * step;
        step *= w->box.shape[d];
    }
    return at;
}

/* Place of a rank among those that hold terms of one sum. */
static inline int term_of(const gm_mesh *mesh, uint32_t partial, int rank)
{
    int c[GM_MAX_AXES], term = 0;
    gm_mesh_coordinates(mesh, rank, c);
    for (int a = 0; a < mesh->n_axes; a++)
        if (partial & 1u << a) term = term * mesh->axis[a].size + c[a];
    return term;
}

static inline int terms_of(const gm_mesh *mesh, uint32_t partial)
{
    int n = 1;
    for (int a = 0; a < mesh->n_axes; a++)
        if (partial & 1u << a) n *= mesh->axis[a].size;
    return n;
}

/* What this rank holds of global element i of tensor `which`: all of it, or its term of a sum. */
static inline double held_number(const gm_mesh *mesh, uint32_t partial, int rank, uint64_t which, int64_t i)
{
    int    terms = terms_of(mesh, partial), mine = term_of(mesh, partial, rank);
    double x = whole_number(which, i);
    if (mine) return whole_number(which + 100 * (uint64_t)mine, i);
    for (int t = 1; t < terms; t++) x -= whole_number(which + 100 * (uint64_t)t, i);
    return x;
}

/* A block of tensor `which`, in f64. */
static inline gm_tensor *block_of(gm_rank *r, const gm_layout *l, int ndim, const int64_t *shape, uint64_t which,
                                  double padding)
{
    gm_tensor *t = NULL;
    block_walk w = walk_block(&r->mesh, l, r->rank, ndim, shape);
    OK(gm_tensor_new(r->device, GM_F64, ndim, w.local, &t));
    for (int64_t i = 0; i < w.n; i++) {
        int64_t at = global_index(&w, i);
        double  x = at < 0 ? padding : held_number(&r->mesh, l->partial, r->rank, which, at);
        ((double *)gm_tensor_data(t))[i] = x;
    }
    return t;
}

/* a b, element by element, on the tape. */
static inline gm_value *multiplied(gm_rank *r, gm_value *a, gm_value *b)
{
    gm_attrs  at = gm_attrs_default();
    gm_value *y = NULL;
    at.function = GM_FN_mul;
    OK(gm_apply(r, GM_OP_binary, 2, (gm_value *[]){a, b}, &at, 1, NULL, &y));
    return y;
}

/* Up to MOST_AXES axes of at least 2, at most MOST_RANKS ranks. */
static inline gm_mesh draw_mesh(unit_random *r)
{
    static const char *const names[MOST_AXES] = {"data", "row", "col"};
    gm_mesh                  mesh = gm_mesh_of_one();
    for (int a = 0, left = MOST_RANKS; a < MOST_AXES && left >= 2; a++) {
        int size = 2 + (int)unit_below(r, a ? 2 : 4);
        if (size > left) size = left;
        OK(gm_mesh_add_axis(&mesh, names[a], size));
        left /= size;
        if (!unit_below(r, 4)) break;
    }
    return mesh;
}

/* Any axis cuts any dimension, is partial (if wanted), or neither. */
static inline gm_layout draw_layout_of(unit_random *r, const gm_mesh *mesh, int ndim, bool partial)
{
    gm_layout l = gm_layout_replicated();
    int       start = (int)unit_below(r, mesh->n_axes);
    for (int i = 0; i < mesh->n_axes; i++) {
        int a = (start + i) % mesh->n_axes, d = (int)unit_below(r, ndim + 2);
        if (d == ndim && partial) l.partial |= 1u << a;
        else if (d < ndim) l.cut[d][l.n_cuts[d]++] = (uint8_t)a;
    }
    return l;
}

#endif
