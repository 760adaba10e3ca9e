/* threads_test.c - every index is worked on exactly once, whatever the sizes; jobs by the thousand; waking
 * from sleep. A deadlock shows as the test runner's time limit. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "unit.h"

#define MOST 300

typedef struct record {
    _Atomic int visits[MOST], calls, bad_thread;
    int         count;
} record;

static void visit(void *context, int64_t begin, int64_t end, int thread)
{
    record *r = context;
    r->calls++;
    if (thread < 0 || thread >= r->count) r->bad_thread = 1;
    for (int64_t i = begin; i < end; i++) r->visits[i]++;
}

static void check_cover(gm_threads *threads, int64_t n, int64_t grain)
{
    static record r;
    memset(&r, 0, sizeof r);
    r.count = gm_threads_count(threads);
    gm_parallel(threads, n, grain, visit, &r);
    for (int64_t i = 0; i < MOST; i++) assert_int_equal(r.visits[i], i < n);
    assert_int_equal(r.bad_thread, 0);
    assert_int_equal(r.calls, n > 0 ? gm_parallel_parts(threads, n, grain) : 0);
}

void gm_test_threads_cover(void **state)
{
    (void)state;
    for (int count = 1; count <= 5; count++) {
        gm_threads *threads = NULL;
        OK(gm_threads_new(count, &threads));
        assert_int_equal(gm_threads_count(threads), count);
        for (int64_t n = 0; n < 40; n++)
            for (int64_t grain = 0; grain < 12; grain++) check_cover(threads, n, grain);
        check_cover(threads, MOST, 1);
        gm_threads_free(threads);
    }
    gm_threads_free(NULL);
}

static void measure(void *context, int64_t begin, int64_t end, int thread)
{
    int64_t *length = context;
    length[thread] = end - begin;
}

/* No part is much shorter than the grain, and the cut depends on nothing but the arguments. */
void gm_test_threads_parts(void **state)
{
    (void)state;
    gm_threads *threads = NULL;
    OK(gm_threads_new(4, &threads));
    assert_int_equal(gm_parallel_parts(threads, 100, 1000), 1);
    assert_int_equal(gm_parallel_parts(threads, 100, 50), 2);
    assert_int_equal(gm_parallel_parts(threads, 101, 50), 3);
    assert_int_equal(gm_parallel_parts(threads, 100, 1), 4);
    assert_int_equal(gm_parallel_parts(threads, 0, 1), 1);
    for (int round = 0; round < 10; round++) {
        int64_t length[4] = {0};
        gm_parallel(threads, 10, 1, measure, length);
        assert_memory_equal(length, ((int64_t[]){2, 3, 2, 3}), sizeof length);
    }
    gm_threads_free(threads);
}

static void add_one(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = begin; i < end; i++) ((int *)context)[i]++; /* plain: each index has one thread a job */
}

void gm_test_threads_many_jobs(void **state)
{
    (void)state;
    gm_threads *threads = NULL;
    int         sum[16] = {0};
    OK(gm_threads_new(3, &threads));
    for (int job = 0; job < 20000; job++) gm_parallel(threads, 16, 1, add_one, sum);
    for (int i = 0; i < 16; i++) assert_int_equal(sum[i], 20000);
    gm_threads_free(threads);
}

void gm_test_threads_after_sleep(void **state)
{
    (void)state;
    gm_threads *threads = NULL;
    OK(gm_threads_new(4, &threads));
    for (int round = 0; round < 20; round++) {
        usleep(5000); /* far beyond the spin: the workers sleep */
        check_cover(threads, 100, 1);
    }
    gm_threads_free(threads);
    OK(gm_threads_new(8, &threads)); /* freed before its workers may have begun */
    gm_threads_free(threads);
}
