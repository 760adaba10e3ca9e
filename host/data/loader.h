/* loader.h - batches of a dataset. A thread assembles them before they are used (prefetch), and may have helpers.
 *
 *     gm_loader_seek(l, epoch, 0);
 *     while (gm_loader_next(l, &b) == GM_OK && b->count) use(b->x, b->y);
 *
 * The content of a batch is a pure function of (dataset, options, epoch, its index). It does not depend on the prefetch
 * depth, the threads or earlier batches. The threads fill plain buffers; they know no tensor, no pool and no Lua.
 *
 * A loader can serve one block of each batch (gm_loader_cut). It then reads only the samples of this block. All blocks
 * have equal sizes; the last ones end with rows of zeros. A batch can come in pieces, the micro-batches of a pipeline.
 * Each piece holds consecutive samples of the batch and is cut into blocks as a batch is. The samples of a batch are
 * the same for any number of pieces.
 *
 * An error is returned in place of the batch in which it happened, and by every later call until a seek. Only one
 * thread may use a loader. */
#ifndef GM_LOADER_H
#define GM_LOADER_H

#include "dataset.h"
#include "readers.h"
#include "transform.h"

#define GM_PREFETCH_MAX       16
#define GM_LOADER_THREADS_MAX 64

typedef struct gm_loader_options {
    int64_t  batch_size; /* samples; the last batch of an epoch is shorter unless drop_last */
    bool     shuffle, drop_last;
    uint64_t seed;
    int prefetch; /* batches to assemble ahead, up to GM_PREFETCH_MAX; 0: a batch is assembled when it is asked for */
    int threads;  /* that read the samples of a batch, from 1 to GM_LOADER_THREADS_MAX */
    gm_dtype  dtype;   /* dtype of x: GM_F32 or GM_F64; tokens stay i64 */
    gm_blends blends;  /* how samples are mixed with others, after the transforms */
    bool      no_data; /* batches have counts but no buffers: for planning on meta devices */
} gm_loader_options;

typedef struct gm_batch {
    int64_t        index;   /* its place in the epoch, from 0 */
    int64_t        count;   /* samples of the whole batch; 0: the epoch is over */
    int64_t        pieces;  /* 1, or the number that gm_loader_cut asked for; no piece is empty */
    const int64_t *samples; /* the numbers of its samples: [count] */
    const void
        *x; /* (rows, gm_transform_chain_shape...): the block of each piece, padding included, piece after piece */
    const void *y; /* (rows, gm_loader_y_shape...) of gm_loader_y_dtype */
} gm_batch;

/* One cut of a batch: part `part` of `parts`. */
typedef struct gm_batch_cut {
    int part, parts;
} gm_batch_cut;

#define GM_BATCH_CUTS_MAX 8

typedef struct gm_loader gm_loader;

/* Makes a loader that begins at epoch 0, batch 0; the caller frees it. Retains d and copies the transforms. */
gm_status gm_loader_new(gm_dataset *d, const gm_transform *transforms, int n, const gm_loader_options *o,
                        gm_loader **out);
void      gm_loader_free(gm_loader *l); /* stops the thread; NULL is allowed */

/* Makes `batch` of `epoch` the next batch; drops batches that were read ahead. */
gm_status gm_loader_seek(gm_loader *l, uint64_t epoch, int64_t batch);
/* Replaces the order of the current epoch by n samples (copied), until a seek to another epoch, and goes to batch 0.
 * NULL: the order of the sampler again. */
gm_status gm_loader_order(gm_loader *l, const int64_t *samples, int64_t n);

/* Lets the present epoch begin at sample `first` of its order, until the next seek to another epoch or this call again:
 * batch 0 begins there, and the length counts from there. Goes to batch 0. */
gm_status gm_loader_begin(gm_loader *l, int64_t first);

/* From the next batch on, a batch comes in `pieces` pieces (at least 1), and the loader serves one block of each piece.
 * The first cut makes blocks of ceil(count / parts) rows, the next one cuts each block again, and so on, as layouts
 * nest cuts. n 0: whole pieces. Drops batches that were read ahead, unless nothing changes. */
gm_status gm_loader_cut(gm_loader *l, int64_t pieces, int n, const gm_batch_cut *cuts);
/* The number of samples in piece k (from 0) of a batch of count >= pieces samples; *first: where they begin. The sizes
 * of pieces differ by at most one, and the larger pieces come first. */
int64_t gm_batch_piece(int64_t count, int64_t pieces, int64_t k, int64_t *first);
/* For a batch of `count` samples: *own rows of this block are samples, from sample *first on; with padding it has *rows
 * rows. */
void gm_batch_block(int n, const gm_batch_cut *cuts, int64_t count, int64_t *first, int64_t *own, int64_t *rows);

/* *b is valid until the next call on this loader. */
gm_status gm_loader_next(gm_loader *l, const gm_batch **b);

int64_t                   gm_loader_length(const gm_loader *l); /* batches of an epoch */
const gm_transform_chain *gm_loader_transforms(const gm_loader *l);
const gm_dataset         *gm_loader_dataset(const gm_loader *l);
gm_dtype gm_loader_y_dtype(const gm_loader *l); /* GM_I64, or that of x where y is real or probabilities */
int      gm_loader_y_shape(const gm_loader *l, int64_t *shape); /* of one sample; returns ndim */

#endif
