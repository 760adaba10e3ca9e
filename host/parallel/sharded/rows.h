/* rows.h - what the ops on rows that are cut along the dimension worked along are written with. Private to this folder.
 *
 * A gm_rows is the work of one call on one rank: where its block lies along that dimension, and the tensors made on the
 * way, which gm_rows_end releases. Steps look like formulas: a step that fails gives NULL and leaves its status in
 * `st`, and whatever follows does nothing, communication included (the others hear of it as of any failure).
 *
 * Blocks are worked on as (lines, room): all leading dimensions are one. What has one number a line is (lines, 1), so
 * that it broadcasts. room - count columns of the last block are padding: sums and extremes go over gm_rows_inside. */
#ifndef GM_ROWS_H
#define GM_ROWS_H

#include "../../comm/comm.h"
#include "../../autograd/layout_rules/family.h"
#include "sharded.h"

#define GM_ROWS_HELD 96

typedef struct gm_rows {
    gm_rank   *rank;
    gm_device *device;
    uint32_t   axes;               /* that cut the dimension worked along */
    int64_t    n;                  /* its size */
    int64_t    first, count, room; /* this rank's part: its first element, how many there are, and with padding */
    bool       sent;               /* others may have had their part of something */
    gm_status  st;
    int        n_held;
    gm_tensor *held[GM_ROWS_HELD];
} gm_rows;

/* Work on this rank's block of dimension dim of a tensor of this global shape. */
void gm_rows_begin(gm_rows *w, gm_rank *r, const gm_layout *layout, int ndim, const int64_t *shape, int dim);
/* Releases what was made, but for what was kept; the first failure. */
gm_status gm_rows_end(gm_rows *w);
/* Ends the work if st is a failure. */
void gm_rows_check(gm_rows *w, gm_status st);
/* t is the caller's from now on. */
gm_tensor *gm_rows_keep(gm_rows *w, gm_tensor *t);

/* ---- operands ---- */

/* The local tensor as (lines, last dimension): a view where possible, else of a copy. */
gm_tensor *gm_rows_flat(gm_rows *w, gm_tensor *t);
gm_tensor *gm_rows_compact(gm_rows *w, gm_tensor *t); /* the same, contiguous */
/* One number a line, (lines, 1). */
gm_tensor *gm_rows_column(gm_rows *w, gm_tensor *t);
gm_tensor *gm_rows_inside(gm_rows *w, gm_tensor *t); /* (lines, room) without padding: (lines, count) */
gm_tensor *gm_rows_part(gm_rows *w, gm_tensor *t, int64_t from, int64_t lines);
gm_tensor *gm_rows_shaped(gm_rows *w, gm_tensor *t, int ndim, const int64_t *shape);

/* Where indices into the dimension worked along lie, and which of them this rank holds. */
typedef struct gm_rows_places {
    gm_tensor *global; /* f64 (lines, 1) */
    gm_tensor *local; /* f64 (lines, 1): counted in this rank's part; where it is elsewhere, the nearest that is here */
    gm_tensor *owned; /* u8 (lines, 1) */
} gm_rows_places;

/* index: i32 or i64. GM_EINVAL, naming op and what ("target", "classes"): one is outside 0 .. n - 1 and not *ignore
 * (NULL: none is ignored). All ranks of the axes hold the same indices, so all of them say so. */
gm_rows_places gm_rows_locate(gm_rows *w, gm_tensor *index, const int64_t *ignore, const char *op, const char *what,
                              const char *of);

/* ---- steps ---- */

gm_tensor *gm_rows_new(gm_rows *w, gm_dtype dtype, int ndim, const int64_t *shape);
gm_tensor *gm_rows_full(gm_rows *w, gm_dtype dtype, int ndim, const int64_t *shape, double value);
gm_tensor *gm_rows_scalar(gm_rows *w, gm_dtype dtype, double value);
void       gm_rows_into(gm_rows *w, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs, int n_out,
                        gm_tensor *const *out);
/* All outputs new. */
void       gm_rows_run(gm_rows *w, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs, int n_out,
                       gm_tensor **out);
gm_tensor *gm_rows_affine(gm_rows *w, gm_tensor *x, double alpha, double beta);
gm_tensor *gm_rows_unary(gm_rows *w, gm_function f, gm_tensor *x);
gm_tensor *gm_rows_binary(gm_rows *w, gm_function f, gm_tensor *a, gm_tensor *b); /* comparisons too: u8 then */
/* The same into `to`, unless that is NULL; returns where the result is. */
gm_tensor *gm_rows_binary_to(gm_rows *w, gm_function f, gm_tensor *a, gm_tensor *b, gm_tensor *to);
gm_tensor *gm_rows_where(gm_rows *w, gm_tensor *condition, gm_tensor *a, gm_tensor *b);
gm_tensor *gm_rows_cast(gm_rows *w, gm_tensor *x, gm_dtype dtype);
/* (lines, k) -> (lines, 1), or (k) for dim 0; into `to`, unless that is NULL. */
gm_tensor *gm_rows_sum(gm_rows *w, gm_tensor *x, int dim, gm_tensor *to);
/* n tensors (lines, 1) as one (n, lines, 1), to be reduced at once; and its parts, views. */
gm_tensor *gm_rows_stack(gm_rows *w, int n, gm_tensor *const *t);
gm_tensor *gm_rows_of_stack(gm_rows *w, gm_tensor *t, int i);
gm_tensor *gm_rows_select(gm_rows *w, gm_tensor *t, int dim, int64_t i);
/* Of t (k, rows): numbers 0 .. lines - 1 of row i, (lines). */
gm_tensor *gm_rows_line(gm_rows *w, gm_tensor *t, int i, int64_t lines);
/* step(context, from, n) for pieces of the lines, small enough that what a piece makes, which is released after it,
 * stays in the second cache: no op makes tensors of the size of its block but its result. */
void gm_rows_pieces(gm_rows *w, int64_t lines, void (*step)(gm_rows *w, void *context, int64_t from, int64_t n),
                    void *context);
/* Communication over some axes; 0: over those that cut the dimension worked along. */
gm_group *gm_rows_group(gm_rows *w, uint32_t axes);
void      gm_rows_reduce(gm_rows *w, uint32_t axes, gm_tensor *t, gm_reduction op); /* in place */
void      gm_rows_all_to_all(gm_rows *w, gm_group *g, gm_tensor *in, int split, gm_tensor *to, int join);
void      gm_rows_all_gather(gm_rows *w, gm_group *g, gm_tensor *in, int dim, gm_tensor *to);

#endif
