/* supervise_clock.c - the time limits of a job: of its start, its whole time, and the end of its ranks. See
 * supervise.h. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/clock.h"
#include "supervise_state.h"

#define START_SECONDS 60.0  /* until all ranks are there */
#define GRACE_SECONDS 5.0   /* from the first failure to the end of the rest */
#define STOP_SECONDS  10.0  /* from Ctrl-C or a time limit to the end */
#define MORE_SECONDS  60.0  /* for ranks that get no core */
#define START_MOST    300.0 /* where they get none while they start */
#define LOOK_SECONDS  0.5   /* between looks at the cores that ranks get */

/* What mpirun and the processes that it has started take of the cores. */
static bool core_use_of_launcher(const gm_supervisor *job, gm_core_use *sum)
{
    char path[64], text[8192] = "";
    if (!job->launcher.pid || !gm_core_use_of(job->launcher.pid, sum)) return false;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)job->launcher.pid, (int)job->launcher.pid);
    FILE *f = fopen(path, "re");
    if (f && !fgets(text, sizeof text, f)) text[0] = 0;
    if (f) fclose(f);
    for (char *at = text, *end; *at; at = end) {
        long pid = strtol(at, &end, 10);
        if (end == at) break;
        gm_core_use_add((pid_t)pid, sum);
    }
    return true;
}

static void check_start(gm_supervisor *job, double t)
{
    gm_core_use use;
    if (job->started == job->n || job->text || t < job->starting.looked + LOOK_SECONDS) return;
    gm_patience_add(&job->starting, t, core_use_of_launcher(job, &use) ? &use : NULL);
    if (job->starting.had < START_SECONDS && t < job->began + START_MOST) return;
    gm_supervisor_fail(job, -1, 1, "only %d of %d ranks started within %.0f seconds; %s says:\n%s", job->started,
                       job->n, t - job->began, job->options.argv[0], gm_lines_tail(&job->launcher.said));
}

static bool is_there(const member *m) { return m->started && !m->ended; }

/* Nobody is left but ranks that were stopped (SIGSTOP), who hear nothing. */
static bool all_halted(const gm_supervisor *job)
{
    for (int i = 0; i < job->n; i++)
        if (is_there(&job->ranks[i]) && !job->ranks[i].halted) return false;
    return true;
}

/* Counts the time that ranks have had since they should end, and since the job has failed. */
static void look_at_cores(gm_supervisor *job, double t)
{
    gm_core_use use;
    for (int i = 0; i < job->n; i++) {
        member *m = &job->ranks[i];
        bool    known = is_there(m) && m->process && gm_core_use_of(m->process, &use);
        gm_patience_add(&m->patience, t, known ? &use : NULL);
        if (job->text && !job->failure_seen) m->had_before = m->patience.had;
    }
    job->failure_seen = job->text != NULL;
    job->looked_at = t;
}

static double had(const member *m, bool since_failure) { return m->patience.had - (since_failure ? m->had_before : 0); }

/* The first rank that has not had so many seconds yet; -1: there is none. */
static int find_starved(const gm_supervisor *job, double limit, bool since_failure)
{
    for (int i = 0; i < job->n; i++)
        if (is_there(&job->ranks[i]) && had(&job->ranks[i], since_failure) <= limit) return i;
    return -1;
}

static void say_starved(gm_supervisor *job, int rank, double time, double limit)
{
    char line[300];
    if (job->starved_said || limit - time < LOOK_SECONDS) return;
    job->starved_said = true;
    int n = snprintf(
        line, sizeof line,
        "ganymede: warning: this machine is busy, or was stopped: rank %d, which should end, has had a core "
        "for less than %.1f of %g s, and gets up to %g s more\n",
        rank, time + 0.1, limit, MORE_SECONDS);
    gm_outlet_put(&job->err, line, (size_t)n);
}

/* Have all ranks had their time since a moment? One that got no core has had none, but gets it for a while only. */
static bool is_over(gm_supervisor *job, double t, double since, double limit, bool since_failure)
{
    if (t <= since + limit) return false;
    int rank = find_starved(job, limit, since_failure);
    if (rank < 0 || t > since + limit + MORE_SECONDS) return true;
    say_starved(job, rank, had(&job->ranks[rank], since_failure), limit);
    return false;
}

static bool is_overdue(gm_supervisor *job, double t)
{
    const bool stops = job->stopped_at > 0, failed = job->text && job->first.code != 75;
    if (!stops && !failed) return false;
    const bool late = (stops && t > job->stopped_at + STOP_SECONDS) || (failed && t > job->failed_at + GRACE_SECONDS);
    if (late || job->failure_seen != (job->text != NULL) || t > job->looked_at + LOOK_SECONDS) look_at_cores(job, t);
    return (stops && is_over(job, t, job->stopped_at, STOP_SECONDS, false)) ||
           (failed && is_over(job, t, job->failed_at, GRACE_SECONDS, true));
}

void gm_supervisor_check_clock(gm_supervisor *job)
{
    double t = gm_now();
    check_start(job, t);
    gm_supervisor_spread(job);
    const double limit = job->options.timeout, spent = job->options.spent;
    if (limit > 0 && t > job->began + limit - spent && job->asked == GM_STOP_NONE && !job->text)
        gm_supervisor_stop(job, GM_STOP_DEADLINE);
    bool halted = job->spread && job->text && all_halted(job);
    if (!job->killed && (halted || is_overdue(job, t))) gm_supervisor_end_by_stop(job);
}
