/* emulate.c - runs kernels on the CPU, a block at a time, one thread of it at a time.
 *
 * A worker is a stack on which threads of the block run one after the other. While none of them meets others (GM_SYNC,
 * shuffles) one worker runs them all, as a plain loop. A thread that has to wait keeps its worker, and the next thread
 * gets another one; when all that must come have come, the workers go on in turn. So a kernel that never meets costs a
 * call a thread, and one that does two switches a meeting.
 *
 * Every other launch runs its blocks and threads in reverse order, so that what depends on an order does not stay
 * hidden. Before a block its shared memory is filled with NaN. Errors: a thread that ends, or waits elsewhere, while
 * others wait for it; bytes written past the shared memory; an access at an address that is no multiple of its size,
 * which ends all work on a GPU. The compiler asks for that (-fsanitize=alignment), and calls what its library for
 * sanitizers has; here it is in this file. */
#define _GNU_SOURCE
#include "emulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "emulator.h"

#define MOST_THREADS 1024
#define MOST_KERNELS 1024
#define STACK        ((size_t)64 << 10)
#define SHARED_MOST  ((size_t)228 << 10)
#define GUARD        256
#define WARP         32
#define MEETINGS     16

gm_emulated_thread gm_emulated;

static gm_emulated_kernel kernels[MOST_KERNELS];
static int                kernel_count;

typedef enum state { IDLE, READY, AT_SYNC, AT_SHUFFLE, AT_BARRIER } state;

typedef struct place {
    const char *file;
    int         line;
} place;

typedef struct worker {
    void *stack;
    void *where; /* the stack pointer of a suspended worker */
    state state;
    int   thread;
    place at;
    bool (*passed)(const void *of, int value); /* AT_BARRIER */
    const void *of;
    int         value;
} worker;

typedef struct meeting { /* of those who name its number */
    int arrived, rounds;
} meeting;

static struct {
    worker   worker[MOST_THREADS];
    int      of_thread[MOST_THREADS]; /* worker of a waiting thread, -1: not started, -2: ended */
    void    *scheduler;               /* its stack pointer */
    worker  *now;
    int      threads, started, ended, at_sync;
    bool     reverse;
    int      in_warp[MOST_THREADS / WARP]; /* waiting at a shuffle */
    unsigned round[MOST_THREADS];          /* shuffles a lane has made */
    meeting  meetings[MEETINGS];
    _Alignas(16) unsigned char slot[2][MOST_THREADS][GM_EMULATED_SLOT];
    const gm_emulated_kernel *kernel;
    const void               *args;
    char                     *error;
    size_t                    error_size;
    unsigned char            *shared;
    uint64_t                  launches;
} run;

/* ---- switching stacks: saves where we are through *from, goes on at `to` ---- */

#if defined(__x86_64__)
void gm_switch_stack(void **from, void *to);
__asm__(".text\n.globl gm_switch_stack\n.hidden gm_switch_stack\n.type gm_switch_stack,@function\n"
        "gm_switch_stack:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size gm_switch_stack,.-gm_switch_stack\n");

/* The first switch to a new stack returns into `entry`, with the stack as after a call. */
static void *new_stack(void *stack, void (*entry)(void))
{
    void **top = (void **)((char *)stack + STACK);
    *--top = NULL; /* alignment: entry sees a return address here */
    *--top = (void *)(uintptr_t)entry;
    for (int i = 0; i < 6; i++) *--top = NULL;
    return top;
}
#else
static void gm_switch_stack(void **from, void *to)
{
    ucontext_t here;
    *from = &here;
    swapcontext(&here, to);
}

static void *new_stack(void *stack, void (*entry)(void))
{
    ucontext_t *c = stack; /* the low end of the stack keeps the context */
    getcontext(c);
    c->uc_stack.ss_sp = (char *)stack + sizeof *c;
    c->uc_stack.ss_size = STACK - sizeof *c;
    c->uc_link = NULL;
    makecontext(c, entry, 0);
    return c;
}
#endif

static void to_scheduler(void) { gm_switch_stack(&run.now->where, run.scheduler); }

static void fail(const char *what, int thread, place at)
{
    if (run.error[0]) return;
    snprintf(run.error, run.error_size, "%s: block (%lld, %lld, %lld), thread %d: %s%s%s", run.kernel->name,
             (long long)gm_emulated.block_x, (long long)gm_emulated.block_y, (long long)gm_emulated.block_z, thread,
             what, at.file ? " at " : "", at.file ? at.file : "");
    if (at.file && strlen(run.error) + 16 < run.error_size) sprintf(run.error + strlen(run.error), ":%d", at.line);
}

typedef struct misaligned { /* what the compiler says of an access */
    const char   *file;
    uint32_t      line, column;
    const void   *type;
    unsigned char log_alignment, kind;
} misaligned;

__attribute__((visibility("hidden"), noreturn)) void __ubsan_handle_type_mismatch_v1_abort(const misaligned *m,
                                                                                           const void       *p);
void __ubsan_handle_type_mismatch_v1_abort(const misaligned *m, const void *p)
{
    char what[96];
    (void)p;
    snprintf(what, sizeof what, "an access at an address that is no multiple of %d", 1 << m->log_alignment);
    fail(what, gm_emulated.thread, (place){m->file, (int)m->line});
    to_scheduler();
    abort(); /* nobody goes on with it */
}

/* ---- workers ---- */

/* Threads, one after the other, until there are none left; then the worker rests. */
static void work(void)
{
    for (;;) {
        worker *me = run.now;
        while (run.started < run.threads && !run.error[0]) {
            int i = run.started++;
            me->thread = run.reverse ? run.threads - 1 - i : i;
            run.of_thread[me->thread] = (int)(me - run.worker);
            gm_emulated.thread = me->thread;
            run.kernel->run(run.args);
            run.of_thread[me->thread] = -2;
            run.ended++;
        }
        me->state = IDLE;
        to_scheduler();
    }
}

static void go_on(worker *w)
{
    run.now = w;
    gm_emulated.thread = w->thread;
    gm_switch_stack(&run.scheduler, w->where);
}

static bool wake(state from, int first, int n, int workers)
{
    for (int i = first; i < first + n; i++) {
        int at = run.of_thread[i];
        if (at >= 0 && at < workers && run.worker[at].state == from) run.worker[at].state = READY;
    }
    return true;
}

/* Lets those go on who all wait at one line; false where nobody can. */
static bool release(int workers)
{
    bool any = false;
    for (int w = 0; w < run.threads / WARP; w++)
        if (run.in_warp[w] == WARP) {
            place at = run.worker[run.of_thread[w * WARP]].at;
            for (int i = 1; i < WARP; i++) {
                worker *other = &run.worker[run.of_thread[w * WARP + i]];
                if (other->at.line != at.line) fail("lanes of a warp shuffle at different lines,", other->thread, at);
            }
            run.in_warp[w] = 0;
            any = wake(AT_SHUFFLE, w * WARP, WARP, workers);
        }
    if (run.at_sync == run.threads) {
        place at = run.worker[run.of_thread[0]].at;
        for (int i = 1; i < run.threads; i++) {
            worker *other = &run.worker[run.of_thread[i]];
            if (other->at.line != at.line) fail("threads meet at different lines, thread 0", other->thread, at);
        }
        run.at_sync = 0;
        any = wake(AT_SYNC, 0, run.threads, workers);
    }
    return any;
}

/* For the next thread: as long as there is one, all workers hold threads that wait. */
static worker *fresh_worker(int *workers)
{
    worker *w = &run.worker[*workers];
    if (!w->stack) {
        w->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (w->stack == MAP_FAILED) abort();
    }
    w->where = new_stack(w->stack, work);
    w->state = IDLE;
    (*workers)++;
    return w;
}

static void stuck(int workers)
{
    for (int i = 0; i < workers; i++) {
        worker *w = &run.worker[i];
        if (w->state == AT_SYNC)
            fail("waits for threads that do not come (ended, or waiting elsewhere),", w->thread, w->at);
        if (w->state == AT_SHUFFLE) fail("shuffles with lanes that do not come,", w->thread, w->at);
        if (w->state == AT_BARRIER) fail("waits for a barrier that nobody passes on,", w->thread, w->at);
    }
    fail("nothing can go on", 0, (place){0});
}

static void run_block(void)
{
    int workers = 0;
    run.started = run.ended = run.at_sync = 0;
    memset(run.in_warp, 0, sizeof run.in_warp);
    memset(run.meetings, 0, sizeof run.meetings);
    for (int i = 0; i < run.threads; i++) run.of_thread[i] = -1, run.round[i] = 0;
    while (run.ended < run.threads && !run.error[0]) {
        if (run.started < run.threads) {
            go_on(fresh_worker(&workers));
            continue;
        }
        bool any = false;
        for (int k = 0; k < workers && !run.error[0]; k++) {
            worker *w = &run.worker[run.reverse ? workers - 1 - k : k];
            if (w->state == AT_BARRIER && w->passed(w->of, w->value)) w->state = READY;
            if (w->state != READY) continue;
            any = true;
            go_on(w);
        }
        if (!any && !release(workers) && run.ended < run.threads) stuck(workers);
    }
}

static void wait_as(state s, const char *file, int line)
{
    run.now->state = s;
    run.now->at = (place){file, line};
    to_scheduler();
}

void gm_emulated_sync(const char *file, int line)
{
    run.at_sync++;
    wait_as(AT_SYNC, file, line);
}

void gm_emulated_wait(bool (*passed)(const void *of, int value), const void *of, int value, const char *file, int line)
{
    if (passed(of, value)) return;
    run.now->passed = passed;
    run.now->of = of;
    run.now->value = value;
    wait_as(AT_BARRIER, file, line);
}

static bool has_met(const void *of, int rounds) { return ((const meeting *)of)->rounds != rounds; }

void gm_emulated_meet(int number, int threads, const char *file, int line)
{
    meeting *m = &run.meetings[number];
    int      round = m->rounds;
    if (++m->arrived == threads) {
        m->arrived = 0;
        m->rounds++;
    }
    gm_emulated_wait(has_met, m, round, file, line);
}

/* Two slots in turn: a lane that puts its next value has been through a meeting after which all others have read. */
const unsigned char *gm_emulated_gather(const void *value, size_t bytes, const char *file, int line)
{
    int      me = gm_emulated.thread, warp = me / WARP;
    unsigned turn = run.round[me]++ & 1;
    memcpy(run.slot[turn][me], value, bytes);
    run.in_warp[warp]++;
    wait_as(AT_SHUFFLE, file, line);
    return run.slot[turn][warp * WARP];
}

void gm_emulated_shuffle(void *value, size_t bytes, int lane, const char *file, int line)
{
    if (bytes > GM_EMULATED_SLOT || lane < 0 || lane >= WARP) {
        fail("a shuffle with a lane that is not there, or of too many bytes", gm_emulated.thread, (place){file, line});
        to_scheduler();
    }
    memcpy(value, gm_emulated_gather(value, bytes, file, line) + lane * GM_EMULATED_SLOT, bytes);
}

/* ---- kernels and launches ---- */

void gm_emulated_add(const char *name, void (*body)(const void *), size_t args)
{
    if (kernel_count == MOST_KERNELS) abort();
    kernels[kernel_count++] = (gm_emulated_kernel){name, body, args};
}

const gm_emulated_kernel *gm_emulated_find(const char *name)
{
    for (int i = 0; i < kernel_count; i++)
        if (!strcmp(kernels[i].name, name)) return &kernels[i];
    return NULL;
}

const gm_emulated_kernel *gm_emulated_all(int *n)
{
    *n = kernel_count;
    return kernels;
}

static void check_shared(size_t bytes)
{
    for (int i = 0; i < GUARD; i++)
        if (run.shared[bytes + (size_t)i] != 0xff) {
            fail("wrote past the end of shared memory", gm_emulated.thread, (place){0});
            return;
        }
}

static void run_grid(const gm_emulated_grid *g)
{
    int64_t blocks = g->x * g->y * g->z;
    for (int64_t i = 0; i < blocks && !run.error[0]; i++) {
        int64_t b = run.reverse ? blocks - 1 - i : i;
        gm_emulated.block_x = b % g->x;
        gm_emulated.block_y = b / g->x % g->y;
        gm_emulated.block_z = b / g->x / g->y;
        memset(run.shared, 0xff, g->shared + GUARD);
        run_block();
        check_shared(g->shared);
    }
}

int gm_emulated_launch(const gm_emulated_kernel *kernel, const gm_emulated_grid *g, const void *args, char *error,
                       size_t error_size)
{
    error[0] = 0;
    static _Alignas(128) unsigned char shared[SHARED_MOST + GUARD]; /* what a block shares; goes with the library */
    run.shared = shared;
    run.kernel = kernel;
    run.args = args;
    run.error = error;
    run.error_size = error_size;
    run.threads = g->block;
    run.reverse = run.launches++ & 1;
    gm_emulated = (gm_emulated_thread){.block_size = g->block,
                                       .grid_x = g->x,
                                       .grid_y = g->y,
                                       .grid_z = g->z,
                                       .shared = run.shared,
                                       .launch = run.launches};
    if (g->shared > SHARED_MOST) snprintf(error, error_size, "%s: %zu bytes of shared memory", kernel->name, g->shared);
    else run_grid(g);
    return error[0] != 0;
}

float    gm_emulated_get_f16(uint16_t bits) { return gm_f16_to_f32(bits); }
uint16_t gm_emulated_put_f16(float x) { return gm_f32_to_f16(x); }
