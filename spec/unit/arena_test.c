/* arena_test.c - memory that ranks of a machine share: its blocks, what the pool takes of it, and how another process
 * sees it (here the same process, which maps it twice). */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../host/comm/window.h"
#include "../../kernels/arena.h"
#include "../../kernels/memory.h"
#include "unit.h"

static gm_arena *new_arena(void)
{
    gm_arena *a = NULL;
    OK(gm_arena_new(&a));
    return a;
}

static size_t bytes_in_use(const gm_arena *a)
{
    struct stat about;
    assert_int_equal(fstat(gm_arena_file(a), &about), 0);
    return (size_t)about.st_blocks * 512;
}

/* Blocks of any size come and go; each keeps its bytes, and in the end the range is one part again. */
void gm_test_arena_blocks(void **state)
{
    (void)state;
    enum { N = 24 };
    gm_arena   *a = new_arena();
    unit_random random = {5};
    char       *block[N] = {NULL};
    size_t      bytes[N] = {0};
    void       *whole = NULL;
    for (int round = 0; round < 400; round++) {
        int i = (int)unit_below(&random, N);
        if (block[i]) {
            assert_int_equal(block[i][0], i + 1);
            assert_int_equal(block[i][bytes[i] - 1], i + 1);
            gm_arena_give(a, block[i], bytes[i]);
            block[i] = NULL;
            continue;
        }
        bytes[i] = 1 + (size_t)unit_below(&random, round % 5 ? 40000 : (3 << 20));
        OK(gm_arena_take(a, bytes[i], (void **)&block[i]));
        assert_int_equal((uintptr_t)block[i] % (bytes[i] >= 2 << 20 ? 2 << 20 : 4096), 0);
        memset(block[i], i + 1, bytes[i]);
    }
    for (int i = 0; i < N; i++)
        if (block[i]) gm_arena_give(a, block[i], bytes[i]);
    assert_int_equal(bytes_in_use(a), 0);
    FAILS(GM_ENOMEM, "is full", gm_arena_take(a, gm_arena_size(a) + 1, &whole));
    for (int i = 0; i < 3; i++) {
        OK(gm_arena_take(a, 1, (void **)&block[i]));
        assert_ptr_equal(block[i], gm_arena_base(a) + (size_t)i * 4096);
    }
    for (int i = 0; i < 3; i++) gm_arena_give(a, block[(i + 1) % 3], 1);
    OK(gm_arena_take(a, 3 * 4096, &whole)); /* what was three is one */
    assert_ptr_equal(whole, gm_arena_base(a));
    gm_arena_give(a, whole, 3 * 4096);
    gm_arena_free(a);
}

/* A block lies where its distance says, and its memory goes back although others map it. */
void gm_test_arena_reach(void **state)
{
    (void)state;
    gm_arena *a = new_arena();
    gm_reach  r = {0};
    char     *first = NULL, *second = NULL;
    uint64_t  base = (uintptr_t)gm_arena_base(a), size = gm_arena_size(a);
    int       pid = (int)getpid(), fd = gm_arena_file(a), null = dup(0);
    FAILS(GM_EINVAL, "has another size", gm_reach_open(pid, fd, base, size + 4096, &r));
    FAILS(GM_EINVAL, "is another process's file", gm_reach_open(pid, null, base, size, &r));
    close(null);
    assert_null(gm_reach_at(&r, base, 1));
    OK(gm_reach_open(pid, fd, base, size, &r));
    OK(gm_arena_take(a, 20000, (void **)&first));
    OK(gm_arena_take(a, 5 << 20, (void **)&second));
    second[77] = 7;
    char *there = gm_reach_at(&r, (uintptr_t)(second + 77), 5);
    assert_true(there != second + 77);
    assert_int_equal(*there, 7);
    *there = 9;
    assert_int_equal(second[77], 9);
    assert_null(gm_reach_at(&r, base - 1, 4));
    assert_null(gm_reach_at(&r, base + size - 4, 5));
    assert_non_null(gm_reach_at(&r, base + size - 4, 4));
    gm_arena_give(a, second, 5 << 20);
    assert_int_equal(bytes_in_use(a), 20480);
    gm_arena_give(a, first, 20000);
    gm_reach_close(&r);
    gm_reach_close(&r);
    assert_null(gm_reach_at(&r, base, 1));
    gm_arena_free(a);
}

/* ---- the pool's second source ---- */

static struct {
    size_t held, most;
} second;

static gm_status take(void *context, size_t bytes, void **out)
{
    (void)context;
    return (*out = malloc(bytes)) ? GM_OK : GM_ENOMEM;
}

static void give(void *context, void *p, size_t bytes)
{
    (void)context, (void)bytes;
    free(p);
}

static gm_status take_second(void *context, size_t bytes, void **out)
{
    if (second.held + bytes > second.most) return GM_FAIL(GM_ENOMEM, "no more to share");
    second.held += bytes;
    return take(context, bytes, out);
}

static void give_second(void *context, void *p, size_t bytes)
{
    second.held -= bytes;
    give(context, p, bytes);
}

void gm_test_arena_pool(void **state)
{
    (void)state;
    gm_pool  *p = NULL;
    gm_block *b[4];
    void     *data[4];
    second.held = 0;
    second.most = 100000;
    OK(gm_pool_new(&(gm_raw_memory){take, give}, NULL, &p));
    assert_true(!gm_pool_want_shared(p, true));
    OK(gm_pool_alloc(p, 32768, &data[0], &b[0])); /* there is no second source yet */
    gm_pool_lend(p, &(gm_raw_memory){take_second, give_second}, NULL);
    OK(gm_pool_alloc(p, GM_SHARED_LEAST - 1, &data[1], &b[1]));
    assert_int_equal(second.held, 0);
    OK(gm_pool_alloc(p, 65000, &data[2], &b[2]));
    assert_int_equal(second.held, 65536);
    OK(gm_pool_alloc(p, 65000, &data[3], &b[3])); /* the second source has no more */
    assert_int_equal(second.held, 65536);
    assert_int_equal(gm_pool_stats(p).live, 32768 + GM_SHARED_LEAST - 1 + 2 * 65000);
    assert_int_equal(gm_pool_stats(p).reserved, 32768 + GM_SHARED_LEAST + 2 * 65536);
    for (int i = 0; i < 4; i++) gm_pool_release(p, b[i]);
    assert_true(gm_pool_want_shared(p, false));
    void *own = data[2];
    OK(gm_pool_alloc(p, 65000, &data[2], &b[2])); /* never one of the second source */
    assert_ptr_equal(data[2], data[3]);
    (void)gm_pool_want_shared(p, true);
    OK(gm_pool_alloc(p, 65000, &data[3], &b[3]));
    assert_ptr_equal(data[3], own);
    gm_pool_release(p, b[2]);
    gm_pool_lend(p, NULL, NULL);
    OK(gm_pool_alloc(p, 65000, &data[2], &b[2]));
    assert_int_equal(second.held, 65536); /* in use still */
    gm_pool_release(p, b[2]);
    gm_pool_release(p, b[3]);
    gm_pool_trim(p);
    assert_int_equal(second.held, 0);
    assert_int_equal(gm_pool_stats(p).reserved, 0);
    gm_pool_free(p);
}
