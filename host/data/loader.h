/* loader.h - batches of a dataset, assembled ahead of their use by one thread.
 *
 *     gm_loader_seek(l, epoch, 0);
 *     while (gm_loader_next(l, &b) == GM_OK && b->count) use(b->x, b->y);
 *
 * What a batch holds is a pure function of (dataset, options, epoch, its index): not of the prefetch depth or of
 * what was read before. The thread fills plain buffers: it knows no tensor, no pool and no Lua. A loader may serve
 * one block of each batch (gm_loader_cut): only that block's samples are read, and blocks are of equal size, for
 * which the last ones end in rows of zeros. A batch may come in
 * pieces, the micro-batches of a pipeline: each holds consecutive samples of the batch and is cut into blocks as if
 * it were one; the samples themselves are the same in any number of pieces. An error comes out in the place of the
 * batch it happened in, and again on every later call until a seek. The loader belongs to one thread, which the
 * prefetch thread serves. */
#ifndef GM_LOADER_H
#define GM_LOADER_H

#include "dataset.h"
#include "transform.h"

#define GM_PREFETCH_MAX 16

typedef struct gm_loader_options {
    int64_t  batch_size; /* samples; the last batch of an epoch is shorter unless drop_last */
    bool     shuffle, drop_last;
    uint64_t seed;
    int      prefetch; /* batches ahead, 0 (assembled when asked for) to GM_PREFETCH_MAX */
    gm_dtype dtype;    /* GM_F32 or GM_F64: of x, but for tokens, which stay i64 */
    bool     no_data;  /* batches have counts but no buffers: for planning on meta devices */
} gm_loader_options;

typedef struct gm_batch {
    int64_t        index;   /* in its epoch, from 0 */
    int64_t        count;   /* samples of the whole batch; 0: the epoch is over */
    int64_t        pieces;  /* it has: 1, or what gm_loader_cut asked for, of which none is empty */
    const int64_t *samples; /* their numbers, count of them */
    const void    *x; /* (rows, gm_pipeline_shape...): the block of each piece, padding included, piece after piece */
    const int64_t *y; /* (rows, y_shape...) */
} gm_batch;

/* One cut of a batch: part `part` of `parts`. */
typedef struct gm_batch_cut {
    int part, parts;
} gm_batch_cut;

#define GM_BATCH_CUTS_MAX 8

typedef struct gm_loader gm_loader;

/* Retains d; copies the transforms. Stands at epoch 0, batch 0. */
gm_status gm_loader_new(gm_dataset *d, const gm_transform *transforms, int n, const gm_loader_options *o,
                        gm_loader **out);
void      gm_loader_free(gm_loader *l); /* stops the thread; NULL is allowed */

/* The next batch is `batch` of `epoch`; what was read ahead is dropped. */
gm_status gm_loader_seek(gm_loader *l, uint64_t epoch, int64_t batch);
/* Replaces the order of the present epoch, until the next seek to another: n samples, copied. NULL: back
 * to the sampler. Goes to batch 0. */
gm_status gm_loader_order(gm_loader *l, const int64_t *samples, int64_t n);

/* From the next batch on, at least one piece each, and of each piece blocks: of ceil(count / parts) rows for the first
 * cut, each cut again by the next one, as layouts nest them. n 0: whole pieces. What was read ahead is dropped unless
 * nothing changes. */
gm_status gm_loader_cut(gm_loader *l, int64_t pieces, int n, const gm_batch_cut *cuts);
/* Samples of piece k (from 0) of a batch of count >= pieces, and where they begin: sizes differ by one at most, the
 * larger ones come first. */
int64_t gm_batch_piece(int64_t count, int64_t pieces, int64_t k, int64_t *first);
/* Rows that are this block's own and where they begin, and its rows with padding, of a batch of count samples. */
void gm_batch_block(int n, const gm_batch_cut *cuts, int64_t count, int64_t *first, int64_t *own, int64_t *rows);

/* *b is valid until the next call on this loader. */
gm_status gm_loader_next(gm_loader *l, const gm_batch **b);

int64_t            gm_loader_length(const gm_loader *l); /* batches of an epoch */
const gm_pipeline *gm_loader_pipeline(const gm_loader *l);
const gm_dataset  *gm_loader_dataset(const gm_loader *l);

#endif
