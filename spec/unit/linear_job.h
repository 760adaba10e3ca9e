/* linear_job.h - one layer of gm_sharded_linear on ranks that are threads, twice forward and backward, against plain
 * loops over the whole matrices; and what it sent.
 *
 * Whatever a block is padded with along the inner and outer size is NaN, so that none of it may be read; padded rows
 * hold something finite. The tests are in sharded_linear*_test.c. */
#ifndef GM_LINEAR_JOB_H
#define GM_LINEAR_JOB_H

#include <stdlib.h>

#include "../../host/parallel/sharded/sharded.h"
#include "redistribute_blocks.h"
#include "threads_transport.h"

#define RANKS 16

enum { OF_X = 1, OF_W, OF_B, OF_DY };

typedef struct job {
    gm_mesh     mesh;
    gm_dtype    dtype;
    int64_t     x_shape[3], w_shape[2], y_shape[3];
    gm_layout   x, w, b, y;             /* y: as it must be */
    uint32_t    dw_partial, db_partial; /* as they must be */
    bool        keep, biased;
    gm_function f;               /* none, or sigmoid: not zero at zero */
    int         only;            /* OF_X, OF_W: the operand that wants a gradient; 0: all */
    bool        halves;          /* backward in two: dx, then dw and db */
    double     *value[4][RANKS]; /* y, dx, dw, db; copies */
    uint64_t    forward[RANKS], backward[RANKS], first[RANKS]; /* first: of backward, in its first half */
} job;

/* x (b, s, in), w (out, in) */
void sizes(job *j, int64_t b, int64_t s, int64_t in, int64_t out);
/* Appends cuts of a dimension, by axes that this mesh may lack; NULL: none. */
void cut(const gm_mesh *mesh, gm_layout *l, int d, const char *a, const char *b, const char *c);
/* "data" (left out, as the others, when it is 1) and up to three more axes. */
gm_mesh mesh_of_four(int data, const char *a, int na, const char *b, int nb, const char *c, int nc);
/* 2D and 2.5D; turned: w cut by row, col, and else by col, row. */
job flat(int data, int depth, int q, bool turned, int64_t b, int64_t s, int64_t in, int64_t out);
/* 3D; second: the layer after, in which input and output have changed places; rows: w's rows, not its columns, are cut
 * by weight. */
job cube(int data, int q, bool second, bool rows, int64_t b, int64_t s, int64_t in, int64_t out);

/* x (data, sequence, -), w (tensor, -): data, sequence and tensor ranks. */
job column(int data, int sequence, int tensor, int64_t b, int64_t s, int64_t in, int64_t out);
/* The same, but that x's dimension `dim` is cut by tensor inside. */
job gathered(int data, int sequence, int tensor, int dim, int64_t b, int64_t s, int64_t in, int64_t out);

/* A block of tensor `which` in this job's dtype. */
gm_value *job_block(gm_rank *r, const job *j, const gm_layout *l, int ndim, const int64_t *shape, uint64_t which);
/* Since the last call. */
uint64_t bytes_sent(gm_comm *c);
/* Runs it and compares y and the sums of the gradients of all ranks: within 1e-12 of the largest entry in f64, 1e-5 in
 * f32. Rounding of a sum of at most 602 products, in any order, is below 602 x 2^-53 times the sum of their magnitudes,
 * which is below 10 times the largest entry here: 7e-13 of it. In f32 only layers of at most 24 terms are run. */
void run_job(job *j);
void release_job(job *j);

/* Of a block. */
int64_t elements(const job *j, const gm_layout *l, int ndim, const int64_t *shape);
/* What all ranks together sent, in elements. */
void expect_sent(const job *j, int64_t forward, int64_t backward);
/* By the formulas of SUMMA and 3D; without bias. */
void expect_flat_traffic(const job *j, int q, bool turned);
void expect_cube_traffic(const job *j, int q);
/* Cubes of several sizes, in both roles of a pair, with gathered operands kept and not; rows: how w is stored. */
void run_cubes(bool rows);

/* The same layer forward and backward as rank `rank` on meta: what it sends is added to forward and backward [rank %
 * RANKS], its products to *flops. */
void pretend_layer(job *j, int rank, double *flops);

#endif
