/* over_machines.h - the steps of collectives of a group on several machines (machines.h). Private to comm/.
 *
 * gm_machines_of has found that p->group is on several machines, and that one of them has several members. */
#ifndef GM_COMM_OVER_MACHINES_H
#define GM_COMM_OVER_MACHINES_H

#include "blocks.h"
#include "machines.h"

/* Steps 0 .. rounds of the operation. */
#define GM_ALL_GATHER_ROUNDS     2
#define GM_ALL_REDUCE_ROUNDS     4
#define GM_REDUCE_SCATTER_ROUNDS 2
#define GM_BROADCAST_ROUNDS      2
gm_status gm_step_all_gather_over_machines(gm_pending *p, int round);
gm_status gm_step_all_reduce_over_machines(gm_pending *p, int round);
gm_status gm_step_reduce_scatter_over_machines(gm_pending *p, int round);
gm_status gm_step_broadcast_over_machines(gm_pending *p, int round);

/* Is such a sum made over machines? False: members send their terms straight to each other. */
bool gm_sums_over_machines(const gm_tensor *t, gm_reduction op);
/* The scratch memory that a sum needs; largest: bytes of the largest slice. */
size_t gm_sum_scratch_over_machines(const gm_group *g, size_t largest);

#endif
