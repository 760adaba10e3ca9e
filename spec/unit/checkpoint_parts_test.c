/* checkpoint_parts_test.c - how the parts of several ranks become a checkpoint, or do not: parts that are damaged,
 * ranks that disagree, ranks that fail. */
#include "checkpoint_world.h"

#include <fcntl.h>

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

/* Rank 0 has written its part, however long that takes, and then waits. */
static void waits_for_others(gm_save *save)
{
    assert_int_equal(gm_save_wait(save, GM_SAVE_WRITTEN, -1), GM_SAVE_WRITTEN);
    assert_int_equal(gm_save_wait(save, GM_SAVE_DONE, 0.05), GM_SAVE_WRITTEN);
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
        if (bad == 0) waits_for_others(saves[0]);
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
    waits_for_others(alone);
    gm_save_give_up(alone, "rank 1: it burnt down");
    gm_save_wait(alone, GM_SAVE_DONE, -1);
    FAILS(GM_EIO, "rank 1: it burnt down", gm_save_result(alone));
    gm_save_free(alone);
    assert_false(there("step-00000003.tmp"));
    alone = new_save(&w, 0, 3, true);
    OK(gm_save_prepare(alone, token));
    OK(gm_save_start(alone, token));
    waits_for_others(alone);
    path_in(beside, sizeof beside, "step-00000003.tmp");
    OK(gm_files_remove(beside)); /* somebody tidies up */
    gm_save_all_written(alone);
    assert_int_equal(gm_save_wait(alone, GM_SAVE_DONE, 60), GM_SAVE_DONE);
    FAILS(GM_EIO, "rank 1 has written its part, which is gone", gm_save_result(alone));
    gm_save_free(alone);
    alone = new_save(&w, 0, 4, true);
    OK(gm_save_prepare(alone, token));
    OK(gm_save_start(alone, token));
    gm_save_free(alone); /* does not wait for the others; what is left goes with the next save */
    assert_true(there("step-00000004.tmp"));
    OK(save_all(&r, &w, 5));
    assert_false(there("step-00000004.tmp"));
    alone = new_save(&w, 1, 6, false); /* as if its disk were not rank 0's */
    OK(gm_save_start(alone, token));
    FAILS(GM_EIO, "rank 0 made it, rank 1 does not see it", gm_save_part(alone));
    gm_save_free(alone);
    drop_tensors(&w);
    gm_device_free(w.dev);
    drop_folder();
}
