/* linear.h - what the algorithms of gm_sharded_linear share. Private to this folder.
 *
 * linear.c plans and dispatches; linear1d.c multiplies whole rows by rows of w (column and gather kinds), linear2d.c is
 * SUMMA, linear3d.c gathers, multiplies and scatters. Nodes keep: slot 0 x, 1 w, GM_SLOT_OUTPUT + 1 the pre-activation
 * (as the op `linear` does); inputs are x, w, b. */
#ifndef GM_SHARDED_LINEAR_H
#define GM_SHARDED_LINEAR_H

#include "../../autograd/gradients.h"
#include "rows.h"
#include "summa.h"

/* How a value lies, known without it: in backward the values are gone. */
typedef struct gm_side {
    const gm_layout *layout;
    int              ndim;
    const int64_t   *shape;
} gm_side;

static inline gm_side gm_side_of(const gm_value *v) { return (gm_side){&v->layout, v->ndim, v->shape}; }

typedef enum gm_linear_kind {
    GM_LINEAR_LOCAL,  /* nothing that the layout rule of linear does not do */
    GM_LINEAR_COLUMN, /* w's rows cut, x's rows not by the same axis: local, but for the sum of dx */
    GM_LINEAR_GATHER, /* w's rows cut by `row`, which cuts rows of x innermost: these are gathered */
    GM_LINEAR_AB,     /* x (.. row .., col), w (col, row): both travel */
    GM_LINEAR_ABT,    /* x (.. row .., col), w (row, col): w travels, y is summed */
    GM_LINEAR_3D      /* x (.. row innermost .., col), w (row, col), one of them cut by third inside */
} gm_linear_kind;

typedef struct gm_linear_plan {
    gm_linear_kind kind;
    int            row, col, third; /* axes of the mesh */
    int            dim;             /* of x: what row cuts */
    int            third_dim;       /* of w: what third cuts */
} gm_linear_plan;

/* One layer under way. Values are owned. */
typedef struct gm_linear_call {
    gm_rank       *rank;
    gm_work       *work;
    gm_linear_plan plan;
    gm_value      *x, *w, *b; /* b NULL: none; laid out as the last dimension of y once gm_linear_bias was called */
    gm_function    f;
    gm_value      *kept[2]; /* of x and w: what the node keeps when it is not x or w themselves */
    gm_value      *y, *pre; /* pre NULL: not wanted */
} gm_linear_call;

gm_linear_plan gm_plan_linear(const gm_side *x, const gm_side *w);
/* The same of the inputs of a node, in backward. */
gm_linear_plan gm_plan_of(gm_backward *b, gm_side *x, gm_side *w);

/* The algorithms, on c->work: they make c->y, and c->pre where gm_linear_results does, with bias and activation. */
void gm_linear_1d(gm_linear_call *c);
void gm_linear_2d(gm_linear_call *c);
void gm_linear_3d(gm_linear_call *c);
void gm_linear_1d_rule(gm_backward *b);
void gm_linear_2d_rule(gm_backward *b);
void gm_linear_3d_rule(gm_backward *b);

/* c->y, and c->pre where an activation will need it in backward: blocks, undefined contents. */
gm_status gm_linear_results(gm_linear_call *c);
/* c->b as the last dimension of c->y is laid out, counted once where y is a sum. Collective where b is cut deeper. */
gm_status gm_linear_bias(gm_linear_call *c);
/* Where the product goes: pre or y. */
gm_tensor *gm_linear_product(const gm_linear_call *c);
/* What follows the product: the bias is added in place, the activation makes y. */
void gm_linear_finish(gm_linear_call *c);

/* This rank's share of dimension d that is not padding, and the size of blocks. */
void gm_side_extent(const gm_rank *r, const gm_side *s, int d, int64_t *logical, int64_t *block);
/* A tensor of this shape, but `members` times as long along dim. */
gm_tensor *gm_linear_grown(gm_work *w, gm_dtype dtype, int ndim, const int64_t *shape, int dim, int members);

#endif
