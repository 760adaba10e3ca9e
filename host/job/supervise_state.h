/* supervise_state.h - what supervise.c and supervise_failure.c share. Private to them. */
#ifndef GM_SUPERVISE_STATE_H
#define GM_SUPERVISE_STATE_H

#include "lines.h"
#include "process.h"
#include "supervise.h"
#include "sweeper.h"
#include "wire.h"

#define AGREE_SECONDS 0.3 /* for the others to fail in the same way, before the first is told */

typedef struct member {
    int      keeper, rank; /* connections; -1: none */
    gm_lines out, err;
    bool     started, ended;
    bool     joined;   /* it is one of the job, and hears stops */
    bool     finished; /* it said that it ends in good order */
    bool     failed;   /* it said why it ends */
    bool     peer;     /* it ends because another did */
    bool     ready;
    pid_t    process; /* 0: it has not said so */
    int      halted;  /* the signal that stopped it; 0: it runs */
    int      leaving;
    char    *answer;
    size_t   n;
    int      kind;
} member;

struct gm_supervisor {
    gm_supervisor_options options;
    char                  folder[96], address[112];
    int                   listener;
    gm_sweeper            sweeper; /* of the folder */
    gm_process            launcher;
    member               *ranks;
    gm_outlet             out, err; /* what ranks write, on its way to ours */
    int                   n, started, ended;
    double                began, failed_at, stopped_at, left_at;
    gm_stop               asked; /* stop that was asked for */
    bool                  told, spread, killed, busy;
    int                   terminated; /* how many times */
    gm_supervisor_failure first;
    char                 *text;    /* of the first failure; NULL: none */
    int                   status;  /* the highest that a rank ended with in good order */
    int                   alike;   /* ranks that said the same */
    int                  *joining; /* connections that have not said who they are */
    int                   n_joining;
};

double gm_supervisor_clock(void); /* seconds, from any beginning */

/* ---- supervise_failure.c ---- */

/* Says a word to all ranks but one (-1: to all). */
void gm_supervisor_tell(gm_supervisor *job, gm_word word, int except, int rank, int code, const char *text);
void gm_supervisor_kill(gm_supervisor *job);
/* The job fails, unless it has already; rank -1: as a whole. */
void gm_supervisor_fail(gm_supervisor *job, int rank, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* It fails because of the stop that was asked for, unless it has already, and its ranks are killed. */
void gm_supervisor_end_by_stop(gm_supervisor *job);
void gm_supervisor_rank_failed(gm_supervisor *job, int rank, const gm_packet *said);
/* The first failure reaches the others, but not before they had the time to fail in the same way by themselves. */
void gm_supervisor_spread(gm_supervisor *job);
/* It can be told to the user: nobody is about to say the same. */
bool gm_supervisor_can_tell(const gm_supervisor *job);

#endif
