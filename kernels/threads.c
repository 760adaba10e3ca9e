/* threads.c - see threads.h.
 *
 * A job is published as one word, `claim`: the number of the job, the number of its parts, and the next part that
 * nobody has taken. The caller and the workers take parts until none is left. So a worker that the system does not run
 * at the moment delays nobody, because others do its parts. A thread may read the job's other fields only after it has
 * taken a part: until that part is done, the job cannot end and the next one cannot begin. A thread waits by a bounded
 * spin, then on a futex. A gate counts its sleepers, so that opening it costs a system call only if somebody sleeps. */
#define _GNU_SOURCE
#include "threads.h"
#include "clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How long a thread looks before it sleeps: longer than the gap between two kernels and than the difference between the
 * parts of most, and shorter than what a neighbour would miss. To wake a sleeper of a virtual machine takes as long. A
 * pause takes 35 to 140 cycles, so the number of pauses is measured. With 10 microseconds in place of 60 a step of a
 * small ViT in bf16 took 8.8 ms in place of 6.9 on two cores of a Granite Rapids; 100 and 200 were no quicker. */
#define SPIN_SECONDS 60e-6
#define SPIN_TRIES   8 /* the quickest counts, because the system may have run something else meanwhile */
#define SPIN_SAMPLE  64

/* A word to wait on. */
typedef struct gate {
    _Atomic int word, sleepers;
} __attribute__((aligned(64))) gate;

typedef struct worker {
    struct gm_threads *pool;
    pthread_t          thread;
    int                index;
} worker;

struct gm_threads {
    int          count, spins; /* spins: looks before a thread sleeps */
    int64_t      n;
    gm_job       job;
    void        *context;
    _Atomic bool quit;
    pthread_t    owner; /* the thread that look may be called on */
    void (*look)(void *context);
    void            *look_context;
    gate             ticket;                             /* changes with every job */
    gate             running;                            /* parts that are not done */
    _Atomic uint64_t claim __attribute__((aligned(64))); /* number << 32 | parts << 16 | next part */
    worker           workers[];
};

static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static bool gate_opens(gate *g, int old, int spins)
{
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(&g->word, memory_order_acquire) != old) return true;
        pause_core();
    }
    return false;
}

/* So many looks take SPIN_SECONDS. */
static int count_spins(void)
{
    gate   closed = {0};
    double least = 1;
    for (int i = 0; i < SPIN_TRIES; i++) {
        double begin = gm_now();
        gate_opens(&closed, 0, SPIN_SAMPLE);
        double seconds = gm_now() - begin;
        if (seconds < least) least = seconds;
    }
    double each = least / SPIN_SAMPLE > 1e-9 ? least / SPIN_SAMPLE : 1e-9;
    return (int)(SPIN_SECONDS / each) + 1;
}

/* Returns once the word is not `old`. A sleeper counts itself before the kernel compares the word again, and the
 * opener changes the word before it looks for sleepers: one of them sees the other. */
static void gate_wait(gate *g, int old, int spins)
{
    if (gate_opens(g, old, spins)) return;
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->word) == old) syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

static void gate_add(gate *g, int amount, int wake)
{
    atomic_fetch_add(&g->word, amount);
    if (atomic_load(&g->sleepers)) syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, wake, NULL, NULL, 0);
}

/* Takes parts of the job in hand and does them until none is left. */
static void work_on(gm_threads *p)
{
    uint64_t claim = atomic_load_explicit(&p->claim, memory_order_acquire);
    for (;;) {
        int64_t parts = (int64_t)(claim >> 16 & 0xffff), k = (int64_t)(claim & 0xffff);
        if (k >= parts) return;
        if (!atomic_compare_exchange_weak_explicit(&p->claim, &claim, claim + 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        p->job(p->context, p->n * k / parts, p->n * (k + 1) / parts, (int)k);
        gate_add(&p->running, -1, 1);
        claim = atomic_load_explicit(&p->claim, memory_order_acquire);
    }
}

static void *work(void *arg)
{
    worker     *w = arg;
    gm_threads *p = w->pool;
    for (int seen = 0;;) {
        gate_wait(&p->ticket, seen, p->spins);
        seen = atomic_load_explicit(&p->ticket.word, memory_order_acquire);
        if (p->quit) return NULL;
        work_on(p);
    }
}

/* Workers take no signals: handlers of the program, and of the profiler that lets Ctrl-C stop compiled Lua, change
 * the interpreter, which belongs to the thread that runs it. Those that a fault raises stay open. */
static int start_worker(worker *w)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    sigset_t         most, before;
    sigfillset(&most);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&most, faults[i]);
    pthread_sigmask(SIG_SETMASK, &most, &before);
    int failure = pthread_create(&w->thread, NULL, work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

gm_status gm_threads_new(int count, gm_threads **out)
{
    if (count > 0xffff) return GM_FAIL(GM_EINVAL, "%d threads; a pool has at most 65535", count);
    gm_threads *p = aligned_alloc(64, (sizeof *p + (size_t)count * sizeof(worker) + 63) / 64 * 64);
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for a thread pool");
    memset(p, 0, sizeof *p);
    p->count = 1;
    p->spins = count_spins();
    for (int i = 1; i < count; i++) {
        p->workers[i] = (worker){.pool = p, .index = i};
        int failure = start_worker(&p->workers[i]);
        if (failure) {
            gm_threads_free(p);
            return GM_FAIL(GM_ENOMEM, "cannot start thread %d of %d: %s", i + 1, count, strerror(failure));
        }
        p->count++;
    }
    *out = p;
    return GM_OK;
}

void gm_threads_free(gm_threads *p)
{
    if (!p) return;
    p->quit = true;
    gate_add(&p->ticket, 1, INT_MAX);
    for (int i = 1; i < p->count; i++) pthread_join(p->workers[i].thread, NULL);
    free(p);
}

void gm_threads_set_meanwhile(gm_threads *p, void (*look)(void *context), void *context)
{
    p->owner = pthread_self();
    p->look = look;
    p->look_context = context;
}

void gm_threads_look(const gm_threads *p)
{
    if (p->look && pthread_equal(p->owner, pthread_self())) p->look(p->look_context);
}

int gm_threads_count(const gm_threads *p) { return p->count; }

int gm_parallel_parts(const gm_threads *p, int64_t n, int64_t grain)
{
    int64_t parts = grain > 0 ? (n + grain - 1) / grain : n;
    return parts > p->count ? p->count : parts < 1 ? 1 : (int)parts;
}

void gm_parallel(gm_threads *p, int64_t n, int64_t grain, gm_job job, void *context)
{
    int parts = gm_parallel_parts(p, n, grain);
    if (n <= 0) return;
    if (parts == 1) {
        job(context, 0, n, 0);
        return;
    }
    p->n = n;
    p->job = job;
    p->context = context;
    atomic_store_explicit(&p->running.word, parts, memory_order_relaxed);
    uint64_t number = (atomic_load_explicit(&p->claim, memory_order_relaxed) >> 32) + 1;
    atomic_store_explicit(&p->claim, number << 32 | (uint64_t)parts << 16, memory_order_release);
    gate_add(&p->ticket, 1, parts - 1);
    work_on(p);
    for (int left; (left = atomic_load_explicit(&p->running.word, memory_order_acquire)) > 0;)
        gate_wait(&p->running, left, p->spins);
}
