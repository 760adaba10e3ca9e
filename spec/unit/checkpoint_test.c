/* checkpoint_test.c - checkpoints of several ranks, all of them in this process: who writes what, how parts become a
 * checkpoint or do not, and what any other mesh reads of it. Element i (row-major) of the global tensor number t holds
 * 1000 t + i, so that every expected value comes from arithmetic alone. */
#include "../../host/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../host/checkpoint/files.h"
#include "../../host/checkpoint/plan.h"
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
static void draw_mesh(unit_random *r, world *w)
{
    static const char *const names[] = {"data", "row", "col"};
    w->mesh = gm_mesh_of_one();
    for (int a = 0; a < 3; a++) {
        int size = 1 + (int)unit_below(r, 3);
        OK(gm_mesh_add_axis(&w->mesh, names[a], gm_mesh_size(&w->mesh) * size > MOST ? 1 : size));
    }
    w->ranks = gm_mesh_size(&w->mesh);
}

static void draw_layout(unit_random *r, const gm_mesh *mesh, int ndim, gm_layout *layout)
{
    *layout = gm_layout_replicated();
    for (int a = 0; a < mesh->n_axes; a++) {
        int64_t d = unit_below(r, ndim + 2);
        if (d < ndim) layout->cut[d][layout->n_cuts[d]++] = (uint8_t)a;
    }
}

static double value_at(int t, int ndim, const int64_t *shape, const int64_t *at)
{
    int64_t i = 0;
    for (int d = 0; d < ndim; d++) i = i * shape[d] + at[d];
    return (double)(1000 * t + i);
}

/* Calls visit for every element of the padded block; inside: is it one of the global tensor? */
static void each(const world *w, int rank, const gm_piece *p,
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

static void fill_one(void *context, int64_t place, bool inside, const int64_t *at)
{
    filling *f = context;
    gm_store(f->p->tensor->dtype, gm_tensor_data(f->p->tensor), place,
             inside ? value_at(f->t, f->p->tensor->ndim, f->p->shape, at) : -7); /* padding must not be seen */
}

static void judge_one(void *context, int64_t place, bool inside, const int64_t *at)
{
    filling *f = context;
    double   got = gm_load(f->p->tensor->dtype, gm_tensor_data(f->p->tensor), place);
    assert_true(got == (inside ? value_at(f->t, f->p->tensor->ndim, f->p->shape, at) : 0));
}

/* The block of tensor t on each rank; columns: stored with its last two dimensions exchanged. */
static void make_tensor(world *w, int t, gm_dtype dtype, int ndim, const int64_t *shape, const gm_layout *layout,
                        bool columns)
{
    snprintf(w->names[t], sizeof w->names[t], "tensor.%d", t);
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
        *p = (gm_piece){.name = w->names[t], .tensor = block, .layout = *layout};
        memcpy(p->shape, shape, (size_t)ndim * sizeof *shape);
        filling f = {p, t};
        each(w, rank, p, fill_one, &f);
    }
}

static void draw_tensors(unit_random *r, world *w)
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

static void drop_tensors(world *w)
{
    for (int rank = 0; rank < w->ranks; rank++)
        for (int t = 0; t < w->tensors; t++) gm_tensor_release((gm_tensor *)(uintptr_t)w->pieces[rank][t].tensor);
}

/* ---- folders ---- */

static char folder[64];

static void new_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/ganymede-unit-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static void path_in(char *to, size_t size, const char *rest) { snprintf(to, size, "%s/%s", folder, rest); }

static bool there(const char *rest)
{
    char path[160];
    path_in(path, sizeof path, rest);
    return access(path, F_OK) == 0;
}

static void drop_folder(void)
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

static gm_save *new_save(const world *w, int rank, int64_t step, bool background)
{
    gm_save   *s = NULL;
    gm_save_as as = {.folder = folder,
                     .step = step,
                     .pieces = w->pieces[rank],
                     .n = w->tensors,
                     .meta = "{\"step\":1}",
                     .rank = rank,
                     .mesh = &w->mesh,
                     .background = background};
    OK(gm_save_new(&as, &s));
    return s;
}

/* All ranks save, in a drawn order; each in the background or not. Gives rank 0's outcome. */
static gm_status save_all(unit_random *r, const world *w, int64_t step)
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

/* ---- the tests ---- */

typedef struct counting {
    const gm_extent *box;
    int             *times;
    const gm_piece  *p;
} counting;

static void count_one(void *context, int64_t place, bool inside, const int64_t *at)
{
    counting *c = context;
    bool      in = inside;
    (void)place;
    for (int d = 0; d < c->box->ndim; d++)
        in = in && at[d] >= c->box->offset[d] && at[d] < c->box->offset[d] + c->box->shape[d];
    if (in) c->times[(int)value_at(0, c->p->tensor->ndim, c->p->shape, at)]++;
}

/* Every element is written by exactly one rank, which holds it. */
void gm_test_checkpoint_plan_covers(void **state)
{
    (void)state;
    unit_random r = {5};
    for (int round = 0; round < 200; round++) {
        world      w = {0};
        gm_planned planned[MOST][MOST];
        OK(gm_device_new("cpu", 1, &w.dev));
        draw_mesh(&r, &w);
        draw_tensors(&r, &w);
        for (int rank = 0; rank < w.ranks; rank++) OK(gm_plan(&w.mesh, rank, w.pieces[rank], w.tensors, planned[rank]));
        for (int t = 0; t < w.tensors; t++) {
            int             times[512] = {0}, empty = 0;
            const gm_piece *p = &w.pieces[0][t];
            int64_t         n = 1;
            for (int d = 0; d < p->tensor->ndim; d++) n *= p->shape[d];
            for (int rank = 0; rank < w.ranks; rank++) {
                if (!planned[rank][t].mine) continue;
                counting c = {&planned[rank][t].extent, times, &w.pieces[rank][t]};
                each(&w, rank, &w.pieces[rank][t], count_one, &c);
                empty += gm_extent_numel(c.box) == 0;
            }
            for (int64_t i = 0; i < n; i++) assert_int_equal(times[i], 1);
            assert_int_equal(empty, n == 0); /* one empty box for a tensor without elements, none otherwise */
        }
        drop_tensors(&w);
        gm_device_free(w.dev);
    }
}

/* Copies are shared by their bytes: one that weighs as much as the five others together has a rank to itself. */
void gm_test_checkpoint_plan_balances(void **state)
{
    (void)state;
    world      w = {.ranks = 4, .tensors = MOST};
    gm_planned planned[MOST];
    gm_layout  copies = gm_layout_replicated();
    int        boxes[4] = {0};
    OK(gm_device_new("cpu", 1, &w.dev));
    OK(gm_mesh_add_axis(&w.mesh, "data", 4));
    for (int t = 0; t < MOST; t++) make_tensor(&w, t, GM_F32, 1, (int64_t[]){t == 4 ? 25 : 5}, &copies, false);
    for (int rank = 0; rank < 4; rank++) {
        OK(gm_plan(&w.mesh, rank, w.pieces[rank], MOST, planned));
        for (int t = 0; t < MOST; t++) boxes[rank] += planned[t].mine;
        if (planned[4].mine) assert_int_equal(boxes[rank], 1);
        else assert_in_range(boxes[rank], 1, 2);
    }
    assert_int_equal(boxes[0] + boxes[1] + boxes[2] + boxes[3], MOST);
    w.pieces[0][2].layout.partial = 1;
    FAILS(GM_EINVAL, "'tensor.2' is still a sum over ranks", gm_plan(&w.mesh, 0, w.pieces[0], MOST, planned));
    w.pieces[0][2].layout.partial = 0, w.pieces[0][2].shape[0] = 6;
    FAILS(GM_ESHAPE, "'tensor.2': a rank's block is (6), here is (5)", gm_plan(&w.mesh, 0, w.pieces[0], MOST, planned));
    drop_tensors(&w);
    gm_device_free(w.dev);
}

/* What a random mesh saved, another one reads into other layouts, strides and all; padding is zero there. */
void gm_test_checkpoint_reshards(void **state)
{
    (void)state;
    unit_random r = {23};
    new_folder();
    for (int round = 0; round < 60; round++) {
        world          w = {0}, v = {0};
        gm_checkpoint *c;
        OK(gm_device_new("cpu", 1, &w.dev));
        v.dev = w.dev, v.tensors = MOST;
        draw_mesh(&r, &w);
        draw_mesh(&r, &v);
        draw_tensors(&r, &w);
        OK(save_all(&r, &w, 7)); /* the same step again and again: one replaces the other */
        char *path = gm_steps_path(folder, 7, "");
        OK(gm_checkpoint_open(path, 0, 1, &c));
        assert_int_equal(gm_checkpoint_world(c), w.ranks);
        for (int t = 0; t < MOST; t++) {
            gm_layout       layout;
            const gm_piece *p = &w.pieces[0][t];
            draw_layout(&r, &v.mesh, p->tensor->ndim, &layout);
            make_tensor(&v, t, p->tensor->dtype, p->tensor->ndim, p->shape, &layout, unit_below(&r, 2));
            for (int rank = 0; rank < v.ranks; rank++) {
                filling f = {&v.pieces[rank][t], t};
                for (int64_t i = 0; i < gm_tensor_numel(f.p->tensor); i++)
                    gm_store(f.p->tensor->dtype, gm_tensor_data(f.p->tensor), i, -3);
                OK(gm_checkpoint_read(c, &v.mesh, rank, f.p, NULL, false));
                each(&v, rank, f.p, judge_one, &f);
            }
        }
        gm_checkpoint_close(c);
        free(path);
        drop_tensors(&w);
        drop_tensors(&v);
        gm_device_free(w.dev);
    }
    drop_folder();
}

/* Three ranks, a cut tensor and two copies. */
static void three(world *w)
{
    gm_layout copies = gm_layout_replicated(), cut = gm_layout_cut(0, 1);
    *w = (world){.ranks = 3, .tensors = 3};
    OK(gm_device_new("cpu", 1, &w->dev));
    OK(gm_mesh_add_axis(&w->mesh, "data", 3));
    make_tensor(w, 0, GM_F32, 2, (int64_t[]){7, 5}, &cut, false);
    make_tensor(w, 1, GM_F64, 1, (int64_t[]){11}, &copies, false);
    make_tensor(w, 2, GM_F32, 1, (int64_t[]){3}, &copies, false);
}

typedef void (*mischief)(const char *beside, gm_save **saves, const char *token);

static void overwrite(const char *folder_of, const char *name, const char *bytes, off_t at)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder_of, name);
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, strlen(bytes), at), strlen(bytes));
    close(fd);
}

static void cut_short(const char *beside, gm_save **saves, const char *token)
{
    char path[200];
    (void)saves, (void)token;
    snprintf(path, sizeof path, "%s/rank-00001.safetensors", beside);
    assert_int_equal(truncate(path, 100), 0);
}

static void lose(const char *beside, gm_save **saves, const char *token)
{
    char path[200];
    (void)saves, (void)token;
    snprintf(path, sizeof path, "%s/rank-00002.safetensors", beside);
    assert_int_equal(unlink(path), 0);
}

static void flip(const char *beside, gm_save **saves, const char *token)
{
    (void)saves, (void)token;
    overwrite(beside, "rank-00001.json", "X", 30);
}

/* Rank 2 takes rank 1's part for its own. */
static void impersonate(const char *beside, gm_save **saves, const char *token)
{
    char from[200], to[200];
    (void)saves, (void)token;
    snprintf(from, sizeof from, "%s/rank-00001.json", beside);
    snprintf(to, sizeof to, "%s/rank-00002.json", beside);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(link(to, from), 0);
}

/* Ranks 1 and 2 have written when `harm` is done; then rank 0 merges. Nothing may be seen of it but its message, and
 * the checkpoint of step 1 must be as it was. */
static void refuse_merge(unit_random *r, world *w, mischief harm, gm_status status, const char *message)
{
    gm_save       *saves[3];
    gm_checkpoint *c;
    char           token[GM_SAVE_TOKEN], beside[100];
    OK(save_all(r, w, 1));
    for (int rank = 0; rank < 3; rank++) saves[rank] = new_save(w, rank, 2, rank == 0);
    OK(gm_save_prepare(saves[0], token));
    path_in(beside, sizeof beside, "step-00000002.tmp");
    for (int rank = 1; rank < 3; rank++) {
        OK(gm_save_start(saves[rank], token));
        OK(gm_save_part(saves[rank]));
    }
    harm(beside, saves, token);
    OK(gm_save_start(saves[0], token));
    gm_save_wait(saves[0], GM_SAVE_DONE, -1);
    FAILS(status, message, gm_save_result(saves[0]));
    for (int rank = 0; rank < 3; rank++) gm_save_free(saves[rank]);
    assert_false(there("step-00000002.tmp"));
    assert_false(there("step-00000002"));
    char *path = gm_steps_path(folder, 1, "");
    OK(gm_checkpoint_open(path, 0, 1, &c));
    gm_checkpoint_close(c);
    free(path);
}

void gm_test_checkpoint_parts_are_judged(void **state)
{
    (void)state;
    unit_random r = {3};
    world       w;
    new_folder();
    three(&w);
    refuse_merge(&r, &w, cut_short, GM_ECORRUPT, "rank-00001.safetensors: has 100 bytes, its rank wrote");
    refuse_merge(&r, &w, lose, GM_ECORRUPT, "rank-00002.safetensors: is missing");
    refuse_merge(&r, &w, flip, GM_ECORRUPT, "rank-00001.json: is damaged");
    refuse_merge(&r, &w, impersonate, GM_ECORRUPT, "rank-00002.json: is the part of another rank");
    drop_tensors(&w);
    gm_device_free(w.dev);
    drop_folder();
}

/* One save of step 2 by three ranks of which rank 1 differs: another token, mesh or list of tensors. */
static void odd_one(world *w, world *other, const char *other_token, int rank, const char *message)
{
    gm_save *saves[3];
    char     token[GM_SAVE_TOKEN];
    for (int k = 0; k < 3; k++) saves[k] = new_save(k == 1 ? other : w, k == 1 ? rank : k, 2, true);
    OK(gm_save_prepare(saves[0], token));
    for (int k = 0; k < 3; k++) OK(gm_save_start(saves[k], k == 1 && other_token ? other_token : token));
    for (int k = 0; k < 3; k++) gm_save_wait(saves[k], GM_SAVE_DONE, -1);
    assert_int_not_equal(gm_save_result(saves[0]), GM_OK);
    if (!strstr(gm_last_error(), message)) fail_msg("the message is '%s', not '%s'", gm_last_error(), message);
    for (int k = 0; k < 3; k++) gm_save_free(saves[k]);
    assert_false(there("step-00000002.tmp"));
    assert_false(there("step-00000002"));
}

void gm_test_checkpoint_ranks_disagree(void **state)
{
    (void)state;
    world w, two, fewer;
    new_folder();
    three(&w);
    three(&fewer);
    odd_one(&w, &w, "0123456789abcdef", 1, "rank-00001.json: belongs to another save");
    gm_tensor_release((gm_tensor *)(uintptr_t)fewer.pieces[0][2].tensor);
    gm_tensor_release((gm_tensor *)(uintptr_t)fewer.pieces[1][2].tensor);
    gm_tensor_release((gm_tensor *)(uintptr_t)fewer.pieces[2][2].tensor);
    fewer.tensors = 2;
    odd_one(&w, &fewer, NULL, 1, "rank 1 saves other tensors, or cuts them otherwise, than rank 0");
    two = (world){.dev = w.dev, .ranks = 2, .tensors = 0};
    OK(gm_mesh_add_axis(&two.mesh, "data", 2));
    odd_one(&w, &two, NULL, 1, "is of a save by 2 ranks; these are 3");
    drop_tensors(&w);
    drop_tensors(&fewer);
    gm_device_free(w.dev);
    gm_device_free(fewer.dev);
    drop_folder();
}

/* A rank that cannot write says why; one that says nothing is given up on when asked; rank 0's own failure waits for
 * the others before it takes the folder away from under them. */
void gm_test_checkpoint_rank_fails(void **state)
{
    (void)state;
    unit_random r = {9};
    world       w;
    char        token[GM_SAVE_TOKEN], beside[100];
    new_folder();
    three(&w);
    for (int bad = 0; bad < 3; bad++) {
        gm_save *saves[3];
        char     name[32];
        for (int rank = 0; rank < 3; rank++) saves[rank] = new_save(&w, rank, 2, unit_below(&r, 2));
        OK(gm_save_prepare(saves[0], token));
        path_in(beside, sizeof beside, "step-00000002.tmp");
        snprintf(name, sizeof name, "rank-%05d.safetensors", bad);
        overwrite(beside, name, "somebody else's", 0);
        OK(gm_save_start(saves[0], token));
        if (bad == 0) assert_int_equal(gm_save_wait(saves[0], GM_SAVE_DONE, 0.05), GM_SAVE_WRITTEN);
        assert_true(there("step-00000002.tmp"));
        for (int rank = 1; rank < 3; rank++) OK(gm_save_start(saves[rank], token));
        for (int rank = 0; rank < 3; rank++) gm_save_wait(saves[rank], GM_SAVE_DONE, -1);
        for (int rank = 0; rank < 3; rank++) {
            if (rank == bad) FAILS(GM_EIO, "cannot be made: File exists", gm_save_part(saves[rank]));
            else OK(gm_save_part(saves[rank]));
        }
        FAILS(GM_EIO, name, gm_save_result(saves[0]));
        if (bad) assert_non_null(strstr(gm_last_error(), bad == 1 ? "rank 1: " : "rank 2: "));
        for (int rank = 0; rank < 3; rank++) gm_save_free(saves[rank]);
        assert_false(there("step-00000002.tmp"));
    }
    gm_save *alone = new_save(&w, 0, 3, true);
    OK(gm_save_prepare(alone, token));
    OK(gm_save_start(alone, token));
    assert_int_equal(gm_save_wait(alone, GM_SAVE_DONE, 0.05), GM_SAVE_WRITTEN);
    gm_save_give_up(alone, "rank 1: it burnt down");
    gm_save_wait(alone, GM_SAVE_DONE, -1);
    FAILS(GM_EIO, "rank 1: it burnt down", gm_save_result(alone));
    gm_save_free(alone);
    assert_false(there("step-00000003.tmp"));
    alone = new_save(&w, 0, 4, true);
    OK(gm_save_prepare(alone, token));
    OK(gm_save_start(alone, token));
    gm_save_free(alone); /* does not wait for the others; what is left goes with the next save */
    assert_true(there("step-00000004.tmp"));
    OK(save_all(&r, &w, 5));
    assert_false(there("step-00000004.tmp"));
    drop_tensors(&w);
    gm_device_free(w.dev);
    drop_folder();
}

/* Ranks that open together check each byte of data once: of `parts` shares exactly one notices a flipped one. */
void gm_test_checkpoint_shares_of_verifying(void **state)
{
    (void)state;
    unit_random r = {4};
    world       w;
    new_folder();
    three(&w);
    OK(save_all(&r, &w, 1));
    char *path = gm_steps_path(folder, 1, "");
    for (int parts = 1; parts <= 4; parts++)
        for (int rank = 0; rank < 3; rank++) {
            char        file[200], byte;
            struct stat info;
            int         noticed = 0;
            snprintf(file, sizeof file, "%s/rank-%05d.safetensors", path, rank);
            int fd = open(file, O_RDWR);
            assert_int_equal(fstat(fd, &info), 0);
            assert_int_equal(pread(fd, &byte, 1, info.st_size - 2), 1);
            byte ^= 16;
            assert_int_equal(pwrite(fd, &byte, 1, info.st_size - 2), 1);
            for (int part = 0; part < parts; part++) {
                gm_checkpoint *c = NULL;
                gm_status      st = gm_checkpoint_open(path, part, parts, &c);
                if (st != GM_OK) {
                    assert_int_equal(st, GM_ECORRUPT);
                    assert_non_null(strstr(gm_last_error(), file));
                    noticed++;
                }
                gm_checkpoint_close(c);
            }
            assert_int_equal(noticed, 1);
            byte ^= 16;
            assert_int_equal(pwrite(fd, &byte, 1, info.st_size - 2), 1);
            close(fd);
        }
    free(path);
    drop_tensors(&w);
    gm_device_free(w.dev);
    drop_folder();
}

/* Beyond its limit a copy is not made; the save is then done when start returns, and says so. */
void gm_test_checkpoint_copy_limit(void **state)
{
    (void)state;
    world     w = {.ranks = 1, .tensors = 1};
    gm_layout whole = gm_layout_replicated();
    new_folder();
    OK(gm_device_new("cpu", 1, &w.dev));
    make_tensor(&w, 0, GM_F64, 1, (int64_t[]){100}, &whole, false);
    for (int bytes = 799; bytes <= 800; bytes++) {
        gm_save   *s;
        char       token[GM_SAVE_TOKEN];
        gm_save_as as = {.folder = folder,
                         .step = bytes,
                         .pieces = w.pieces[0],
                         .n = 1,
                         .meta = "{}",
                         .mesh = &w.mesh,
                         .background = true,
                         .snapshot_limit = (uint64_t)bytes};
        OK(gm_save_new(&as, &s));
        OK(gm_save_prepare(s, token));
        OK(gm_save_start(s, token));
        assert_int_equal(gm_save_in_background(s), bytes == 800);
        if (bytes == 799) assert_int_equal(gm_save_wait(s, GM_SAVE_DONE, 0), GM_SAVE_DONE);
        gm_save_wait(s, GM_SAVE_DONE, -1);
        OK(gm_save_result(s));
        gm_save_free(s);
    }
    drop_tensors(&w);
    gm_device_free(w.dev);
    drop_folder();
}
