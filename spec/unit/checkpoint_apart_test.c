/* checkpoint_apart_test.c - parts of ranks that share no folder: saved one by one, joined, read where some are
 * missing. */
#include "checkpoint_world.h"

#include "../../host/checkpoint/apart.h"

static char at[100]; /* the folder of step 1 */

/* All ranks save for themselves, with this token, in the background or not. */
static void save_apart(const world *w, const char *token, bool background)
{
    path_in(at, sizeof at, "step-00000001");
    for (int rank = w->ranks - 1; rank >= 0; rank--) { /* nobody waits for rank 0 */
        gm_save *s = new_save_of(w, rank, 1, background, true);
        OK(gm_save_start(s, token));
        assert_int_equal(gm_save_wait(s, GM_SAVE_DONE, 60), GM_SAVE_DONE);
        OK(gm_save_part(s));
        gm_save_free(s);
    }
}

static void in_step(char *path, size_t size, const char *name) { snprintf(path, size, "%s/%s", at, name); }

static void move(const char *from, const char *to)
{
    char a[200], b[200];
    in_step(a, sizeof a, from);
    in_step(b, sizeof b, to);
    assert_int_equal(rename(a, b), 0);
}

/* Reads piece t of a rank; its values must then be right. */
static gm_status read_piece(gm_checkpoint *c, world *w, int rank, int t)
{
    gm_piece *p = &w->pieces[rank][t];
    memset(gm_tensor_data(p->tensor), 0x55, (size_t)gm_tensor_numel(p->tensor) * gm_dtype_size(p->dtype));
    GM_TRY(gm_checkpoint_read(c, &w->mesh, rank, p, NULL, false));
    filling f = {p, t};
    each(w, rank, p, judge_one, &f);
    return GM_OK;
}

/* A piece can be read exactly if the files that it is said to need are there; `gone` is not. */
static int read_all(gm_checkpoint *c, world *w, int gone)
{
    int missed = 0;
    for (int rank = 0; rank < w->ranks; rank++) {
        for (int t = 0; t < w->tensors; t++) {
            bool needed[MOST] = {false};
            OK(gm_checkpoint_files(c, &w->mesh, rank, &w->pieces[rank][t], needed));
            bool lacks = gone >= 0 && needed[gone];
            missed += lacks;
            if (lacks) FAILS(GM_EIO, "rank-00002.safetensors is not on this machine", read_piece(c, w, rank, t));
            else OK(read_piece(c, w, rank, t));
        }
    }
    return missed;
}

void gm_test_checkpoint_apart_joins(void **state)
{
    (void)state;
    world          w;
    gm_checkpoint *c;
    new_folder();
    three(&w);
    for (int background = 0; background < 2; background++) {
        save_apart(&w, "0123456789abcdef", background); /* the second one replaces the first */
        assert_false(there("step-00000001/index.json"));
        OK(gm_apart_join(at, 3));
        OK(gm_checkpoint_open_partly(at, &c));
        assert_string_equal(gm_checkpoint_meta(c), "{\"step\":1}");
        assert_int_equal(gm_checkpoint_world(c), 3);
        assert_int_equal(read_all(c, &w, -1), 0);
        gm_checkpoint_close(c);
        char index[200];
        in_step(index, sizeof index, "index.json");
        assert_int_equal(unlink(index), 0);
    }
    OK(gm_apart_join(at, 3));
    OK(gm_checkpoint_open(at, 0, 1, &c)); /* where all files are, it is a checkpoint as others */
    gm_checkpoint_close(c);
    move("rank-00002.safetensors", "elsewhere");
    FAILS(GM_ECORRUPT, "rank-00002.safetensors: is missing", gm_checkpoint_open(at, 0, 1, &c));
    OK(gm_checkpoint_open_partly(at, &c));
    assert_true(read_all(c, &w, 2) > 0);
    gm_checkpoint_close(c);
    drop_tensors(&w);
    gm_device_free(w.dev);
    drop_folder();
}

static void overwrite_end(const char *name)
{
    char path[200];
    in_step(path, sizeof path, name);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    int last = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    fputc(last ^ 1, f);
    fclose(f);
}

void gm_test_checkpoint_apart_judges(void **state)
{
    (void)state;
    world    w;
    gm_apart a, b;
    new_folder();
    three(&w);
    save_apart(&w, "0123456789abcdef", true);
    OK(gm_apart_look(at, 1, true, &a));
    OK(gm_apart_look(at, 2, true, &b));
    assert_int_equal(a.world, 3);
    assert_string_equal(a.token, "0123456789abcdef");
    assert_string_equal(a.digest, b.digest);
    overwrite_end("rank-00001.safetensors");
    OK(gm_apart_look(at, 1, false, &a)); /* it did not look at the data */
    FAILS(GM_ECORRUPT, "is damaged", gm_apart_look(at, 1, true, &a));
    move("rank-00001.json", "kept");
    FAILS(GM_ECORRUPT, "rank-00001.json: is missing", gm_apart_look(at, 1, false, &a));
    FAILS(GM_ECORRUPT, "rank-00001.json: is missing", gm_apart_join(at, 3));
    move("rank-00002.json", "rank-00001.json");
    FAILS(GM_ECORRUPT, "what is called the part of rank 1 is none", gm_apart_look(at, 1, false, &a));
    move("rank-00001.json", "rank-00002.json");
    move("kept", "rank-00001.json");
    gm_save *other = new_save_of(&w, 2, 1, false, true);
    OK(gm_save_start(other, "fedcba9876543210"));
    gm_save_free(other);
    FAILS(GM_ECORRUPT, "the parts of ranks 0 and 2 are not of one save", gm_apart_join(at, 3));
    assert_false(there("step-00000001/index.json"));
    drop_tensors(&w);
    gm_device_free(w.dev);
    drop_folder();
}

void gm_test_checkpoint_apart_files_as_tensors(void **state)
{
    (void)state;
    gm_device *dev;
    gm_tensor *from, *to;
    char       path[100], copy[100];
    new_folder();
    OK(gm_device_new("cpu", 1, &dev));
    path_in(path, sizeof path, "file");
    path_in(copy, sizeof copy, "copy");
    for (int n = 0; n <= 5; n += 5) {
        OK(gm_apart_receive(dev, path, (uint64_t)n, &to)); /* the second one replaces the first */
        if (n) memcpy(gm_tensor_data(to), "12345", 5);
        gm_tensor_release(to);
        OK(gm_apart_send(dev, path, &from));
        assert_int_equal(gm_tensor_numel(from), n);
        OK(gm_apart_receive(dev, copy, (uint64_t)n, &to));
        if (n) memcpy(gm_tensor_data(to), gm_tensor_data(from), 5);
        if (n) assert_memory_equal(gm_tensor_data(to), "12345", 5);
        gm_tensor_release(from);
        gm_tensor_release(to);
    }
    assert_int_equal(gm_pool_stats(dev->pool).live, 0);
    FAILS(GM_EIO, "no room for", gm_apart_receive(dev, copy, (uint64_t)1 << 60, &to));
    assert_false(there("copy"));
    FAILS(GM_EIO, "copy: cannot be opened", gm_apart_send(dev, copy, &from));
    assert_int_equal(unlink(path), 0);
    gm_device_free(dev);
    drop_folder();
}
