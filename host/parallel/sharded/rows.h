/* rows.h - shared parts of the ops on rows that are cut along the reduced dimension: where a rank's block lies along
 * it, and steps that communicate. Private to this folder; all other steps are in host/autograd/work.h.
 *
 * A block is viewed as (lines, room): all leading dimensions become one. A tensor with one number a line is (lines, 1),
 * so that it broadcasts. The last room - count columns are padding, so sums and extremes use gm_rows_inside. */
#ifndef GM_ROWS_H
#define GM_ROWS_H

#include "../../comm/comm.h"
#include "../../autograd/layout_rules/family.h"
#include "../../autograd/work.h"
#include "sharded.h"

/* A dimension, and this rank's part of it. */
typedef struct gm_rows {
    uint32_t axes;               /* that cut it */
    int64_t  n;                  /* its size */
    int64_t  first, count, room; /* this rank's first element, how many there are, and with padding */
} gm_rows;

/* This rank's part of dimension dim of a tensor of this global shape. */
gm_rows gm_rows_here(const gm_rank *r, const gm_layout *layout, int ndim, const int64_t *shape, int dim);

gm_tensor *gm_rows_inside(gm_work *w, const gm_rows *k, gm_tensor *t); /* (lines, room) without padding */

/* Where indices into the dimension lie, and which of them this rank holds. */
typedef struct gm_rows_places {
    gm_tensor *global; /* f64 (lines, 1) */
    gm_tensor *local; /* f64 (lines, 1): counted in this rank's part; where it is elsewhere, the nearest that is here */
    gm_tensor *owned; /* u8 (lines, 1) */
} gm_rows_places;

/* Locates the indices (i32 or i64). GM_EINVAL, with the op, `what` ("target") and `of` ("classes") in the message: an
 * index is outside 0 .. n - 1 and is not *ignore (NULL: none is ignored). All ranks of the axes hold the same indices,
 * so all of them fail. */
gm_rows_places gm_rows_locate(gm_work *w, const gm_rows *k, gm_tensor *index, const int64_t *ignore, const char *what,
                              const char *of);

/* Stacks n tensors (lines, 1) into one (n, lines, 1), so that one all_reduce reduces them all. */
gm_tensor *gm_rows_stack(gm_work *w, int n, gm_tensor *const *t);
/* Elements 0 .. lines - 1 of row i of t (k, rows): a view (lines). */
gm_tensor *gm_rows_line(gm_work *w, gm_tensor *t, int i, int64_t lines);
/* Calls step(w, context, from, n) for pieces of n lines of `room` elements, and releases the tensors that a piece made
 * after it. Pieces are so small that these tensors fit the second-level cache. */
void gm_rows_pieces(gm_work *w, int64_t room, int64_t lines,
                    void (*step)(gm_work *w, void *context, int64_t from, int64_t n), void *context);

/* ---- communication ---- */

gm_group *gm_rows_group(gm_work *w, uint32_t axes);
void      gm_rows_reduce(gm_work *w, uint32_t axes, gm_tensor *t, gm_reduction op); /* in place */
void      gm_rows_all_to_all(gm_work *w, gm_group *g, gm_tensor *in, int split, gm_tensor *to, int join);
/* Starts an all_gather; the caller waits for *pending. pending NULL: waits. */
void gm_rows_all_gather(gm_work *w, gm_group *g, gm_tensor *in, int dim, gm_tensor *to, gm_pending **pending);

/* How many elements of x, laid out so, each rank of the group has along some dimensions, a bit each: f64 (p, 1). Values
 * are undefined on meta. moments.c */
gm_tensor *gm_rows_counts(gm_work *w, gm_group *g, const gm_layout *layout, const gm_value *x, uint32_t dims);
/* here (2, lines): mean and squares around it of this rank's part of each line, lines a multiple of the group's size.
 * counts f64 (p, 1): how many of the n elements of a line each rank of the group has. Gives mean and squares of whole
 * lines, (2, lines), to all ranks, merged in double: the bytes of one all_reduce. moments.c */
gm_tensor *gm_rows_merge(gm_work *w, gm_group *g, gm_tensor *here, gm_tensor *counts, int64_t n);

#endif
