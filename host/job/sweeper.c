/* sweeper.c - see sweeper.h. */
#define _GNU_SOURCE
#include "sweeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../files/files.h"

#define SWEEPS 10    /* what the dead one started may still be ending, and making files */
#define PAUSE  50000 /* microseconds */
#define GRACE  60    /* pauses: what outlives its supervisor by so much is ended (an mpirun that hangs at its start) */

/* Reads the pipe to its end -> true; false: the supervisor has ended in order. Each process that holds the pipe open
 * has written the number of its group; where the supervisor is gone and one does not end, the group is killed. */
static bool wait_for_death(pid_t supervisor)
{
    char  said[32] = "";
    pid_t group = 0;
    for (int late = 0;;) {
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        if (poll(&p, 1, PAUSE / 1000) > 0) {
            ssize_t got = read(STDIN_FILENO, said, sizeof said - 1);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return true;
            if (!said[got - 1]) return false;
            said[got] = 0;
            group = (pid_t)atoi(said);
        } else if (getppid() != supervisor && ++late >= GRACE && group > 1) kill(-group, SIGKILL);
    }
}

/* Nothing but the pipe stays open: a reader of our output would wait for its end. */
static void sweep(int alive, const char *folder, pid_t supervisor)
{
    static const int deaf_to[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < sizeof deaf_to / sizeof *deaf_to; i++) signal(deaf_to[i], SIG_IGN);
    setpgid(0, 0);
    dup2(alive, STDIN_FILENO);
    close_range(STDIN_FILENO + 1, ~0U, 0);
    bool died = wait_for_death(supervisor);
    for (int i = 0; i < SWEEPS && died; i++) {
        gm_remove_job_folder(folder);
        usleep(PAUSE);
    }
    raise(SIGKILL); /* no exit handler of ours may run in this copy */
}

gm_status gm_sweeper_start(gm_sweeper *s, const char *folder)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return GM_FAIL(GM_EIO, "cannot make a pipe: %s", strerror(errno));
    pid_t supervisor = getpid(), process = fork();
    if (process == 0) {
        close(ends[1]);
        sweep(ends[0], folder, supervisor);
    }
    close(ends[0]);
    if (process > 0) {
        *s = (gm_sweeper){.process = process, .alive = ends[1]};
        return GM_OK;
    }
    close(ends[1]);
    return GM_FAIL(GM_EIO, "cannot start a process: %s", strerror(errno));
}

void gm_sweeper_end(gm_sweeper *s)
{
    if (!s->process) return;
    ssize_t ignored = write(s->alive, "", 1);
    (void)ignored;
    close(s->alive);
    while (waitpid(s->process, NULL, 0) < 0 && errno == EINTR) {
    }
    *s = (gm_sweeper){0};
}
