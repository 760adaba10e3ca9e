/* threads.c - see threads.h. A job is published by bumping `ticket`; workers that have finished count
 * `running` down. Both are futex words: spin a little, then sleep in the kernel. */
#define _GNU_SOURCE
#include "threads.h"

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

#define SPINS 4000 /* some 20 to 100 microseconds: longer than the gap between two kernels */

typedef struct worker {
    struct gm_threads *pool;
    pthread_t          thread;
    int                index;
} worker;

struct gm_threads {
    int         count, parts;
    int64_t     n;
    gm_job      job;
    void       *context;
    bool        quit;
    _Atomic int ticket __attribute__((aligned(64)));
    _Atomic int running __attribute__((aligned(64)));
    worker      workers[];
};

static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Returns once *word != old. */
static void wait_change(_Atomic int *word, int old)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) return;
        pause_core();
    }
    while (atomic_load_explicit(word, memory_order_acquire) == old)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
}

static void wake(_Atomic int *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }

static void run_part(gm_threads *p, int k)
{
    if (k < p->parts) p->job(p->context, p->n * k / p->parts, p->n * (k + 1) / p->parts, k);
}

static void *work(void *arg)
{
    worker     *w = arg;
    gm_threads *p = w->pool;
    for (int seen = 0;;) {
        wait_change(&p->ticket, seen);
        seen = atomic_load_explicit(&p->ticket, memory_order_acquire);
        if (p->quit) return NULL;
        run_part(p, w->index);
        if (atomic_fetch_sub_explicit(&p->running, 1, memory_order_acq_rel) == 1) wake(&p->running);
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
    gm_threads *p = aligned_alloc(64, (sizeof *p + (size_t)count * sizeof(worker) + 63) / 64 * 64);
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for a thread pool");
    memset(p, 0, sizeof *p);
    p->count = 1;
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
    atomic_fetch_add_explicit(&p->ticket, 1, memory_order_release);
    wake(&p->ticket);
    for (int i = 1; i < p->count; i++) pthread_join(p->workers[i].thread, NULL);
    free(p);
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
    p->parts = parts;
    p->n = n;
    p->job = job;
    p->context = context;
    atomic_store_explicit(&p->running, p->count - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->ticket, 1, memory_order_release);
    wake(&p->ticket);
    run_part(p, 0);
    for (int left; (left = atomic_load_explicit(&p->running, memory_order_acquire)) > 0;)
        wait_change(&p->running, left);
}
