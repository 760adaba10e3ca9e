/* fake_driver.h - a CUDA driver for machines without a GPU: libgm_fake_cuda.so, which specs name in
 * GANYMEDE_CUDA_DRIVER. Device memory is memory of the process, kernels run on the CPU (emulate.c).
 *
 * As a GPU does, it does nothing before it must: what is queued runs when something waits for it, so that host code
 * that reads too early or reuses a buffer too soon gets wrong results here too. It refuses what a GPU would (grids,
 * shared memory, copies outside of an allocation or through pageable memory), surrounds each allocation by guard zones
 * that are looked at after every kernel, fills fresh and freed memory with NaN, and ends a process whose host code
 * touches device memory. An error of a kernel is reported
 * once, by the next call that waits; unlike on a GPU, the device then goes on.
 *
 * Environment: GANYMEDE_CUDA_RECORD names a file that gets a line for each thing done; GANYMEDE_CUDA_DEVICES says how
 * many devices there are (1); with GANYMEDE_CUDA_NO_IMAGES it answers as the real one does to an empty image. Graphs:
 * fake_graph.c. */
#ifndef GM_FAKE_DRIVER_H
#define GM_FAKE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* All since the process began. FFI of specs mirrors this struct: change both. */
typedef struct gm_fake_counts {
    uint64_t launches, blocks;
    uint64_t to_device, to_host, on_device, sets; /* copies by direction, memsets */
    uint64_t to_device_bytes, to_host_bytes;
    uint64_t allocations, frees, live_bytes;
    uint64_t waits;    /* of the host for the device: stream and event synchronisations that had to */
    uint64_t graphs;   /* launches of graphs; what is in them has counted above, once, when it was captured */
    uint64_t nodes;    /* of the graphs launched */
    uint64_t products; /* calls of libraries (gm_fake_queue) */
} gm_fake_counts;

void gm_fake_count(gm_fake_counts *out);

/* Work of a library, in the order of a stream like a kernel, in captures too: run is called with device memory open
 * when its turn comes, each time (so it changes nothing of its context), and writes what was wrong into error, if
 * anything; drop frees the context. line goes into the record; each counts as a product. The result is the driver's
 * (0: done); the context is taken in any case. */
typedef struct gm_fake_call {
    void (*run)(const void *context, char *error, size_t size);
    void (*drop)(void *context);
    void *context;
    /* In place of run, for work that needs another process: 0 when it is done, GM_FAKE_NOT_READY to be asked again,
     * while the stream stands still. Captures refuse it without `fresh`, which makes the context of one launch of the
     * graph from the one that was captured; drop frees both. ordered: in a graph such calls are in one order. */
    int (*attempt)(void *context, char *error, size_t size);
    void *(*fresh)(const void *context);
    int ordered;
} gm_fake_call;
#define GM_FAKE_NOT_READY 1
int gm_fake_queue(void *stream, const char *line, gm_fake_call call);
/* Runs what can run on all streams, without waiting. Is work of this stream being captured? */
void gm_fake_progress(void);
int  gm_fake_is_captured(void *stream);
/* A thread of a library begins to record into the capture under way (by 1), or has done so (-1). CUDA's graphs are not
 * synchronized: what is recorded in between makes the capture invalid. */
void gm_fake_occupy_capture(int by);
/* What runs on the device takes so much longer, as events tell the time; nobody waits for it. */
void gm_fake_spend(double seconds);
/* NULL, or why `bytes` at p are not all in one live allocation. For fakes of libraries. */
const char *gm_fake_outside(const void *p, size_t bytes);

#endif
