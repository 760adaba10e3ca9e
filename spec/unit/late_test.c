/* late_test.c - the last seconds of what does not stop: a process after its time limit, and ranks that were killed.
 * Time in which nobody had a core, because all were stopped, is not theirs. No example waits for these seconds. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../host/job/signals.h"
#include "../../host/job/supervise_state.h"
#include "../../kernels/clock.h"
#include "unit.h"

static int told;

static void tell(void *context)
{
    (void)context;
    told++;
}

/* The exit status of a process that hears so many alarms after its time limit; 20: it goes on, and was told once. */
static int after_alarms(int n)
{
    int   status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        if (close(STDERR_FILENO) || gm_signals_open(tell, NULL, false) != GM_OK) _exit(30);
        gm_signals_arm(true);
        for (int i = 0; i <= n; i++) raise(SIGALRM);
        alarm(0);
        _exit(told == 1 && gm_signals_pending() == GM_STOP_DEADLINE ? 20 : 31);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A process that was stopped for a minute hears one alarm when it goes on. */
void gm_test_late_alone(void **state)
{
    (void)state;
    assert_int_equal(after_alarms(0), 20);
    assert_int_equal(after_alarms(1), 20);
    assert_int_equal(after_alarms(10), 20);
    assert_int_equal(after_alarms(11), 7);
}

void gm_test_late_killed(void **state)
{
    (void)state;
    member               ranks[1] = {{.started = true, .process = getpid(), .keeper = -1, .rank = -1}};
    struct gm_supervisor job = {.ranks = ranks, .n = 1, .err = {.fd = -1}};
    assert_false(gm_supervisor_leaves_some(&job));
    job.killed = true;
    assert_false(gm_supervisor_leaves_some(&job)); /* the first look */
    job.watched.looked = job.dying.looked = gm_now() - 1000;
    assert_false(gm_supervisor_leaves_some(&job)); /* we were stopped, and maybe the ranks with us */
    assert_true(job.watched.had <= GM_PATIENCE_MOST && job.dying.had <= GM_PATIENCE_MOST);
    job.watched.had = 80; /* the rank got no core */
    assert_false(gm_supervisor_leaves_some(&job));
    assert_int_equal(job.err.n, 0);
    job.watched.had = 90;
    assert_true(gm_supervisor_leaves_some(&job));
    assert_non_null(strstr(job.err.held, "rank 0 was killed 90 s ago and has not ended"));
    job.leaves_some = false;
    job.watched.had = job.dying.had = 30;
    assert_true(gm_supervisor_leaves_some(&job));
    gm_outlet_free(&job.err);
}
