/* checkpoint_test.c - who writes what of a checkpoint, what any other mesh reads of it, who verifies it. */
#include "checkpoint_world.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "../../host/checkpoint/plan.h"

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
                         .spared = -1,
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
