/* simulate.h - the replay of a step on all ranks of a machine, as discrete events.
 *
 * Every rank replays the record of its role (step_file.h). Its clock advances by the seconds of its ops (machine.h) and
 * of what it begins. An operation between ranks is ready when its last member has begun it. It then takes its latency
 * and moves its bytes (network.h) while ranks compute, and a rank that waits for it goes on when it is over. Transfers
 * that use one link at the same time share it: each has the link's bandwidth divided by their number, and goes at the
 * pace of its slowest link. Where the host moves the bytes (gm_machine.host_moves), a transfer starts when it is ready
 * and a member waits, takes its time alone, and each waiting member spends this time; nothing overlaps. A send is not
 * waited for. Where operations of a group go in order (gm_machine.in_order), one of a group starts when it is ready and
 * the one before it is over, and so does a message between two ranks, each way by itself. Where a host launches what a
 * device does (gm_machine.host), it works ahead of the device and never waits for it. So ranks stand still where the
 * host is behind, and a step takes at least what its launches take.
 *
 * Where the ranks of a node use more cores than it has (gm_machine.cores), those that compute at the same time share
 * them evenly. Moving bytes is such work, too (host_moves), and each message of a rank takes its latency. A rank that
 * waits for another uses no core. It sleeps, and when its operation has come so far that it can go on, it runs a while
 * later and spends some time on waking (gm_machine.wake; cores.c says when).
 *
 * All ranks begin at 0. The step ends when the last rank ends. The result is a function of the arguments alone.
 *
 * Ranks that do the same at the same time are folded: one of them is replayed (classes.c says why this is exact). The
 * places of messages in a record are read as distances from the rank of the record, so one record serves a whole ring.
 * Ranks of different roles, paces or places on the network are replayed apart, and with jitter or shared cores every
 * rank is. */
#ifndef GM_SIMULATE_H
#define GM_SIMULATE_H

#include "machine.h"
#include "step_file.h"

#define GM_SIMULATED_GROUPS 24

/* What ranks of a class do. */
typedef struct gm_simulated_rank {
    int    count, first;                 /* the ranks of the class, and the first of them */
    double end;                          /* of its step */
    double busy;                         /* in ops (with waiting for a core), and in beginning operations */
    double exposed[GM_SIMULATED_GROUPS]; /* waiting for operations, by group; host_moves: and moving bytes */
    double launching;                    /* waiting for the host to launch what is next */
} gm_simulated_rank;

typedef enum gm_span_lane { GM_SPAN_COMPUTE, GM_SPAN_WAIT, GM_SPAN_TRANSFER } gm_span_lane;

typedef struct gm_span {
    int          rank; /* the first of its class */
    gm_span_lane lane;
    const char  *name, *about, *path; /* of the records, "" for none */
    double       begin, end;
} gm_span;

typedef struct gm_simulated {
    double             seconds;
    int                world, n_groups, n_classes;
    char               group[GM_SIMULATED_GROUPS][128]; /* names, in order of first use */
    int               *class_of;                        /* of each rank */
    gm_simulated_rank *classes;
    gm_span           *spans; /* as asked for, of the classes of these ranks */
    int64_t            n_spans;
    int64_t            n_transfers; /* of all ranks */
} gm_simulated;

typedef struct gm_simulation {
    const gm_machine     *machine;
    int                   n_roles;
    const gm_step *const *roles;    /* with one mesh */
    const int            *role;     /* of each rank of the mesh */
    int                   spans;    /* of the first so many ranks; 0: none */
    const double         *slower;   /* of each rank: how many times its ops take longer; NULL: 1 */
    double                jitter;   /* standard deviation of the logarithm of an op's time; its mean stays */
    uint64_t              seed;     /* of the jitter: a function of seed, rank and the place of the op alone */
    bool                  unfolded; /* replay every rank */
    bool                  recorded; /* the host launches the whole step at once */
} gm_simulation;

/* GM_EINVAL: roles of different meshes; a group that is no set of axes; ranks whose operations differ, or that wait for
 * each other for ever (the message says who waits for what); what the machine has no rates or links for. Free with
 * gm_simulated_free. The records must outlive the spans. */
gm_status gm_simulate(const gm_simulation *s, gm_simulated *out);
void      gm_simulated_free(gm_simulated *s);

#endif
