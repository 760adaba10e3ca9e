/* sweeper.c - see sweeper.h. */
#define _GNU_SOURCE
#include "sweeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../files/files.h"

#define SWEEPS 400   /* at most: what the dead one started may still be ending, and making files */
#define LEAST  10    /* after a death: ranks may know a folder by another way than their environment */
#define PAUSE  50000 /* microseconds */
#define GRACE  60    /* pauses: what outlives its supervisor by so much is ended (an mpirun that hangs at its start) */
#define LEFT   40    /* milliseconds that a supervisor waits for its sweeper, which goes on alone afterwards */

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

/* Has a process that we may read this text in its environment? What a job starts knows its folder by a variable. */
static bool is_known(const char *folder)
{
    static char    text[1 << 20]; /* longer environments are cut */
    struct dirent *e;
    bool           known = false;
    DIR           *d = opendir("/proc");
    while (d && !known && (e = readdir(d))) {
        char path[300];
        int  fd = -1;
        if (e->d_name[0] < '1' || e->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "/proc/%s/environ", e->d_name);
        size_t  n = 0;
        ssize_t got = 0;
        if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) continue;
        while (n < sizeof text && (got = read(fd, text + n, sizeof text - n)) > 0) n += (size_t)got;
        close(fd);
        known = memmem(text, n, folder, strlen(folder)) != NULL;
    }
    if (d) closedir(d);
    return known;
}

/* Removes the folder, and again as long as somebody is there who may make it anew: Open MPI makes missing folders. */
static void remove_until_forgotten(const char *folder, int least)
{
    for (int i = 1; i <= SWEEPS; i++) {
        bool known = is_known(folder);
        gm_remove_job_folder(folder);
        if (!known && i >= least) return;
        usleep(PAUSE);
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
    if (wait_for_death(supervisor)) remove_until_forgotten(folder, getppid() == supervisor ? 1 : LEAST);
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

void gm_sweeper_leave(gm_sweeper *s)
{
    if (!s->process) return;
    close(s->alive);
    for (int i = 0; i < LEFT && waitpid(s->process, NULL, WNOHANG) == 0; i++) usleep(1000);
    *s = (gm_sweeper){0};
}
