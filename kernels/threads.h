/* threads.h - the small pool of threads that kernels run on.
 *
 * After a job, workers spin for a bounded time and then sleep on a futex, so that other programs get the cores. How a
 * job is cut into parts is a function of (n, grain, number of threads) alone. The same machine with the same number of
 * threads therefore gives the same bits. */
#ifndef GM_THREADS_H
#define GM_THREADS_H

#include <stdint.h>
#include "status.h"

typedef struct gm_threads gm_threads;

/* Does the part [begin, end) of a job; must not fail. `thread` is the number of the part, 0 <= thread <
 * gm_threads_count(), and no two parts of a job have the same number. Any free thread may run a part, so that a thread
 * which the system does not run at the moment delays nobody. */
typedef void (*gm_job)(void *context, int64_t begin, int64_t end, int thread);

gm_status gm_threads_new(int count, gm_threads **out); /* count >= 1, the caller's thread included */
void      gm_threads_free(gm_threads *threads);        /* ends and joins the workers; NULL is allowed */
int       gm_threads_count(const gm_threads *threads);

/* Sets a function for work that must go on while the calling thread computes, such as messages between ranks; NULL:
 * none. `look` must not start a job. */
void gm_threads_set_meanwhile(gm_threads *threads, void (*look)(void *context), void *context);
/* Long jobs call this between pieces of their work. It calls `look` if this is the thread that set it. */
void gm_threads_look(const gm_threads *threads);

/* Runs `job` over [0, n) in contiguous parts of at least `grain` (the last may be shorter), at most one for each
 * thread. Returns when all parts are done. A job must not start another job. */
void gm_parallel(gm_threads *threads, int64_t n, int64_t grain, gm_job job, void *context);
/* The number of parts into which gm_parallel cuts [0, n); part k is [k*n/parts, (k+1)*n/parts). */
int gm_parallel_parts(const gm_threads *threads, int64_t n, int64_t grain);

#endif
