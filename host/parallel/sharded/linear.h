/* linear.h - what the algorithms of gm_sharded_linear share. Private to this folder. */
#ifndef GM_SHARDED_LINEAR_H
#define GM_SHARDED_LINEAR_H

#include "sharded.h"
#include "summa.h"

/* How a value lies, known without it: in backward the values are gone. */
typedef struct gm_side {
    const gm_layout *layout;
    int              ndim;
    const int64_t   *shape;
} gm_side;

typedef enum gm_linear_kind {
    GM_LINEAR_LOCAL, /* nothing that the layout rule of linear does not do */
    GM_LINEAR_AB,    /* x (.. row .., col), w (col, row): both travel */
    GM_LINEAR_ABT,   /* x (.. row .., col), w (row, col): w travels, y is summed */
    GM_LINEAR_3D     /* x (.. row innermost .., col), w (row, col.third): gathered, multiplied, scattered */
} gm_linear_kind;

typedef struct gm_linear_plan {
    gm_linear_kind kind;
    int            row, col, third; /* axes of the mesh */
    int            dim;             /* of x: what row cuts */
} gm_linear_plan;

gm_linear_plan gm_plan_linear(const gm_side *x, const gm_side *w);
/* The same of the inputs of a node, in backward. */
gm_linear_plan gm_plan_of(gm_backward *b, gm_side *x, gm_side *w);

/* y's block and its value, undefined contents; y is cut as the plan says. */
gm_status gm_linear_result(gm_rank *r, const gm_linear_plan *plan, gm_value *x, gm_value *w, gm_value **y);
/* t itself (retained) where it is contiguous, else a copy; and the same as (rows, last dimension). */
gm_status gm_block_contiguous(gm_rank *r, gm_tensor *t, gm_tensor **out);
gm_status gm_block_rows(gm_rank *r, gm_tensor *t, gm_tensor **rows);
/* This rank's share of dimension d that is not padding, and the size of blocks. */
void gm_side_extent(const gm_rank *r, const gm_side *s, int d, int64_t *logical, int64_t *block);

gm_status gm_linear_3d(gm_rank *r, const gm_linear_plan *plan, gm_value *x, gm_value *w, bool keep_gathered,
                       gm_value **y);

#endif
