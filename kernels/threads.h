/* threads.h - the small thread pool that kernels parallelise over.
 *
 * Workers spin for a bounded time after a job, then sleep (futex), so that a machine shared with
 * others is not burnt. The cut of a job into parts is a pure function of (n, grain, thread count):
 * the same machine gives the same bits. Libraries underneath (OpenBLAS, oneDNN) run with one thread. */
#ifndef GM_THREADS_H
#define GM_THREADS_H

#include <stdint.h>
#include "status.h"

typedef struct gm_threads gm_threads;

/* Part number 0 <= thread < gm_threads_count() of the job, [begin, end). No two parts have one number, but which of
 * the threads runs a part is left open: a free one does, so that one that the system holds back delays nobody. Must
 * not fail. */
typedef void (*gm_job)(void *context, int64_t begin, int64_t end, int thread);

gm_status gm_threads_new(int count, gm_threads **out); /* count >= 1; the caller is thread 0 */
void      gm_threads_free(gm_threads *threads);        /* joins; NULL is allowed */
int       gm_threads_count(const gm_threads *threads);

/* What must get on while this thread computes, messages say; NULL: nothing. It starts no job. */
void gm_threads_set_meanwhile(gm_threads *threads, void (*look)(void *context), void *context);
/* For long jobs, between pieces of their work: looks after it, where this is the thread that set it. */
void gm_threads_look(const gm_threads *threads);

/* Runs job over [0, n) in contiguous parts of at least `grain` (the last may be shorter), one a
 * thread at most; returns when all are done. Not reentrant: a job starts no job. */
void gm_parallel(gm_threads *threads, int64_t n, int64_t grain, gm_job job, void *context);
/* The number of parts gm_parallel cuts [0, n) into; part k is [k*n/parts, (k+1)*n/parts). */
int gm_parallel_parts(const gm_threads *threads, int64_t n, int64_t grain);

#endif
