/* halo.h - the rows of other ranks that a block needs where ranks share a dimension of images: its halo.
 *
 * Rows are places of one dimension of x, which some axes cut into the blocks of its layout, of any sizes: a rank may
 * have fewer rows than it needs from others, or none. Each rank makes its own block of rows of a result, whose
 * dimension is cut by the same axes, and for these it reads a run of rows of x. Which run that is says a function of
 * the rows made, so that every rank knows the runs of all others, and no message says them.
 *
 * gm_halo_fetch sends each row to the ranks that read it, straight from the rank that has it. gm_halo_return sends
 * gradients the opposite way; they are added in one order, first this rank's own, then those of others by their place.
 * Sent by a rank, each way: for each other rank the rows that this one has and that one reads, times the elements of a
 * row in its block. Nothing is sent, and nothing copied, where each rank reads what it has. */
#ifndef GM_HALO_H
#define GM_HALO_H

#include "../../autograd/work.h"
#include "../../comm/comm.h"
#include "../../mesh/layout.h"

typedef struct gm_halo_run {
    int64_t first, count; /* rows of the whole dimension; padding is none */
} gm_halo_run;

/* How rows of the result and rows of x belong together. */
typedef struct gm_halo_axis {
    int64_t n, out; /* rows of x, and of the result */
    int64_t kernel, stride, dilation, before;
    double  scale; /* of gm_halo_of_sizes: rows of x for each row of the result */
    enum { GM_HALO_NEAREST, GM_HALO_LINEAR, GM_HALO_CORNERS } places; /* and how they lie */
    bool next;                                                        /* and whether the row behind is read */
} gm_halo_axis;

/* The rows of x that these rows of the result read; at least one row is made. */
typedef gm_halo_run (*gm_halo_reads)(const gm_halo_axis *axis, gm_halo_run made);

/* Row o reads rows o stride - before + k dilation, for k of a kernel: convolutions and pooling. Rows outside of x are
 * none. */
gm_halo_run gm_halo_of_windows(const gm_halo_axis *axis, gm_halo_run made);
/* Row i is read by rows i stride - before + k dilation: transposed convolutions. The run begins with a row whose kernel
 * begins at the first row made or before it. */
gm_halo_run gm_halo_of_kernels(const gm_halo_axis *axis, gm_halo_run made);
/* Row o reads row gm_halo_source(axis, o): interpolation. */
gm_halo_run gm_halo_of_sizes(const gm_halo_axis *axis, gm_halo_run made);
int64_t     gm_halo_source(const gm_halo_axis *axis, int64_t o);

static inline int64_t gm_halo_reach(const gm_halo_axis *axis) { return axis->dilation * (axis->kernel - 1) + 1; }

typedef struct gm_halo_place {
    gm_halo_run has, makes, reads;
} gm_halo_place;

typedef struct gm_halo_flight {
    gm_tensor  *t;
    gm_pending *pending;
} gm_halo_flight;

typedef struct gm_halo {
    int             dim, p, here;
    gm_group       *group;  /* of the p ranks that share the dimension */
    gm_halo_place  *place;  /* [p] */
    gm_halo_flight *flight; /* [2 p]: what comes from each, then what goes to each */
} gm_halo;

/* Plans for dimension dim, of axis->n rows, of an x that is laid out so. No communication. GM_ESHAPE, on all ranks
 * alike: a row of the result reads no row of x. GM_ENOMEM. h is to be closed also after a failure. */
gm_status gm_halo_open(gm_rank *r, const char *op, const gm_layout *layout, int dim, const gm_halo_axis *axis,
                       gm_halo_reads reads, gm_halo *h);
void      gm_halo_close(gm_work *w, gm_halo *h); /* leaves messages under way to the comm */

static inline const gm_halo_place *gm_halo_here(const gm_halo *h) { return &h->place[h->here]; }

/* A new tensor like one of this shape, with so many rows. */
gm_tensor *gm_halo_rows(gm_work *w, const gm_halo *h, gm_dtype dtype, int ndim, const int64_t *like, int64_t rows);
/* Where the rows that this rank makes are computed: the block of the result itself, or a new tensor where the block has
 * padding. gm_halo_put brings them home. */
gm_tensor *gm_halo_made(gm_work *w, const gm_halo *h, gm_tensor *block);
void       gm_halo_put(gm_work *w, const gm_halo *h, gm_tensor *made, gm_tensor *block);

/* The rows that this rank reads, contiguous, of its block of x; NULL: it reads none. In two steps, so that work that
 * needs no other's rows goes on while they travel; one thing travels at a time. Collective over the group. */
void       gm_halo_start_fetch(gm_work *w, gm_halo *h, gm_tensor *block);
gm_tensor *gm_halo_end_fetch(gm_work *w, gm_halo *h, gm_tensor *block);
gm_tensor *gm_halo_fetch(gm_work *w, gm_halo *h, gm_tensor *block); /* both */
/* The gradient of the block of x, of the shape `block`, from that of the rows that were read (NULL: none), to which the
 * second step may write. Collective. */
void       gm_halo_start_return(gm_work *w, gm_halo *h, gm_tensor *rows, const gm_spec *block);
gm_tensor *gm_halo_end_return(gm_work *w, gm_halo *h, gm_tensor *rows, const gm_spec *block);
gm_tensor *gm_halo_return(gm_work *w, gm_halo *h, gm_tensor *rows, const gm_spec *block); /* both */

#endif
