/* machines.h - how the members of a group lie on machines, for collectives that cross the network between them once
 * for all members of a machine (over_machines.c). Private to comm/.
 *
 * Machines are numbered in the order of their first members; members of a machine are in the order of their places. */
#ifndef GM_COMM_MACHINES_H
#define GM_COMM_MACHINES_H

#include "state.h"

typedef struct gm_machines {
    int  n, own;  /* machines; that of this member */
    int *of;      /* by place: the machine */
    int *index;   /* by place: which of its machine's members */
    int *first;   /* by machine, and one more: where its members begin in `place` */
    int *place;   /* places, machine by machine */
    int  relayed; /* places elsewhere that this member relays for */
} gm_machines;

/* NULL: the group's operations go straight from member to member, because its machines are not known, it is on one
 * machine, or no machine has two of its members; or there was no memory to look. The same on all members but for the
 * last, which fails. */
gm_status gm_machines_of(gm_group *g, const gm_machines **out);
void      gm_machines_free(gm_machines *m); /* NULL is allowed */

/* These ranks, this one among them, read each other's memory; all of them must say so. n 0: none do. With nothing under
 * way. GM_ENOMEM. */
gm_status gm_comm_know_readers(gm_comm *c, const int *rank, int n);
bool      gm_members_read(const gm_group *g); /* do all members? The same on all of them */

static inline int gm_machine_size(const gm_machines *m, int machine)
{
    return m->first[machine + 1] - m->first[machine];
}
/* The member of `machine` that hands on what place sends there, or gathers what is sent to place from there. */
static inline int gm_machine_relay(const gm_machines *m, int machine, int place)
{
    return m->place[m->first[machine] + m->index[place] % gm_machine_size(m, machine)];
}

#endif
