/* replay.h - what the files of a simulation share. Private to them.
 *
 *     program.c    roles as lists of steps with their seconds
 *     transfers.c  operations between ranks: who has begun, links in use, ends
 *     moments.c    the queue of events
 *     simulate.c   the ranks */
#ifndef GM_REPLAY_H
#define GM_REPLAY_H

#include "network.h"
#include "simulate.h"

/* ---- program.c ---- */

typedef struct gm_step_line {
    const gm_event *event; /* its op if steps are not merged; its BEGIN, also of a WAIT. NULL: merged ops */
    gm_event_kind   kind;
    double          seconds; /* of its ops; 0 of others */
    int             group;   /* number of the group, of BEGIN and WAIT; -1: the rank alone, which takes no time */
    int             number;  /* of BEGIN: earlier ones of the group, or of the channel to or from the peer */
} gm_step_line;

typedef struct gm_program {
    const gm_step *step;
    gm_step_line  *lines;
    int            n, ids;
} gm_program;

/* The groups of all roles: axes as a mask, and the places that belong to it. */
#define GM_GROUP_PLACES 64
typedef struct gm_groups {
    int      n;
    char     name[GM_SIMULATED_GROUPS][128];
    uint32_t axes[GM_SIMULATED_GROUPS];
    int      n_places[GM_SIMULATED_GROUPS]; /* 0: all */
    int      place[GM_SIMULATED_GROUPS][GM_GROUP_PLACES];
} gm_groups;

/* The members of this rank's group, in order; returns how many. *base: the first rank along its axes. */
int gm_groups_members(const gm_groups *g, const gm_mesh *mesh, int group, int rank, int *members, int *base);

/* merge: neighbouring ops become one line. */
gm_status gm_program_new(const gm_machine *m, const gm_step *step, bool merge, gm_groups *groups, gm_program *out);
void      gm_program_free(gm_program *p);

/* ---- events ---- */

/* What happens at a time: a rank goes on, or a transfer takes its next stage. Equal times: the smaller kind first, then
 * the smaller number, so that a simulation has one order. */
typedef enum gm_happening { GM_HAPPENS_STARTED, GM_HAPPENS_ENDED, GM_HAPPENS_RANK } gm_happening;

typedef struct gm_moment {
    double       time;
    gm_happening kind;
    int          at;    /* transfer or rank */
    uint64_t     stamp; /* of an end: the pace at which it was reckoned; old ones are skipped */
} gm_moment;

typedef struct gm_moments {
    gm_moment *heap;
    size_t     n, room;
    bool       failed; /* no memory */
} gm_moments;

void gm_moments_add(gm_moments *q, gm_moment m);
bool gm_moments_take(gm_moments *q, gm_moment *out); /* false: there is none */

/* ---- transfers.c ---- */

typedef struct gm_transfers gm_transfers;

gm_status gm_transfers_new(const gm_machine *m, const gm_mesh *mesh, const gm_groups *groups, gm_moments *moments,
                           gm_transfers **out);
void      gm_transfers_free(gm_transfers *t);
/* A rank begins the operation of this line. Returns its transfer. */
gm_status gm_transfers_begin(gm_transfers *t, int rank, const gm_program *p, const gm_step_line *line, double now,
                             int *transfer);
gm_status gm_transfers_happen(gm_transfers *t, const gm_moment *m, bool *over); /* over: its waiters may go on */
bool      gm_transfer_is_over(const gm_transfers *t, int transfer);
double    gm_transfer_alone(const gm_transfers *t, int transfer);    /* seconds, without others */
double    gm_transfer_ready(const gm_transfers *t, int transfer);    /* when it became ready */
void      gm_transfer_wait(gm_transfers *t, int transfer, int rank); /* the rank is to go on when it is over */
int       gm_transfer_next_waiter(gm_transfers *t, int transfer);    /* and takes it off; -1: none */
int       gm_transfers_count(const gm_transfers *t);

#endif
