/* memory_test.c - the pool: exact figures, over a system that counts and can run dry. */
#include <stdio.h>
#include <stdlib.h>

#include "unit.h"

/* The system below the pool under test: tests run one after the other. */
static struct {
    size_t   held, most;
    uint64_t calls;
} below;

static gm_status take(void *context, size_t bytes, void **out)
{
    (void)context;
    if (below.most && below.held + bytes > below.most) return GM_FAIL(GM_ENOMEM, "nothing is left below");
    below.held += bytes;
    below.calls++;
    return (*out = malloc(bytes)) ? GM_OK : GM_ENOMEM;
}

static void give(void *context, void *p, size_t bytes)
{
    (void)context;
    below.held -= bytes;
    free(p);
}

static gm_pool *new_pool(void)
{
    gm_pool *p = NULL;
    memset(&below, 0, sizeof below);
    OK(gm_pool_new(&(gm_raw_memory){take, give}, NULL, &p));
    return p;
}

static void free_pool(gm_pool *p)
{
    gm_pool_free(p);
    assert_int_equal(below.held, 0);
}

static gm_block *alloc(gm_pool *p, size_t bytes)
{
    void     *data = NULL;
    gm_block *b = NULL;
    OK(gm_pool_alloc(p, bytes, &data, &b));
    memset(data, 0x5a, bytes); /* the sanitizer watches that this many are there */
    return b;
}

void gm_test_pool_classes(void **state)
{
    (void)state;
    gm_pool *p = new_pool();
    for (size_t bytes = 0; bytes < 5000000; bytes = bytes * 33 / 32 + 1) {
        size_t    before = gm_pool_stats(p).reserved;
        uint64_t  system = gm_pool_stats(p).system_allocations;
        gm_block *b = alloc(p, bytes);
        if (gm_pool_stats(p).system_allocations > system) {
            size_t took = gm_pool_stats(p).reserved - before;
            assert_true(took >= bytes && took >= 64);
            assert_true(took == 64 || (double)(took - bytes) <= 0.125 * (double)took);
        }
        assert_int_equal(gm_pool_stats(p).reserved, below.held);
        gm_pool_release(p, b);
    }
    /* A block serves any size of its class, and no other: (128, 144] is one. */
    gm_block *b = alloc(p, 144);
    gm_pool_release(p, b);
    uint64_t system = gm_pool_stats(p).system_allocations;
    gm_pool_release(p, alloc(p, 129));
    gm_pool_release(p, alloc(p, 144));
    assert_int_equal(gm_pool_stats(p).system_allocations, system);
    free_pool(p);
    p = new_pool();
    gm_pool_release(p, alloc(p, 128));
    gm_pool_release(p, alloc(p, 129));
    gm_pool_release(p, alloc(p, 145));
    assert_int_equal(gm_pool_stats(p).system_allocations, 3);
    free_pool(p);
}

void gm_test_pool_counts(void **state)
{
    (void)state;
    gm_pool  *p = new_pool();
    gm_block *a = alloc(p, 100), *b = alloc(p, 1000);
    assert_int_equal(gm_pool_stats(p).live, 1100);
    gm_pool_release(p, a);
    assert_int_equal(gm_pool_stats(p).live, 1000);
    gm_block *c = alloc(p, 10);
    assert_int_equal(gm_pool_stats(p).live, 1010);
    assert_int_equal(gm_pool_stats(p).peak, 1100);
    gm_pool_reset_peak(p);
    assert_int_equal(gm_pool_stats(p).peak, 1010);
    assert_int_equal(gm_pool_stats(p).allocations, 3);
    assert_int_equal(gm_pool_stats(p).system_allocations, 3);
    assert_int_equal(gm_pool_stats(p).reserved, 104 + 1024 + 64);
    gm_pool_release(p, b);
    gm_pool_release(p, c);
    assert_int_equal(gm_pool_stats(p).live, 0);
    assert_int_equal(gm_pool_stats(p).reserved, 104 + 1024 + 64);
    free_pool(p);
}

void gm_test_pool_places(void **state)
{
    (void)state;
    gm_pool  *p = new_pool();
    gm_holder h[3];
    char      path[32];
    gm_pool_set_place(p, "layers.1", "linear");
    gm_block *a = alloc(p, 100), *b = alloc(p, 50);
    gm_pool_set_place(p, "", "loader");
    gm_block *c = alloc(p, 120);
    strcpy(path, "layers.2");
    gm_pool_set_place(p, path, "linear");
    strcpy(path, "gone"); /* names were copied */
    gm_block *d = alloc(p, 130);
    gm_pool_set_place(p, "layers.1", "linear");
    gm_pool_release(p, b);
    gm_block *e = alloc(p, 20);
    assert_int_equal(gm_pool_holders(p, h, 3), 3);
    assert_string_equal(h[0].place, "layers.2: linear");
    assert_string_equal(h[1].place, "layers.1: linear"); /* 100 + 20, before the loader by age */
    assert_string_equal(h[2].place, "loader");
    assert_int_equal(h[1].live, 120);
    assert_int_equal(h[1].peak, 150);
    assert_int_equal(h[1].blocks, 2);
    assert_int_equal(gm_pool_holders(p, h, 1), 1);
    assert_int_equal(h[0].live, 130);
    gm_pool_release(p, d);
    assert_int_equal(gm_pool_holders(p, h, 3), 2); /* places that hold nothing are not named */
    gm_pool_reset_peak(p);
    gm_pool_holders(p, h, 1);
    assert_int_equal(h[0].peak, 120);
    gm_pool_release(p, a);
    gm_pool_release(p, c);
    gm_pool_release(p, e);
    gm_block *many[2000];
    for (int i = 0; i < 2000; i++) { /* the table of places grows */
        snprintf(path, sizeof path, "module %d", i);
        gm_pool_set_place(p, path, "op");
        many[i] = alloc(p, (size_t)i + 1);
    }
    gm_pool_holders(p, h, 3);
    assert_string_equal(h[0].place, "module 1999: op");
    assert_int_equal(h[2].live, 1998);
    for (int i = 0; i < 2000; i++) gm_pool_release(p, many[i]);
    free_pool(p);
}

void gm_test_pool_limit(void **state)
{
    (void)state;
    gm_pool  *p = new_pool();
    void     *data = NULL;
    gm_block *none = NULL;
    gm_pool_set_limit(p, 4096);
    FAILS(GM_ENOMEM, "limit 4.0 KiB; nothing is held yet; try a smaller batch", gm_pool_alloc(p, 8192, &data, &none));
    gm_pool_set_place(p, "head", "linear");
    gm_block *a = alloc(p, 2048), *b = alloc(p, 1024);
    gm_pool_release(p, b); /* idle bytes count, but give way */
    gm_pool_set_place(p, "body", "softmax");
    gm_block *c = alloc(p, 2048);
    FAILS(GM_ENOMEM,
          "out of memory: wanted 64 bytes (64 bytes) for 'body: softmax', 4.0 KiB in use, limit 4.0 KiB; "
          "largest holders: head: linear 2.0 KiB in 1; body: softmax 2.0 KiB in 1; try a smaller batch",
          gm_pool_alloc(p, 64, &data, &none));
    assert_null(none);
    assert_int_equal(gm_pool_stats(p).live, 4096);
    assert_int_equal(gm_pool_stats(p).allocations, 3);
    gm_pool_release(p, c);
    gm_pool_release(p, alloc(p, 64));
    gm_pool_set_limit(p, 0);
    gm_pool_release(p, alloc(p, 100000));
    below.most = below.held; /* the system itself runs dry: idle blocks go back first */
    gm_pool_release(p, alloc(p, 90000));
    FAILS(GM_ENOMEM, "limit that of the system: nothing is left below [", gm_pool_alloc(p, 200000, &data, &none));
    FAILS(GM_ENOMEM, "out of memory", gm_pool_alloc(p, SIZE_MAX / 2, &data, &none)); /* asks nobody */
    gm_pool_release(p, a);
    free_pool(p);
}

void gm_test_pool_trim(void **state)
{
    (void)state;
    gm_pool  *p = new_pool();
    gm_block *a = alloc(p, 100), *b = alloc(p, 1000);
    gm_pool_release(p, b);
    gm_pool_trim(p);
    assert_int_equal(gm_pool_stats(p).reserved, 104);
    assert_int_equal(below.held, 104);
    gm_pool_release(p, a);
    gm_pool_trim(p);
    assert_int_equal(gm_pool_stats(p).reserved, 0);
    free_pool(p);
}

void gm_test_pool_steady(void **state)
{
    (void)state;
    gm_pool  *p = new_pool();
    gm_block *held[20];
    uint64_t  system = 0;
    for (int round = 0; round < 50; round++) {
        unit_random r = {3}; /* the same sizes in every round, in an order of its own */
        for (int i = 0; i < 20; i++) held[i] = alloc(p, (size_t)unit_below(&r, 100000));
        for (int i = 0; i < 20; i++) gm_pool_release(p, held[(i * 7 + round) % 20]);
        if (round == 0) system = below.calls;
    }
    assert_int_equal(below.calls, system);
    assert_int_equal(gm_pool_stats(p).system_allocations, system);
    assert_int_equal(gm_pool_stats(p).allocations, 1000);
    free_pool(p);
}

/* Memory of a part serves the part alone, and is the pool's once the part is gone. */
void gm_test_pool_parts(void **state)
{
    (void)state;
    gm_pool      *p = new_pool();
    gm_pool_part *part = NULL;
    gm_block     *before = alloc(p, 1000), *idle = alloc(p, 500);
    gm_pool_release(p, idle);
    OK(gm_pool_part_new(p, &part));
    gm_pool_use(p, part);
    gm_block *a = alloc(p, 500), *b = alloc(p, 3000);
    assert_true(gm_pool_part_has(part, a));
    assert_false(gm_pool_part_has(part, before));
    assert_int_equal(gm_pool_stats(p).system_allocations, 4); /* the idle block of 500 is not the part's */
    gm_pool_release(p, before);                               /* goes where it came from */
    gm_pool_release(p, b);
    b = alloc(p, 3000);
    assert_int_equal(gm_pool_stats(p).system_allocations, 4);
    gm_block *other = alloc(p, 1000);
    assert_int_equal(gm_pool_stats(p).system_allocations, 5);
    gm_pool_release(p, other);
    gm_pool_release(p, b);
    gm_pool_use(p, NULL);
    size_t own = gm_pool_part_reserved(part);
    assert_int_equal(gm_pool_stats(p).live, 500);
    gm_pool_trim(p);
    assert_int_equal(gm_pool_stats(p).reserved, own); /* a part's idle blocks stay */
    assert_int_equal(below.held, own);

    gm_pool_reset_peak(p);
    before = alloc(p, 100);
    gm_pool_part_ran(p, part);
    assert_int_equal(gm_pool_stats(p).peak, 100 + 500 + 3000 + 1000);
    gm_pool_part_free(p, part);
    uint64_t system = gm_pool_stats(p).system_allocations;
    gm_pool_release(p, alloc(p, 3000)); /* served by what the part had */
    gm_pool_release(p, a);              /* of the part that is gone */
    gm_pool_release(p, alloc(p, 500));
    assert_int_equal(gm_pool_stats(p).system_allocations, system);
    gm_pool_release(p, before);
    assert_int_equal(gm_pool_stats(p).live, 0);
    free_pool(p);
}

/* At the limit a part fails: what is idle elsewhere may be what recorded work is about to use. */
void gm_test_pool_parts_limit(void **state)
{
    (void)state;
    gm_pool      *p = new_pool();
    gm_pool_part *part = NULL;
    gm_block     *b;
    void         *data;
    gm_pool_release(p, alloc(p, 1024));
    gm_pool_set_limit(p, 2048);
    OK(gm_pool_part_new(p, &part));
    gm_pool_use(p, part);
    assert_int_equal(gm_pool_alloc(p, 1536, &data, &b), GM_ENOMEM);
    assert_int_equal(below.held, 1024);
    gm_pool_release(p, alloc(p, 1024));
    gm_pool_use(p, NULL);
    gm_pool_release(p, alloc(p, 1024));
    gm_pool_part_free(p, part);
    assert_int_equal(gm_pool_stats(p).reserved, 2048);
    gm_pool_release(p, alloc(p, 1536)); /* gives idle blocks back for it */
    assert_int_equal(gm_pool_stats(p).reserved, 1536);
    free_pool(p);
}
