/* supervise.h - the supervisor of a job of several ranks: starts the job, follows it, and makes sure that it ends.
 *
 *     gm_supervisor *job;
 *     GM_TRY(gm_supervisor_start(&options, &job));
 *     do GM_TRY(gm_supervisor_wait(job, -1, &event));       // GM_RANKS_FAILED: tell the user gm_supervisor_first(job)
 *     while (event != GM_RANKS_ENDED);
 *     gm_supervisor_free(job);
 *
 * Ranks are started by a launcher (mpirun) through keepers (keeper.h). What they write is passed on in whole lines;
 * what the launcher writes is shown to nobody. The first rank that fails, in time, decides: the others are told, and
 * what still runs 5 seconds later is killed. The launcher should end when all ranks have; it gets SIGTERM after 2
 * seconds and SIGKILL after 4, since it has been seen to hang. Nothing is left behind when the job is freed; when the
 * supervisor itself is killed, keepers notice and kill their ranks, and a sweeper removes its folder. Signals come
 * through signals.h, which the caller opens (patient): Ctrl-C stops all ranks, a second one kills them; SIGTERM is
 * passed on, a second one stops, a third one kills; before all ranks have joined, any stop kills. What ranks write is
 * passed on without waiting for who reads it: a full pipe makes the ranks wait, and not the supervisor. */
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
    char *const *environment; /* "NAME=value" to add for them; ends with NULL */
    char *const *folders;     /* names of variables that are to hold the job's private folder, removed at its end */
    int          cpus;        /* bind rank r to the r-th so many of the CPUs that are allowed; 0: bind nothing */
    double       timeout;     /* seconds that the job may take; 0: any */
    bool         interactive; /* ranks wait for lines: output is labelled by rank, Ctrl-C stops a line, not the job */
} gm_supervisor_options;

typedef enum gm_supervisor_event {
    GM_RANKS_FAILED,   /* once: gm_supervisor_first is known */
    GM_RANKS_IDLE,     /* interactive: all that were sent a line have answered and wait for another */
    GM_RANKS_READABLE, /* the file given to gm_supervisor_wait can be read */
    GM_RANKS_STOPPED,  /* interactive: a stop came while no line ran; it is pending in signals.h */
    GM_RANKS_ENDED,    /* nothing of it is left */
} gm_supervisor_event;

typedef struct gm_supervisor_failure {
    int         rank; /* -1: of the job as a whole; else the rank that failed first */
    int         code; /* the exit status it means */
    const char *text;
} gm_supervisor_failure;

/* GM_EIO: no folder, socket or process could be made. */
gm_status gm_supervisor_start(const gm_supervisor_options *options, gm_supervisor **out);
void      gm_supervisor_free(gm_supervisor *job); /* ends what is left of it; NULL is allowed */

/* Works until there is something to tell. input: a file to wait for too, or -1. */
gm_status gm_supervisor_wait(gm_supervisor *job, int input, gm_supervisor_event *event);
/* NULL: none has failed. */
const gm_supervisor_failure *gm_supervisor_first(const gm_supervisor *job);
/* The exit status of the whole, after GM_RANKS_ENDED: of the first failure, else the highest that a rank ended with. */
int gm_supervisor_status(const gm_supervisor *job);
/* Asks all ranks to stop; does not wait. */
void gm_supervisor_stop(gm_supervisor *job, gm_stop reason);

/* Interactive jobs: a line of some kind for one rank or all (-1); they must be idle. GM_EINVAL: too long. */
gm_status gm_supervisor_send(gm_supervisor *job, int rank, int kind, const char *text, size_t n);
/* What a rank answered to the last line; NULL: nothing. Belongs to the job, until the next line. */
const char *gm_supervisor_answer(const gm_supervisor *job, int rank, int *kind, size_t *n);
/* The status with which all ranks want the session to end; -1: they do not. */
int gm_supervisor_leaving(const gm_supervisor *job);

/* Why not all that ranks printed is where it should be: an errno; 0: it is. */
int gm_supervisor_output_error(const gm_supervisor *job);

#endif
