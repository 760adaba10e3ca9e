/* union.h - the tensors of a whole pipeline, from the lists of its stages.
 *
 * A stage holds the parameters and moments of its own layers, and shared ones (tied weights) that another stage holds
 * too. Each rank gets the lists of the stages from the ranks that share its other coordinates, and makes the same
 * union of them. The trap: ranks of one stage must list the same pieces; gm_plan_digest tells whether they did. */
#ifndef GM_CHECKPOINT_UNION_H
#define GM_CHECKPOINT_UNION_H

#include "checkpoint.h"

typedef struct gm_union {
    gm_piece *pieces; /* in order of their names, each once; they borrow names from the lists, or from `mine` */
    int       n;
    bool     *held; /* (n, stages): what the pieces' `stages` point at */
} gm_union;

/* lists as in gm_save_as; NULL: every rank holds `mine`, the rank's own n pieces. GM_EINVAL: a name that is used twice
 * on a stage, or for different tensors on two stages; a list that is none, or of another mesh. GM_ENOMEM. */
gm_status gm_union_make(const gm_mesh *mesh, int rank, const gm_stage_list *lists, const gm_piece *mine, int n,
                        gm_union *out);
void      gm_union_free(gm_union *s); /* a zeroed one is allowed */

#endif
