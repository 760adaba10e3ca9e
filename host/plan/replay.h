/* replay.h - what the files of a simulation share. Private to them.
 *
 *     groups.c     groups of axes: members and places
 *     program.c    roles as lists of steps with their seconds
 *     channels.c   the groups and pairs of ranks between which operations go, and what these take of the links
 *     classes.c    which ranks, channels and links are alike, so that one is replayed for all
 *     transfers.c  operations between ranks: who has begun, links in use, ends
 *     cores.c      ranks that share the cores of their node
 *     moments.c    the queue of events
 *     simulate.c   the ranks */
#ifndef GM_REPLAY_H
#define GM_REPLAY_H

#include "network.h"
#include "simulate.h"

/* ---- groups.c ---- */

/* The groups of all roles: axes as a mask, and the places that belong to it. */
#define GM_GROUP_PLACES 64
typedef struct gm_groups {
    int      n;
    char     name[GM_SIMULATED_GROUPS][128];
    uint32_t axes[GM_SIMULATED_GROUPS];
    int      n_places[GM_SIMULATED_GROUPS]; /* 0: all */
    int      place[GM_SIMULATED_GROUPS][GM_GROUP_PLACES];
} gm_groups;

/* The number of the group of this name, which is added; -1: "", the rank alone. */
gm_status gm_groups_find(gm_groups *g, const gm_mesh *mesh, const char *name, int *out);
int       gm_groups_size(const gm_groups *g, const gm_mesh *mesh, int group);
/* This rank's place in its group, -1: it is no member. *base: the first rank along the axes of the group. */
int gm_groups_place(const gm_groups *g, const gm_mesh *mesh, int group, int rank, int *base);
/* The rank at a place. */
int gm_groups_rank(const gm_groups *g, const gm_mesh *mesh, int group, int base, int place);

/* ---- program.c ---- */

/* What a role's operations go through: a group, or messages to or from one other place in it. */
typedef struct gm_way {
    int              group, shift; /* shift: the other end's place less the own one, modulo the size */
    bool             message, sends;
    int              begun; /* operations in the program */
    const gm_event **calls; /* those that differ in op, root or bytes */
    int              n_calls;
} gm_way;

typedef struct gm_step_line {
    const gm_event *event; /* its op if steps are not merged; its BEGIN, also of a WAIT. NULL: merged ops */
    gm_event_kind   kind;
    double          seconds;  /* of its ops; 0 of others */
    double          queued;   /* of its ops: from the launch before them to their end, if nothing else is waited for */
    int             first, n; /* its ops: seconds of the program, from first on */
    int             way;      /* of BEGIN and WAIT */
    int             number;   /* of BEGIN: earlier ones of the way */
} gm_step_line;

typedef struct gm_program {
    const gm_step *step;
    gm_step_line  *lines;
    double        *seconds; /* of each op */
    gm_way        *ways;
    int            n, n_seconds, n_ways, ids;
} gm_program;

/* merge: neighbouring ops become one line. */
gm_status gm_program_new(const gm_machine *m, const gm_step *step, bool merge, gm_groups *groups, gm_program *out);
void      gm_program_free(gm_program *p);
/* Do both take the same times and make the same calls, to and from places at the same distance? */
bool gm_program_same(const gm_program *a, const gm_program *b);

/* ---- channels.c ---- */

/* An operation of all channels of a group: what may be taken as being alone on its links (classes.c). */
typedef struct gm_kind_of_call {
    int          group, root;
    const char  *op;
    gm_algorithm how;
    bool         crowded; /* it has met another transfer on a link, or may meet itself */
} gm_kind_of_call;

typedef struct gm_planned {
    int         kind;
    bool        used; /* AUTO and DIRECT have plans that they do not choose */
    bool        alone;
    bool        below; /* between a rank and its disk or host: nobody's time */
    gm_transfer plan;
} gm_planned;

typedef struct gm_channel {
    int group, base, from, to; /* from, to: places of a message, -1 of a collective */
    int first, n;              /* its plans */
} gm_channel;

typedef struct gm_channels {
    const gm_machine *machine;
    const gm_mesh    *mesh;
    const gm_groups  *groups;
    gm_network       *network;
    gm_channel       *list;
    gm_planned       *plans;
    gm_kind_of_call  *kinds;
    int              *start, *of; /* of[start[rank] + way] */
    int              *slots;      /* hash table of the list: place + 1 */
    int               world, n, n_plans, n_kinds, n_ways, n_slots, plans_room, kinds_room; /* n_ways: of all ranks */
} gm_channels;

/* programs: of each rank (a list of pointers). GM_EINVAL: see gm_simulate. */
gm_status gm_channels_new(const gm_machine *m, const gm_mesh *mesh, const gm_groups *groups,
                          const gm_program *const *programs, gm_channels *out);
void      gm_channels_free(gm_channels *c);
/* What this operation takes; NULL: the first member of the channel makes no such call. */
gm_planned *gm_channels_plan(const gm_channels *c, int channel, const char *op, int root, double bytes);

/* ---- classes.c ---- */

typedef struct gm_load {
    int    link, count; /* a class of links; the copies of the operation on each of them */
    double share;
} gm_load;

/* Whether copies of two plans, by classes of channels and place among their plans, use a common link. */
typedef struct gm_meeting {
    int class[2], offset[2];
    bool meet;
} gm_meeting;

/* Ranks of a class do the same at the same time, and so do the operations of channels of a class. */
typedef struct gm_classes {
    int         n_ranks, n_channels, n_links;
    bool        any_alone;                               /* transfers must be watched */
    int        *rank, *channel, *link;                   /* the class of each */
    int        *first_rank, *first_channel, *first_link; /* the first of each class */
    int        *count;                                   /* the ranks of each class */
    int        *members;                                 /* classes of ranks in a channel of each class */
    int        *first_load;                              /* of each plan of the first channels: by number of the plan */
    int        *n_loads;
    gm_load    *loads;
    int         n_all_loads, loads_room;
    gm_meeting *meetings; /* those that were asked for */
    int         n_meetings;
} gm_classes;

/* apart: a number of each rank; only ranks with equal numbers and programs can be alike. fold false: none are. */
gm_status gm_classes_new(gm_channels *c, const int *program_of, const uint64_t *apart, bool fold, gm_classes *out);
void      gm_classes_free(gm_classes *c);
gm_status gm_classes_meet(const gm_channels *c, gm_classes *k, const int *class, const int *offset, bool *meet);

/* ---- events ---- */

/* What happens at a time: a rank goes on, a transfer takes its next stage, an op ends on a node of shared cores, or a
 * rank that was woken there runs. Equal times: the smaller kind first, then the smaller number, so that a simulation
 * has one order. */
typedef enum gm_happening {
    GM_HAPPENS_STARTED,
    GM_HAPPENS_ENDED,
    GM_HAPPENS_RANK,
    GM_HAPPENS_COMPUTED,
    GM_HAPPENS_WOKEN
} gm_happening;

typedef struct gm_moment {
    double       time;
    gm_happening kind;
    int          at;    /* transfer, class of ranks or node */
    uint64_t     stamp; /* of an end: of the pace at which it was reckoned; of a waking; old ones are skipped */
} gm_moment;

typedef struct gm_moments {
    gm_moment *heap;
    size_t     n, room;
    bool       failed; /* no memory */
} gm_moments;

void gm_moments_add(gm_moments *q, gm_moment m);
bool gm_moments_take(gm_moments *q, gm_moment *out); /* false: there is none */

/* ---- cores.c ---- */

typedef struct gm_cores gm_cores;

/* The cores of all nodes, for ranks that are not folded. */
gm_status gm_cores_new(const gm_machine *m, int world, gm_moments *moments, gm_cores **out);
void      gm_cores_free(gm_cores *c);
/* A rank computes from now on; seconds: what it takes on cores of its own. */
void gm_cores_begin(gm_cores *c, int rank, double seconds, double now);
/* The rank whose op has ended, or that runs now; -1: none. */
int gm_cores_happen(gm_cores *c, const gm_moment *m);
/* A rank that slept is woken: it is late (gm_machine.wake). */
void gm_cores_wake(gm_cores *c, int rank, double now);
/* Has a core of this rank's node become free for one that was woken while all were busy? The rank that was woken first
 * and runs now; -1: none. */
int gm_cores_take_woken(gm_cores *c, int rank);

/* ---- transfers.c ---- */

typedef struct gm_transfers gm_transfers;

gm_status gm_transfers_new(gm_channels *channels, gm_classes *classes, gm_moments *moments, gm_transfers **out);
void      gm_transfers_free(gm_transfers *t);
/* A class of ranks begins the operation of this line. Returns its transfer. */
gm_status gm_transfers_begin(gm_transfers *t, int ranks, const gm_program *p, const gm_step_line *line, double now,
                             int *transfer);
gm_status gm_transfers_happen(gm_transfers *t, const gm_moment *m, bool *over); /* over: its waiters may go on */
bool      gm_transfer_is_over(const gm_transfers *t, int transfer);
/* The seconds that a member spends on moving the bytes; 0 where ranks do not move them. */
double  gm_transfer_cost(const gm_transfers *t, int transfer);
double  gm_transfer_ready(const gm_transfers *t, int transfer);     /* when its latency began */
void    gm_transfer_wait(gm_transfers *t, int transfer, int ranks); /* the class is to go on when it is over */
int     gm_transfer_next_waiter(gm_transfers *t, int transfer);     /* and takes it off; -1: none */
int64_t gm_transfers_count(const gm_transfers *t);                  /* of all ranks */
/* Has a transfer that counts as alone met another? Then its kind is crowded, and the replay must begin again. */
bool gm_transfers_met(const gm_transfers *t);

#endif
