/* plan.h - decides which rank writes which box of a checkpoint.
 *
 * The plan is a pure function of mesh, names, dtypes, shapes, layouts and the stages that hold a tensor. Every rank
 * computes it for all ranks, so they agree without communication. Each distinct box is written once. Boxes are assigned
 * in order of size, largest first; of the ranks that hold a box, the one with the fewest bytes so far writes it (the
 * lowest rank among equals). Padding is never written; a block that is all padding is no box. A tensor without elements
 * is one empty box.
 * The trap: all ranks must list the same pieces, also those that other stages hold (union.h makes such a list);
 * gm_plan_digest tells whether they did. */
#ifndef GM_CHECKPOINT_PLAN_H
#define GM_CHECKPOINT_PLAN_H

#include "checkpoint.h"

typedef struct gm_planned {
    bool      mine;   /* true: this rank writes the box */
    gm_extent extent; /* the box of this rank's block, without padding, if the rank holds one */
} gm_planned;

/* Fills planned[i] for pieces[i]. pieces must be in order of their names, each once. GM_EINVAL: a layout does not fit
 * the mesh or is partial; a piece names stages although the mesh has none, or although the stages cut the tensor; a
 * rank that holds a piece lacks its tensor. GM_ESHAPE: a tensor is not a block of its layout. GM_ENOMEM. */
gm_status gm_plan(const gm_mesh *mesh, int rank, const gm_piece *pieces, int n, gm_planned *planned);
/* A number that is equal on two ranks if their pieces and meshes are. */
uint32_t gm_plan_digest(const gm_mesh *mesh, const gm_piece *pieces, int n);
/* The box of the global tensor that the rank at these coordinates holds. */
gm_extent gm_plan_extent(const gm_mesh *mesh, const gm_piece *piece, const int *coordinate);

#endif
