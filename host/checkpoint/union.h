/* union.h - lists the tensors of a whole pipeline from the lists of its stages.
 *
 * A stage holds the parameters and moments of its own layers, and tied weights, which another stage holds, too. Each
 * rank receives the lists of the stages from the ranks that share its other coordinates. All ranks make the same union
 * of them. The trap: the ranks of one stage must list the same pieces; gm_plan_digest tells whether they did. */
#ifndef GM_CHECKPOINT_UNION_H
#define GM_CHECKPOINT_UNION_H

#include "checkpoint.h"

typedef struct gm_union {
    gm_piece *pieces; /* in order of their names, each once; their names are borrowed from `lists` or from `mine` */
    int       n;
    bool     *held; /* (n, stages); the field `stages` of each piece points into it */
} gm_union;

/* Makes the union; the caller frees it. lists: as in gm_save_as; NULL: every rank holds `mine`, the n pieces of this
 * rank. GM_EINVAL: a stage uses a name twice, two stages use a name for different tensors, or a list is missing,
 * damaged or from another mesh. GM_ENOMEM. */
gm_status gm_union_make(const gm_mesh *mesh, int rank, const gm_stage_list *lists, const gm_piece *mine, int n,
                        gm_union *out);
void      gm_union_free(gm_union *s); /* a zeroed one is allowed */

#endif
