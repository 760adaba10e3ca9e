/* comm_stage_test.c - copies of messages in the sender's arena (host/comm/stage.h). */
#include <stdlib.h>

#include "../../host/comm/stage.h"
#include "unit.h"

typedef struct stage_job {
    gm_arena *arena;
    gm_stage *stage;
    char     *bytes;
} stage_job;

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static stage_job begin_job(void)
{
    stage_job j = {.bytes = malloc(9 * MIB)};
    assert_non_null(j.bytes);
    for (size_t i = 0; i < 9 * MIB; i++) j.bytes[i] = (char)(i * 7 + i / 251);
    OK(gm_arena_new(&j.arena));
    OK(gm_stage_new(j.arena, &j.stage));
    return j;
}

static void end_job(stage_job *j)
{
    gm_stage_free(j->stage);
    gm_arena_free(j->arena);
    free(j->bytes);
}

/* A copy is in the arena and equal, also at odd places and sizes. */
void gm_test_comm_stage_copies(void **state)
{
    (void)state;
    stage_job j = begin_job();
    for (size_t n = 16 * KIB + 1; n < 8 * MIB; n = 3 * n + 5) {
        char *copy = gm_stage_put(j.stage, j.bytes + n % 61, n, n > MIB ? GM_STAGE_ALONE : 1);
        assert_non_null(copy);
        assert_true(copy >= gm_arena_base(j.arena) && copy + n <= gm_arena_base(j.arena) + gm_arena_size(j.arena));
        assert_memory_equal(copy, j.bytes + n % 61, n);
        gm_stage_drop(j.stage, copy);
    }
    assert_non_null(gm_stage_put(j.stage, j.bytes, 8 * MIB, GM_STAGE_ALONE));
    assert_null(gm_stage_put(j.stage, j.bytes, 8 * MIB + 1, GM_STAGE_ALONE)); /* too many bytes */
    assert_non_null(gm_stage_put(j.stage, j.bytes, MIB, 1));
    assert_null(gm_stage_put(j.stage, j.bytes, MIB + 1, 1));
    end_job(&j);
}

/* One copy serves the messages of one operation until all of them are done. */
void gm_test_comm_stage_shares_within_an_operation(void **state)
{
    (void)state;
    stage_job j = begin_job();
    char     *first = gm_stage_put(j.stage, j.bytes, 64 * KIB, 5);
    assert_ptr_equal(gm_stage_put(j.stage, j.bytes, 64 * KIB, 5), first);
    gm_stage_drop(j.stage, first);
    assert_ptr_equal(gm_stage_put(j.stage, j.bytes, 64 * KIB, 5), first); /* one use is left */
    char *other = gm_stage_put(j.stage, j.bytes, 64 * KIB, 6);
    assert_ptr_not_equal(other, first); /* of another operation: the bytes may have changed */
    assert_ptr_not_equal(gm_stage_put(j.stage, j.bytes, 63 * KIB, 5), first);
    assert_ptr_not_equal(gm_stage_put(j.stage, j.bytes + 64, 64 * KIB, 5), first);
    char *alone = gm_stage_put(j.stage, j.bytes, 64 * KIB, GM_STAGE_ALONE);
    assert_ptr_not_equal(gm_stage_put(j.stage, j.bytes, 64 * KIB, GM_STAGE_ALONE), alone);
    gm_stage_drop(j.stage, first);
    gm_stage_drop(j.stage, first);
    j.bytes[0]++;
    char *again = gm_stage_put(j.stage, j.bytes, 64 * KIB, 5); /* nothing of it is in use: a new copy */
    assert_int_equal(again[0], j.bytes[0]);
    end_job(&j);
}

/* An operation that sends more than 1 MiB has no copies made. */
void gm_test_comm_stage_hears_how_much(void **state)
{
    (void)state;
    stage_job j = begin_job();
    gm_stage_tell(j.stage, 5, MIB + 1);
    assert_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, 5));
    assert_non_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, 6));
    assert_non_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, GM_STAGE_ALONE));
    gm_stage_tell(j.stage, 7, MIB);
    assert_non_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, 7));
    assert_non_null(gm_stage_put(j.stage, j.bytes + MIB, 64 * KIB, 7));
    end_job(&j);
}

/* 32 MiB in all; a block that is free again is taken for a message that fits. */
void gm_test_comm_stage_has_an_end(void **state)
{
    (void)state;
    stage_job j = begin_job();
    char     *copy[5];
    for (int i = 0; i < 4; i++) assert_non_null(copy[i] = gm_stage_put(j.stage, j.bytes, 8 * MIB, GM_STAGE_ALONE));
    assert_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, 9));
    gm_stage_drop(j.stage, copy[2]);
    assert_ptr_equal(gm_stage_put(j.stage, j.bytes, 64 * KIB, 9), copy[2]);
    assert_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, 10));
    end_job(&j);
}

/* Bytes that lie in the arena are read where they are. */
void gm_test_comm_stage_leaves_the_arena_alone(void **state)
{
    (void)state;
    stage_job j = begin_job();
    void     *block;
    OK(gm_arena_take(j.arena, 128 * KIB, &block));
    assert_null(gm_stage_put(j.stage, (char *)block + 100, 64 * KIB, 1));
    gm_arena_give(j.arena, block, 128 * KIB);
    end_job(&j);
}
