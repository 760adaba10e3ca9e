/* checkpoint_world.h - ranks of a checkpoint, all of them in one process: their blocks, their saves, a folder. Element
 * i (row-major) of the global tensor number t holds 1000 t + i, so that every expected value comes from arithmetic
 * alone; padding holds -7. */
#ifndef GM_UNIT_CHECKPOINT_WORLD_H
#define GM_UNIT_CHECKPOINT_WORLD_H

#include "../../host/checkpoint/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../../host/checkpoint/files.h"
#include "../../host/checkpoint/steps.h"
#include "unit.h"

#define MOST 6 /* ranks, tensors */

/* ---- ranks and their blocks ---- */

typedef struct world {
    gm_device *dev;
    gm_mesh    mesh;
    int        ranks, tensors;
    gm_piece   pieces[MOST * 2][MOST]; /* by rank, by tensor */
    char       names[MOST][16];
} world;

/* A mesh of up to three axes and six ranks. */
static inline void draw_mesh(unit_random *r, world *w)
{
    static const char *const names[] = {"data", "row", "col"};
    w->mesh = gm_mesh_of_one();
    for (int a = 0; a < 3; a++) {
        int size = 1 + (int)unit_below(r, 3);
        OK(gm_mesh_add_axis(&w->mesh, names[a], gm_mesh_size(&w->mesh) * size > MOST ? 1 : size));
    }
    w->ranks = gm_mesh_size(&w->mesh);
}

static inline void draw_layout(unit_random *r, const gm_mesh *mesh, int ndim, gm_layout *layout)
{
    *layout = gm_layout_replicated();
    for (int a = 0; a < mesh->n_axes; a++) {
        int64_t d = unit_below(r, ndim + 2);
        if (d < ndim) layout->cut[d][layout->n_cuts[d]++] = (uint8_t)a;
    }
}

static inline double value_at(int t, int ndim, const int64_t *shape, const int64_t *at)
{
    int64_t i = 0;
    for (int d = 0; d < ndim; d++) i = i * shape[d] + at[d];
    return (double)(1000 * t + i);
}

/* Calls visit for every element of the padded block; inside: is it one of the global tensor? */
static inline void each(const world *w, int rank, const gm_piece *p,
                        void (*visit)(void *context, int64_t place, bool inside, const int64_t *at), void *context)
{
    int     c[GM_MAX_AXES], nd = p->tensor->ndim;
    int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS], at[GM_MAX_DIMS];
    gm_box  box;
    gm_mesh_coordinates(&w->mesh, rank, c);
    gm_layout_block(&w->mesh, &p->layout, c, nd, p->shape, &box, local, logical);
    for (int64_t i = 0; i < gm_tensor_numel(p->tensor); i++) {
        bool    inside = true;
        int64_t rest = i, place = 0;
        for (int d = nd - 1; d >= 0; d--) {
            int64_t k = rest % local[d];
            rest /= local[d];
            inside = inside && k < logical[d];
            at[d] = box.offset[d] + k, place += k * p->tensor->stride[d];
        }
        visit(context, place, inside, at);
    }
}

typedef struct filling {
    const gm_piece *p;
    int             t;
} filling;

static inline void fill_one(void *context, int64_t place, bool inside, const int64_t *at)
{
    filling *f = context;
    gm_store(f->p->tensor->dtype, gm_tensor_data(f->p->tensor), place,
             inside ? value_at(f->t, f->p->tensor->ndim, f->p->shape, at) : -7); /* padding must not be seen */
}

static inline void judge_one(void *context, int64_t place, bool inside, const int64_t *at)
{
    filling *f = context;
    double   got = gm_load(f->p->tensor->dtype, gm_tensor_data(f->p->tensor), place);
    assert_true(got == (inside ? value_at(f->t, f->p->tensor->ndim, f->p->shape, at) : 0));
}

typedef struct counting {
    const gm_extent *box;
    int             *times; /* by element of the global tensor */
    const gm_piece  *p;
} counting;

/* Counts the elements that lie in the box, of tensor 0 or as if it were. */
static inline void count_one(void *context, int64_t place, bool inside, const int64_t *at)
{
    counting *c = context;
    bool      in = inside;
    (void)place;
    for (int d = 0; d < c->box->ndim; d++)
        in = in && at[d] >= c->box->offset[d] && at[d] < c->box->offset[d] + c->box->shape[d];
    if (in) c->times[(int)value_at(0, c->p->ndim, c->p->shape, at)]++;
}

/* The block of tensor t on each rank; columns: stored with its last two dimensions exchanged. */
static inline void make_tensor(world *w, int t, gm_dtype dtype, int ndim, const int64_t *shape, const gm_layout *layout,
                               bool columns)
{
    snprintf(w->names[t], sizeof w->names[t], "tensor.%u", (unsigned)t % 100000u);
    for (int rank = 0; rank < w->ranks; rank++) {
        int        c[GM_MAX_AXES], order[GM_MAX_DIMS];
        int64_t    local[GM_MAX_DIMS], logical[GM_MAX_DIMS], stored[GM_MAX_DIMS];
        gm_box     box;
        gm_piece  *p = &w->pieces[rank][t];
        gm_tensor *base, *block;
        gm_mesh_coordinates(&w->mesh, rank, c);
        gm_layout_block(&w->mesh, layout, c, ndim, shape, &box, local, logical);
        columns = columns && ndim >= 2;
        for (int d = 0; d < ndim; d++) order[d] = !columns || d < ndim - 2 ? d : ndim - 2 + (ndim - 1 - d);
        for (int d = 0; d < ndim; d++) stored[d] = local[order[d]];
        OK(gm_tensor_new(w->dev, dtype, ndim, stored, &base));
        OK(gm_tensor_permute(base, order, &block));
        gm_tensor_release(base);
        *p = gm_piece_of(w->names[t], block, layout, shape);
        filling f = {p, t};
        each(w, rank, p, fill_one, &f);
    }
}

static inline void draw_tensors(unit_random *r, world *w)
{
    static const gm_dtype dtypes[] = {GM_F32, GM_F64, GM_I32};
    w->tensors = MOST;
    for (int t = 0; t < MOST; t++) {
        int       ndim = t == 0 ? 0 : 1 + (int)unit_below(r, 3);
        int64_t   shape[3] = {unit_below(r, 8), 1 + unit_below(r, 7), 1 + unit_below(r, 5)};
        gm_layout layout;
        draw_layout(r, &w->mesh, ndim, &layout);
        make_tensor(w, t, dtypes[unit_below(r, 3)], ndim, shape, &layout, unit_below(r, 2));
    }
}

static inline void drop_tensors(world *w)
{
    for (int rank = 0; rank < w->ranks; rank++)
        for (int t = 0; t < w->tensors; t++) gm_tensor_release((gm_tensor *)(uintptr_t)w->pieces[rank][t].tensor);
}

/* ---- folders ---- */

static char folder[64];

static inline void new_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/ganymede-unit-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static inline void path_in(char *to, size_t size, const char *rest) { snprintf(to, size, "%s/%s", folder, rest); }

static inline bool there(const char *rest)
{
    char path[160];
    path_in(path, sizeof path, rest);
    return access(path, F_OK) == 0;
}

static inline void drop_folder(void)
{
    int64_t *steps;
    int      n;
    OK(gm_steps_list(folder, &steps, &n));
    for (int i = 0; i < n; i++) {
        char *path = gm_steps_path(folder, steps[i], "");
        OK(gm_files_remove(path));
        free(path);
    }
    free(steps);
    assert_int_equal(rmdir(folder), 0); /* nothing else was left there */
}

/* ---- saves ---- */

static inline gm_save *new_save_of(const world *w, int rank, int64_t step, bool background, bool apart)
{
    gm_save   *s = NULL;
    gm_save_as as = {.folder = folder,
                     .step = step,
                     .pieces = w->pieces[rank],
                     .n = w->tensors,
                     .meta = "{\"step\":1}",
                     .rank = rank,
                     .mesh = &w->mesh,
                     .apart = apart,
                     .background = background};
    OK(gm_save_new(&as, &s));
    return s;
}

static inline gm_save *new_save(const world *w, int rank, int64_t step, bool background)
{
    return new_save_of(w, rank, step, background, false);
}

/* All ranks save, in a drawn order; each in the background or not. Gives rank 0's outcome. */
static inline gm_status save_all(unit_random *r, const world *w, int64_t step)
{
    gm_save *saves[MOST];
    char     token[GM_SAVE_TOKEN], why[1000];
    int      first = (int)unit_below(r, w->ranks);
    for (int rank = 0; rank < w->ranks; rank++) saves[rank] = new_save(w, rank, step, unit_below(r, 2));
    OK(gm_save_prepare(saves[0], token));
    for (int i = 0; i < w->ranks; i++) OK(gm_save_start(saves[(first + i) % w->ranks], token));
    for (int rank = 0; rank < w->ranks; rank++)
        assert_int_equal(gm_save_wait(saves[rank], GM_SAVE_DONE, -1), GM_SAVE_DONE);
    gm_status st = gm_save_result(saves[0]);
    snprintf(why, sizeof why, "%s", gm_last_error());
    for (int rank = 0; rank < w->ranks; rank++) gm_save_free(saves[rank]);
    return st == GM_OK ? st : gm_fail_again(st, why);
}

/* Three ranks, a cut tensor and two copies. */
static inline void three(world *w)
{
    gm_layout copies = gm_layout_replicated(), cut = gm_layout_cut(0, 1);
    *w = (world){.ranks = 3, .tensors = 3};
    OK(gm_device_new("cpu", 1, &w->dev));
    OK(gm_mesh_add_axis(&w->mesh, "data", 3));
    make_tensor(w, 0, GM_F32, 2, (int64_t[]){7, 5}, &cut, false);
    make_tensor(w, 1, GM_F64, 1, (int64_t[]){11}, &copies, false);
    make_tensor(w, 2, GM_F32, 1, (int64_t[]){3}, &copies, false);
}

#endif
