/* supervise.h - the supervisor of a job of several ranks: starts the job, follows it, and makes sure that it ends.
 *
 *     gm_supervisor *job;
 *     GM_TRY(gm_supervisor_start(&options, &job));
 *     do GM_TRY(gm_supervisor_wait(job, -1, &event));       // GM_RANKS_FAILED: tell the user gm_supervisor_first(job)
 *     while (event != GM_RANKS_ENDED);
 *     gm_supervisor_free(job);
 *
 * A launcher (mpirun) starts the ranks through keepers (keeper.h). The output of the ranks is passed on in whole lines;
 * a full pipe makes the ranks wait, and not the supervisor. The output of the launcher is not shown.
 *
 * The rank that fails first decides. The others are told, and those that still run 5 seconds later are killed; seconds
 * in which a rank waited for a core do not count (patience.h), up to 60. The launcher should end when all ranks have
 * ended. It gets SIGTERM after 2 seconds and SIGKILL after 4, because it has been seen to hang. Nothing is left behind
 * when the job is freed, but what cannot be killed: a rank that waits for a disk which does not answer. 30 seconds
 * after the kill the job ends without it, and says so. If the supervisor itself is killed, the keepers notice it and
 * kill their ranks, and a sweeper (sweeper.h) removes its folder.
 *
 * Signals come through signals.h, which the caller opens (patient). Ctrl-C stops all ranks; a second one kills them.
 * SIGTERM is passed on; a second one stops all ranks, and a third one kills them. Before all ranks have joined, any
 * stop kills them. */
#ifndef GM_SUPERVISE_H
#define GM_SUPERVISE_H

#include <stdbool.h>
#include <stddef.h>
#include "../../kernels/status.h"
#include "signals.h"

typedef struct gm_supervisor gm_supervisor;

typedef struct gm_supervisor_options {
    int          ranks;
    char *const *argv;        /* of the launcher, which starts `ranks` processes of this program; ends with NULL */
    char *const *environment; /* "NAME=value" to add for the processes; ends with NULL */
    char *const *folders;     /* variables that receive the path of the job's private folder, removed at its end */
    int          cpus;        /* CPUs of a rank: rank r is bound to the r-th group of so many; 0: ranks are not bound */
    double       timeout;     /* seconds that the job may take; 0: no limit */
    double       spent;       /* how many of these an earlier job of the same run has taken */
    bool         interactive; /* ranks wait for lines: output is labelled by rank, Ctrl-C stops a line, not the job */
} gm_supervisor_options;

typedef enum gm_supervisor_event {
    GM_RANKS_FAILED,   /* comes once: a rank has failed, and gm_supervisor_first is known */
    GM_RANKS_IDLE,     /* all ranks wait for a line: those that were sent one have answered */
    GM_RANKS_READABLE, /* the file given to gm_supervisor_wait can be read */
    GM_RANKS_STOPPED,  /* interactive: a stop came while no line ran; it is pending in signals.h */
    GM_RANKS_ENDED,    /* all processes of the job have ended */
    GM_RANKS_QUIET,    /* none of these has come in time */
} gm_supervisor_event;

typedef struct gm_supervisor_failure {
    int         rank; /* the rank that failed first; -1: the job as a whole failed */
    int         code; /* the exit status that it means */
    const char *text;
} gm_supervisor_failure;

/* Starts a job; the caller frees it. GM_EIO: no folder, socket or process could be made. */
gm_status gm_supervisor_start(const gm_supervisor_options *options, gm_supervisor **out);
void      gm_supervisor_free(gm_supervisor *job); /* ends what is left of the job; NULL is allowed */

/* Supervises the job until there is an event, at most so many seconds (negative: however long it takes). input: a file
 * descriptor to wait for, too, or -1. */
gm_status gm_supervisor_wait(gm_supervisor *job, int input, double seconds, gm_supervisor_event *event);
/* Does this job take the stops that come to this process? It does, unless told otherwise. Of several jobs one should;
 * where it changes, the output is waited for again that the end of another job had given up (output.h). */
void gm_supervisor_hear(gm_supervisor *job, bool stops);
/* The private folder of the job. */
const char *gm_supervisor_folder(const gm_supervisor *job);
/* The first failure, owned by the job; NULL: nothing has failed. */
const gm_supervisor_failure *gm_supervisor_first(const gm_supervisor *job);
/* The exit status of the job, after GM_RANKS_ENDED: that of the first failure, else the highest status of a rank. */
int gm_supervisor_status(const gm_supervisor *job);
/* The last stop that was asked for (never of an interactive job). */
gm_stop gm_supervisor_asked(const gm_supervisor *job);
/* Kills all ranks; does not wait: the job has failed, and its end comes soon. */
void gm_supervisor_kill(gm_supervisor *job);
/* Asks all ranks to stop; does not wait. */
void gm_supervisor_stop(gm_supervisor *job, gm_stop reason);

/* Sends a line of some kind to one rank or to all (-1). Those of an interactive job must be idle; others read it when
 * they are so far (lua/ganymede/train/handover.lua). GM_EINVAL: it is too long. */
gm_status gm_supervisor_send(gm_supervisor *job, int rank, int kind, const char *text, size_t n);
/* The answer of a rank to the last line; NULL: none. The job owns it until the next line. Before any line, a rank may
 * answer once: so it says what its run is like (lua/ganymede/job/attempts.lua). */
const char *gm_supervisor_answer(const gm_supervisor *job, int rank, int *kind, size_t *n);
/* The exit status with which all ranks want to end the session; -1: they do not. */
int gm_supervisor_leaving(const gm_supervisor *job);

/* 0, or the errno of a write that lost output of the ranks. */
int gm_supervisor_output_error(const gm_supervisor *job);

#endif
