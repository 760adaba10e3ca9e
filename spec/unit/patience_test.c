/* patience_test.c - the time that a process had: made-up looks, and processes that sleep, or share one core. */
#define _GNU_SOURCE
#include "../../host/job/patience.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kernels/clock.h"
#include "unit.h"

static void look(gm_patience *p, double now, double ran, double waited, bool wants)
{
    gm_core_use use = {.ran = ran, .waited = waited, .wants = wants};
    gm_patience_add(p, now, &use);
}

#define HAD(p, seconds) assert_true((p).had > (seconds)-1e-9 && (p).had < (seconds) + 1e-9)

void gm_test_patience_looks(void **state)
{
    (void)state;
    gm_patience p = {0};
    look(&p, 100, 7, 3, true);
    HAD(p, 0);
    look(&p, 100.5, 7.5, 3, true); /* it had a core */
    HAD(p, 0.5);
    look(&p, 101, 7.5, 3, false); /* it slept */
    HAD(p, 1);
    look(&p, 101.5, 7.6, 3.4, false); /* it waited for a core for 0.4 s */
    HAD(p, 1.1);
    look(&p, 102, 7.6, 3.4, true); /* it waits, */
    look(&p, 102.5, 7.6, 3.4, true);
    HAD(p, 1.1);
    look(&p, 103, 7.7, 4.8, true); /* which the kernel counts at its end: 1 s of it was known */
    HAD(p, 1.2);
    look(&p, 103.5, 8.2, 4.8, true);
    HAD(p, 1.7);
    look(&p, 104, 6.0, 1.5, false); /* a thread has ended, and its numbers with it */
    HAD(p, 2.2);
    look(&p, 104.5, 6.1, 9.5, true); /* eight threads waited at once */
    HAD(p, 2.2);
    look(&p, 204.5, 6.1, 9.5, false); /* who looks was stopped */
    HAD(p, 2.2 + GM_PATIENCE_MOST);
    gm_patience_add(&p, 205, NULL);
    HAD(p, 2.7 + GM_PATIENCE_MOST);
}

/* A child on one core: it computes, or sleeps. */
static pid_t start(bool computes)
{
    cpu_set_t one, all;
    pid_t     parent = getpid(), pid = fork();
    if (pid) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    while (!computes) pause();
    for (;;) continue;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* Looks at a process for a second -> the part of the time between looks that was its own. */
static double part_of(pid_t pid)
{
    gm_patience p = {0};
    gm_core_use use;
    double      begun = gm_now(), counted = 0, last = begun;
    do {
        double now = gm_now();
        counted += now - last < GM_PATIENCE_MOST ? now - last : GM_PATIENCE_MOST;
        last = now;
        assert_true(gm_core_use_of(pid, &use));
        gm_patience_add(&p, now, &use);
        usleep(50000);
    } while (gm_now() < begun + 1);
    return p.had / counted;
}

static void wait_for_sleep(pid_t pid)
{
    gm_core_use use;
    do {
        usleep(1000);
        assert_true(gm_core_use_of(pid, &use));
    } while (use.wants);
}

void gm_test_patience_cores(void **state)
{
    enum { OTHERS = 7 };
    (void)state;
    gm_core_use use;
    if (!gm_core_use_of(getpid(), &use)) skip(); /* a kernel that does not count */
    pid_t sleeps = start(false), others[OTHERS];
    wait_for_sleep(sleeps);
    double slept = part_of(sleeps);
    end(sleeps);
    assert_true(slept > 0.8);
    assert_false(gm_core_use_of(sleeps, &use));
    for (int i = 0; i < OTHERS; i++) others[i] = start(true);
    pid_t  computes = start(true);
    double computed = part_of(computes);
    end(computes);
    for (int i = 0; i < OTHERS; i++) end(others[i]);
    assert_true(computed < 0.5); /* an eighth of a core */
}
