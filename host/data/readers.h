/* readers.h - threads that read and transform the samples of a batch.
 *
 * Each has a chain of transforms and buffers of its own. Rows are taken one after the other by whoever is free, so a
 * batch waits for no slow thread longer than for one sample. What stands in a row does not depend on who read it. If
 * rows fail, the first of them in the list is reported, as one thread alone would. */
#ifndef GM_READERS_H
#define GM_READERS_H

#include <pthread.h>
#include "blend.h"
#include "dataset.h"

typedef struct gm_wanted {
    int64_t row, sample; /* row of the batch, number of the sample */
} gm_wanted;

typedef struct gm_readers gm_readers;

/* Samples are mixed with others, after both were transformed, as n blends say; y then holds probabilities. */
typedef struct gm_blends {
    int      n;
    gm_blend list[GM_BLENDS_MAX];
} gm_blends;

/* Makes readers; the caller frees them, and keeps d until then. threads 1: the caller's alone. GM_ESHAPE: samples
 * cannot be mixed, because they are tokens or have no labels, or are no pictures where parts are put into them. */
gm_status gm_readers_new(const gm_dataset *d, const gm_transform *transforms, int n, const gm_blends *blends,
                         gm_dtype dtype, uint64_t seed, int threads, gm_readers **out);
void      gm_readers_free(gm_readers *r); /* ends the threads; NULL is allowed */

/* Reads samples into rows of x and of y, as the caller and the other threads have time. The first call, and the first
 * one behind gm_readers_stop, starts the threads. */
gm_status gm_readers_run(gm_readers *r, uint64_t epoch, const gm_wanted *list, int64_t n, char *x, char *y);
void      gm_readers_stop(gm_readers *r); /* ends the threads, not while they run */

const gm_transform_chain *gm_readers_transforms(const gm_readers *r);
gm_dtype                  gm_readers_y_dtype(const gm_readers *r); /* GM_I64, or that of x where y is real */
int                       gm_readers_y_shape(const gm_readers *r, int64_t *shape); /* returns ndim */
size_t                    gm_readers_x_bytes(const gm_readers *r);                 /* of a row */
size_t                    gm_readers_y_bytes(const gm_readers *r);

/* Starts a thread that leaves signals to the main thread; those that a fault of its own raises stay open. */
int gm_start_quiet_thread(pthread_t *thread, void *(*run)(void *), void *arg);

#endif
