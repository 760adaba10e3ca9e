/* comm_stage_test.c - copies of messages in the sender's arena (host/comm/stage.h). */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../host/comm/machines.h"
#include "../../host/comm/stage.h"
#include "../../host/comm/window.h"
#include "threads_transport.h"
#include "unit.h"

typedef struct stage_job {
    gm_arena *arena;
    gm_stage *stage;
    char     *bytes;
} stage_job;

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static stage_job begin_job_of(bool messages, gm_line_stores stores)
{
    stage_job j = {.bytes = malloc(9 * MIB)};
    assert_non_null(j.bytes);
    for (size_t i = 0; i < 9 * MIB; i++) j.bytes[i] = (char)(i * 7 + i / 251);
    OK(gm_arena_new(&j.arena));
    OK(gm_stage_new(j.arena, messages, stores, &j.stage));
    return j;
}

static stage_job begin_job(void) { return begin_job_of(true, GM_STORES_PAST); }

static void end_job(stage_job *j)
{
    gm_stage_free(j->stage);
    gm_arena_free(j->arena);
    free(j->bytes);
}

/* Up to `most` bytes of a term, and 1 MiB of other messages. */
static void check_copies(gm_line_stores stores, size_t most)
{
    stage_job j = begin_job_of(true, stores);
    for (size_t n = 16 * KIB + 1; n < most; n = 3 * n + 5) {
        char *copy = gm_stage_put(j.stage, j.bytes + n % 61, n, n > MIB ? GM_STAGE_ALONE : 1);
        assert_non_null(copy);
        assert_true(copy >= gm_arena_base(j.arena) && copy + n <= gm_arena_base(j.arena) + gm_arena_size(j.arena));
        assert_memory_equal(copy, j.bytes + n % 61, n);
        gm_stage_drop(j.stage, copy);
    }
    assert_non_null(gm_stage_put(j.stage, j.bytes, most, GM_STAGE_ALONE));
    assert_null(gm_stage_put(j.stage, j.bytes, most + 1, GM_STAGE_ALONE)); /* too many bytes */
    assert_non_null(gm_stage_put(j.stage, j.bytes, MIB, 1));
    assert_null(gm_stage_put(j.stage, j.bytes, MIB + 1, 1));
    end_job(&j);
}

/* A copy is in the arena and equal, also at odd places and sizes. */
void gm_test_comm_stage_copies(void **state)
{
    (void)state;
    check_copies(GM_STORES_PAST, 8 * MIB);
    check_copies(GM_STORES_STRING, 8 * MIB);
    check_copies(GM_STORES_PLAIN, MIB);
}

/* Where messages are read where they lie, terms of sums are still copied. */
void gm_test_comm_stage_of_terms_alone(void **state)
{
    (void)state;
    stage_job j = begin_job_of(false, GM_STORES_PLAIN);
    assert_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, 1));
    assert_non_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, GM_STAGE_ALONE));
    end_job(&j);
}

/* And messages that several ranks read: up to 1 MiB in all. */
void gm_test_comm_stage_for_several(void **state)
{
    (void)state;
    stage_job j = begin_job_of(false, GM_STORES_PLAIN);
    gm_stage_tell(j.stage, 5, MIB, 1);
    assert_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, 5));
    gm_stage_tell(j.stage, 6, MIB, 2);
    assert_non_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, 6));
    assert_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, 5));
    gm_stage_tell(j.stage, 7, MIB + 1, 4);
    assert_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, 7));
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
    gm_stage_tell(j.stage, 5, MIB + 1, 1);
    assert_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, 5));
    assert_non_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, 6));
    assert_non_null(gm_stage_put(j.stage, j.bytes, 64 * KIB, GM_STAGE_ALONE));
    gm_stage_tell(j.stage, 7, MIB, 1);
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

/* ---- who reads whom ---- */

static int left_early; /* ranks that have the broadcast's bytes */

static void body_broadcast(gm_rank *r, void *context)
{
    char       said[400];
    gm_group  *g = NULL;
    gm_tensor *t = NULL;
    int64_t    n = 100 << 10;
    gm_traffic sent = {0};
    (void)context;
    OK(gm_rank_share_memory(r, true, said, sizeof said));
    OK(gm_comm_group(r->comm, (1u << r->mesh.n_axes) - 1, &g));
    OK(gm_tensor_new(r->device, GM_U8, 1, &n, &t));
    memset(gm_tensor_data(t), 1 + r->rank, (size_t)n);
    assert_true(gm_members_read(g));
    for (int i = 0; i < 3000 && r->rank == 2 && __atomic_load_n(&left_early, __ATOMIC_ACQUIRE) < 2; i++) usleep(1000);
    if (r->rank == 2) assert_int_equal(__atomic_load_n(&left_early, __ATOMIC_ACQUIRE), 2);
    OK(gm_comm_broadcast(r->comm, g, t, 0, NULL));
    __atomic_add_fetch(&left_early, 1, __ATOMIC_RELEASE);
    assert_true(((char *)gm_tensor_data(t))[0] == 1 && ((char *)gm_tensor_data(t))[n - 1] == 1);
    assert_int_equal(gm_comm_traffic(r->comm, &sent, 1), 1);
    assert_string_equal(sent.op, "broadcast");
    assert_int_equal(sent.bytes, n * (r->rank == 0 ? 2 : r->rank == 2 ? 1 : 0)); /* as in a tree */
    gm_tensor_release(t);
}

/* A longer broadcast comes from the root to all: rank 3 does not wait for rank 2, which hands shorter ones on to it. */
void gm_test_comm_stage_broadcast_from_the_root(void **state)
{
    (void)state;
    left_early = 0;
    run_world(4, body_broadcast, NULL);
}

/* ---- where the system forbids to read another process's memory ---- */

/* For this thread, from now on: as ptrace_scope of Ubuntu does. */
static void refuse_reads(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    uint64_t          key = 7;
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    assert_false(gm_reads_memory((int)getpid(), (uintptr_t)&key, key));
}

static int64_t arena_blocks(const gm_rank *r)
{
    struct stat about;
    assert_non_null(r->arena);
    assert_int_equal(fstat(gm_arena_file(r->arena), &about), 0);
    return (int64_t)about.st_blocks;
}

static void body_refused(gm_rank *r, void *context)
{
    char       said[400];
    gm_group  *g = NULL;
    gm_tensor *t = NULL;
    int64_t    n = 64 << 10;
    (void)context;
    refuse_reads();
    OK(gm_rank_share_memory(r, true, said, sizeof said));
    OK(gm_comm_group(r->comm, (1u << r->mesh.n_axes) - 1, &g));
    OK(gm_tensor_new(r->device, GM_U8, 1, &n, &t));
    memset(gm_tensor_data(t), 1 + r->rank, (size_t)n);
    assert_false(gm_members_read(g));
    int64_t before = arena_blocks(r);
    OK(gm_comm_broadcast(r->comm, g, t, 0, NULL));
    assert_true(((char *)gm_tensor_data(t))[0] == 1 && ((char *)gm_tensor_data(t))[n - 1] == 1);
    assert_true((arena_blocks(r) > before) == (r->rank == 0)); /* whoever sends has copied it there */
    gm_tensor_release(t);
}

/* Messages go through the arena there, in one copy by each of two ranks, and not piece by piece through a ring. */
void gm_test_comm_stage_where_reads_are_refused(void **state)
{
    (void)state;
    run_world(2, body_refused, NULL);
}
