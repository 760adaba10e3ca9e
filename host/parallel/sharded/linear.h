/* linear.h - what the algorithms of gm_sharded_linear share. Private to this folder.
 *
 * linear.c chooses the algorithm. linear1d.c multiplies whole rows of x by rows of w (column and gather kinds).
 * linear2d.c is SUMMA (summa.h). linear3d.c gathers, multiplies and scatters. The inputs of a node are x, w, b. Its
 * slots are those of the op `linear`: slot 0 keeps x, slot 1 keeps w, slot GM_SLOT_OUTPUT + 1 the pre-activation. */
#ifndef GM_SHARDED_LINEAR_H
#define GM_SHARDED_LINEAR_H

#include "../../autograd/gradients.h"
#include "rows.h"
#include "summa.h"

/* Layout and global shape of a value. In backward the values themselves are gone. */
typedef struct gm_side {
    const gm_layout *layout;
    int              ndim;
    const int64_t   *shape;
} gm_side;

static inline gm_side gm_side_of(const gm_value *v) { return (gm_side){&v->layout, v->ndim, v->shape}; }

typedef enum gm_linear_kind {
    GM_LINEAR_LOCAL,  /* the layout rule of linear suffices */
    GM_LINEAR_COLUMN, /* an axis cuts w's rows and not x's rows: local, except for the sum of dx over this axis */
    GM_LINEAR_GATHER, /* `row` cuts w's rows and is the innermost cut of x's rows: x's rows are gathered */
    GM_LINEAR_AB,     /* x (.. row .., col), w (col, row): blocks of both travel */
    GM_LINEAR_ABT,    /* x (.. row .., col), w (row, col): blocks of w travel, y is summed */
    GM_LINEAR_3D      /* x (.. row innermost .., col), w (row, col); `third` cuts one dimension of w further */
} gm_linear_kind;

typedef struct gm_linear_plan {
    gm_linear_kind kind;
    int            row, col, third; /* axes of the mesh */
    int            dim;             /* the dimension of x that `row` cuts */
    int            third_dim;       /* the dimension of w that `third` cuts */
} gm_linear_plan;

/* One call of the layer. It owns its values. */
typedef struct gm_linear_call {
    gm_rank       *rank;
    gm_work       *work;
    gm_linear_plan plan;
    gm_value      *x, *w, *b; /* b NULL: no bias; gm_linear_bias lays b out like the last dimension of y */
    gm_function    f;
    gm_value      *kept[2]; /* what the node keeps in place of x and w; NULL: x or w itself */
    gm_value      *y, *pre; /* pre NULL: not wanted */
} gm_linear_call;

gm_linear_plan gm_plan_linear(const gm_side *x, const gm_side *w);
/* In backward: gives the plan of a node, and the sides of its inputs. */
gm_linear_plan gm_plan_of(gm_backward *b, gm_side *x, gm_side *w);

/* The algorithms, on c->work. They compute c->y with bias and activation, and c->pre if gm_linear_results made it. */
void gm_linear_1d(gm_linear_call *c);
void gm_linear_2d(gm_linear_call *c);
void gm_linear_3d(gm_linear_call *c);
void gm_linear_1d_rule(gm_backward *b);
void gm_linear_2d_rule(gm_backward *b);
void gm_linear_3d_rule(gm_backward *b);

/* ---- the three products of a layer on q x q ranks: linear2d.c ---- */

typedef struct gm_grid {
    gm_work   *work;
    bool       both; /* x and w travel: GM_LINEAR_AB; else w travels and y is summed */
    int        q;
    gm_group  *along_row, *along_column;         /* the ranks of this one's row, and column */
    gm_span    rows, out, in, each_out, each_in; /* this rank's blocks, and those of a step */
    gm_tensor *x, *w, *y;                        /* blocks, contiguous; y or its gradient */

    gm_summa_product of_y, of_x, of_w; /* y (+)= x w, dx (+)= dy w, dw (+)= dy x; NULL: of matrices */
    const void      *context;          /* of these */
} gm_grid;

/* of_out: the dimension of w, 0 or 1, that is outputs; the other one is inputs. The caller sets rows and the blocks. */
gm_grid gm_grid_open(gm_work *work, const gm_linear_plan *p, const gm_side *w, int of_out);
void    gm_grid_forward(const gm_grid *k);
void    gm_grid_gradient_of_x(const gm_grid *k, gm_tensor *dx, bool accumulate);
/* Over this column's rows: over other ranks with other rows it is partial. */
void gm_grid_gradient_of_w(const gm_grid *k, gm_tensor *dw, bool accumulate);

/* Makes the blocks c->y and, if an activation needs it in backward, c->pre. Their values are undefined. */
gm_status gm_linear_results(gm_linear_call *c);
/* Lays c->b out like the last dimension of c->y. If y is a sum over ranks, one rank keeps the bias and the others have
 * zeros, so that it counts once. Collective if b is cut more finely than y. */
gm_status gm_linear_bias(gm_linear_call *c);
/* The tensor that receives the product: pre or y. */
gm_tensor *gm_linear_product(const gm_linear_call *c);
/* Does what follows the product: adds the bias in place, and applies the activation to make y. */
void gm_linear_finish(gm_linear_call *c);

/* Gives the size of this rank's block along dimension d without padding (*logical) and with it (*block). */
void gm_side_extent(const gm_rank *r, const gm_side *s, int d, int64_t *logical, int64_t *block);
/* Makes a tensor of this shape, but `members` times as long along dim. */
gm_tensor *gm_linear_grown(gm_work *w, gm_dtype dtype, int ndim, const int64_t *shape, int dim, int members);

#endif
