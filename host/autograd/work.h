/* work.h - the steps that backward rules and sharded forms of ops are written with.
 *
 * A gm_work is the work of one call on one rank. Steps look like formulas. A step that fails returns NULL and stores
 * its status in `st`; all later steps do nothing, communication included (other ranks hear of it as of any failure). So
 * a step accepts NULL, but code that reads a tensor's fields must check `st` first.
 *
 * Ownership: the tensors that steps return belong to the work until gm_work_keep hands them to the caller. Arguments of
 * steps are borrowed. */
#ifndef GM_WORK_H
#define GM_WORK_H

#include "../rank/rank.h"

#define GM_WORK_HELD 96

typedef struct gm_work {
    gm_rank    *rank;
    gm_device  *device;
    const char *place;   /* the op that memory is charged to, */
    const char *charged; /* and what the pool calls it */
    bool        sent;    /* others may have had their part of something: short of memory is no reason to begin anew */
    gm_status   st;
    int         n_held;
    gm_tensor  *held[GM_WORK_HELD];
} gm_work;

/* A call that returns a status, as a step. */
#define GM_STEP(w, call)                       \
    do {                                       \
        gm_work *w_ = (w);                     \
        if (w_->st == GM_OK) {                 \
            gm_status st_ = (call);            \
            if (w_->st == GM_OK) w_->st = st_; \
        }                                      \
    } while (0)

void gm_work_begin(gm_work *w, gm_rank *r, const char *place);
/* Releases the work's tensors except those that were kept. Returns the status of the first failure. */
gm_status gm_work_end(gm_work *w);
/* Releases the tensors made since n_held was `mark`; the work goes on. */
void gm_work_drop(gm_work *w, int mark);
/* Gives the caller's reference to t to the work and returns t. Releases it after a failure. */
gm_tensor *gm_work_hold(gm_work *w, gm_tensor *t);
/* Gives the caller a reference to t: the work's, or a new one if the work has none. yield: if only the work refers to
 * the bytes of t, it also releases its other views of them, so that t has no other reference. */
gm_tensor *gm_work_keep(gm_work *w, gm_tensor *t);
gm_tensor *gm_work_yield(gm_work *w, gm_tensor *t);
/* *out = t, kept as a value that only a node reads. NULL, or after a failure: *out stays. */
void gm_work_slot(gm_work *w, gm_tensor *t, struct gm_value **out);
/* Another reference to t's tensor, for a tensor that is to be kept twice. */
gm_tensor *gm_work_share(gm_work *w, gm_tensor *t);

/* ---- views ---- */

gm_tensor *gm_work_narrow(gm_work *w, gm_tensor *t, int dim, int64_t from, int64_t n);
gm_tensor *gm_work_select(gm_work *w, gm_tensor *t, int dim, int64_t i);
gm_tensor *gm_work_permute(gm_work *w, gm_tensor *t, const int *order);
gm_tensor *gm_work_expand(gm_work *w, gm_tensor *t, int ndim, const int64_t *shape);
/* Another shape: a view where possible, else of a copy. */
gm_tensor *gm_work_shaped(gm_work *w, gm_tensor *t, int ndim, const int64_t *shape);
gm_tensor *gm_work_flat(gm_work *w, gm_tensor *t);       /* (lines, last dimension) */
gm_tensor *gm_work_column(gm_work *w, gm_tensor *t);     /* (elements, 1) */
gm_tensor *gm_work_contiguous(gm_work *w, gm_tensor *t); /* t itself where it is, else a copy */
gm_tensor *gm_work_compact(gm_work *w, gm_tensor *t);    /* flat and contiguous */

int64_t gm_work_lines(const gm_tensor *t); /* the product of all dimensions but the last */

/* ---- new tensors ---- */

gm_tensor *gm_work_new(gm_work *w, gm_dtype dtype, int ndim, const int64_t *shape);
gm_tensor *gm_work_like(gm_work *w, const gm_tensor *t);
gm_tensor *gm_work_full(gm_work *w, gm_dtype dtype, int ndim, const int64_t *shape, double value);
gm_tensor *gm_work_scalar(gm_work *w, gm_dtype dtype, double value);

/* ---- ops; attrs NULL: defaults ---- */

/* Into tensors that exist. */
void gm_work_into(gm_work *w, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs, int n_out,
                  gm_tensor *const *out);
void gm_work_copy(gm_work *w, gm_tensor *from, gm_tensor *to); /* converts */
void gm_work_fill(gm_work *w, gm_tensor *t, double value);
/* All outputs new, or the first one, further ones not being wanted. */
void       gm_work_run_all(gm_work *w, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs, int n_out,
                           gm_tensor **out);
gm_tensor *gm_work_run(gm_work *w, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs);
gm_tensor *gm_work_affine(gm_work *w, gm_tensor *x, double alpha, double beta);
gm_tensor *gm_work_unary(gm_work *w, gm_function f, gm_tensor *x);
gm_tensor *gm_work_binary(gm_work *w, gm_function f, gm_tensor *a, gm_tensor *b); /* comparisons too: u8 then */
gm_tensor *gm_work_where(gm_work *w, gm_tensor *condition, gm_tensor *a, gm_tensor *b);
gm_tensor *gm_work_cast(gm_work *w, gm_tensor *x, gm_dtype dtype); /* always a copy */
/* Over some dimensions, a bit each; into `to`, unless that is NULL. */
gm_tensor *gm_work_sum(gm_work *w, gm_tensor *x, uint32_t dims, bool keepdim, gm_tensor *to);
/* x summed to a shape that broadcasts to its own; x itself when it has that shape. */
gm_tensor *gm_work_sum_to(gm_work *w, gm_tensor *x, int ndim, const int64_t *shape);

#endif
