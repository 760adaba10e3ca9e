/* supervise_state.h - what supervise.c, supervise_clock.c and supervise_failure.c share. Private to them. */
#ifndef GM_SUPERVISE_STATE_H
#define GM_SUPERVISE_STATE_H

#include "folder.h"
#include "lines.h"
#include "patience.h"
#include "process.h"
#include "supervise.h"
#include "wire.h"

#define AGREE_SECONDS  0.3 /* the time in which other ranks may fail in the same way, before the failure is told */
#define MPI_BYTES      (14 << 20) /* in the folder of a job: 8.4 MB that stay, and what MPI wants to see besides */
#define MPI_RANK_BYTES (96 << 10) /* and for each rank; 72 KB were seen */
#define LOST_SECONDS   30.0       /* that killed ranks have had to end: one may free much memory at its end */
#define LOST_MORE      60.0       /* for killed ranks that get no core */

typedef struct member {
    int         keeper, rank; /* connections to both processes; -1: none */
    gm_lines    out, err;
    bool        started, ended;
    bool        joined;     /* it has joined the job, and hears stops */
    bool        finished;   /* it said that it ends in good order */
    bool        failed;     /* it said why it ends */
    bool        peer;       /* it ends because another rank has failed */
    bool        ready;      /* it waits for a line */
    pid_t       process;    /* 0: not known yet */
    int         halted;     /* the signal that stopped it; 0: it runs */
    int         leaving;    /* the exit status with which it wants to end the session; -1: it does not */
    gm_patience patience;   /* the time that it has had since it should end */
    double      had_before; /* what it had had of that when the job failed */
    char       *answer;     /* to the last line */
    size_t      n;
    int         kind;
} member;

struct gm_supervisor {
    gm_supervisor_options options;
    gm_job_folder         folder;
    char                  address[112];
    int                   listener;
    gm_process            launcher;
    member               *ranks;
    gm_outlet             out, err; /* our standard files, which receive the output of the ranks */
    int                   n, started, ended;
    double                began, failed_at, stopped_at, left_at;
    gm_patience           dying, watched;                   /* the time that killed ranks, and we, have had since */
    gm_patience           starting;                         /* the time that its ranks have had to start */
    double                looked_at;                        /* at the cores that ranks get */
    bool                  failure_seen;                     /* by that look */
    bool                  starved_said;                     /* that a rank gets no core */
    gm_stop               asked;                            /* the stop that was asked for */
    bool                  told, spread, killed, busy, deaf; /* deaf: stops are another job's */
    bool                  leaves_some;                      /* ranks that were killed and did not end */
    int                   terminated;                       /* how many SIGTERMs have come */
    gm_supervisor_failure first;
    char                 *text;    /* of the first failure; NULL: none */
    int                   status;  /* the highest exit status of a rank that ended in good order */
    int                   alike;   /* the number of ranks that reported the first failure */
    int                  *joining; /* connections that have not said who they are */
    int                   n_joining;
};

/* ---- supervise_clock.c ---- */

/* Looks whether a time limit has passed, and ends what should have ended. */
void gm_supervisor_check_clock(gm_supervisor *job);

/* ---- supervise_failure.c ---- */

/* Sends a word to all ranks except one (-1: to all). */
void gm_supervisor_tell(gm_supervisor *job, gm_word word, int except, int rank, int code, const char *text);
/* Marks the job as failed, unless it has failed already. rank -1: the job as a whole has failed. */
void gm_supervisor_fail(gm_supervisor *job, int rank, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Marks the job as failed because of the stop that was asked for, unless it has failed already, and kills its ranks. */
void gm_supervisor_end_by_stop(gm_supervisor *job);
void gm_supervisor_rank_failed(gm_supervisor *job, int rank, const gm_packet *said);
/* Tells the first failure to the other ranks, after AGREE_SECONDS, in which they may fail in the same way. */
void gm_supervisor_spread(gm_supervisor *job);
/* Tells whether the failure can be shown to the user: no other rank is about to report the same. */
bool gm_supervisor_can_tell(const gm_supervisor *job);
/* Have ranks that were killed had LOST_SECONDS to end, and have not? It says which, once. Time in which this process
 * was stopped does not count, and time in which they had no core counts up to LOST_MORE. */
bool gm_supervisor_leaves_some(gm_supervisor *job);

#endif
