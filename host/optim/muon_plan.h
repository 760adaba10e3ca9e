/* muon_plan.h - which rank orthogonalises which matrix, and where the parts of a matrix lie.
 *
 * A parameter of two dimensions is one matrix; one of three dimensions is a stack of matrices, one in each slice of its
 * first dimension. The rows of either can be shared out among several matrices (gm_muon_shape.parts). Each matrix has
 * one owner among the ranks that hold a part or a copy of it. The largest matrices are dealt out first, each to the
 * rank that has the least work so far, so that all ranks of a stage have about the same work. The plan is a pure
 * function of mesh, shapes and layouts, the same on every rank.
 *
 * A rank of the mesh has two groups, seen from the parameters that are cut by the axes `cut`: its cut group, whose
 * members have different blocks, and its copy group, whose members have the same block. Parts of a matrix travel
 * inside of its owner's cut group only; what is ready then goes to the copies. */
#ifndef GM_MUON_PLAN_H
#define GM_MUON_PLAN_H

#include "../mesh/layout.h"

#define GM_MUON_PARTS 8

/* A parameter, as its gradients and states are laid out. */
typedef struct gm_muon_shape {
    gm_layout layout;
    int       ndim; /* 2 or 3 */
    int64_t   shape[GM_MAX_DIMS];
    gm_dtype  dtype;               /* that matrices are computed in */
    int       n_parts;             /* 0: all rows of a slice are one matrix; else the rows are shared out: */
    int64_t   part[GM_MUON_PARTS]; /* part[0] rows to the first matrix, part[1] to the second ..., and so on */
} gm_muon_shape;

/* Rows [first + i step, first + i step + length) of a slice, i from 0 to count - 1. */
typedef struct gm_muon_matrix {
    int     parameter;
    int64_t slice, first, length, step, count;
    int64_t rows, cols;
    int     owner; /* its rank */
} gm_muon_matrix;

/* The matrices of all parameters that are cut by the same axes and computed in one dtype. */
typedef struct gm_muon_set {
    uint32_t        cut, copies; /* axes of the cut groups and of the copy groups */
    gm_dtype        dtype;
    int             n;
    gm_muon_matrix *matrix; /* the largest first */
} gm_muon_set;

typedef struct gm_muon_plan {
    const gm_mesh *mesh;
    int            ranks; /* of a stage */
    int            n_sets;
    gm_muon_set   *set;
    gm_muon_shape *shape; /* of each parameter */
} gm_muon_plan;

/* shapes: n, copied. rank: any of the stage. mesh is borrowed. GM_EINVAL: the rows of a parameter cannot be shared out
 * as its parts say. */
gm_status gm_muon_plan_new(const gm_mesh *mesh, int rank, const gm_muon_shape *shapes, int n, gm_muon_plan **out);
void      gm_muon_plan_free(gm_muon_plan *p); /* NULL is allowed */

/* Of a set's matrices from `first` on, how many are gathered at once: about 64 MiB, but at least one for each rank. */
int gm_muon_round(const gm_muon_plan *p, const gm_muon_set *s, int first);

/* The block of a parameter that a rank holds. */
typedef struct gm_muon_block {
    int64_t slice[2], row[2], col[2]; /* from and to */
} gm_muon_block;
gm_muon_block gm_muon_block_of(const gm_muon_plan *p, const gm_muon_matrix *m, int rank);

/* The part of a matrix that lies in a block, piece by piece: rows of the slice and of the matrix that agree. */
typedef struct gm_muon_piece {
    int64_t row, at, n; /* n rows: of the slice from `row` on, of the matrix from `at` on */
    int64_t next;       /* for gm_muon_next */
} gm_muon_piece;
/* Starts with (gm_muon_piece){0}; false: there are no more. */
bool    gm_muon_next(const gm_muon_matrix *m, const gm_muon_block *b, gm_muon_piece *piece);
int64_t gm_muon_elements(const gm_muon_matrix *m, const gm_muon_block *b); /* of all pieces */

#endif
