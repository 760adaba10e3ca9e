/* sweeper.c - see sweeper.h. */
#define _GNU_SOURCE
#include "sweeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "files.h"

#define SWEEPS 10    /* what the dead one started may still be ending, and making files */
#define PAUSE  50000 /* microseconds */

/* Nothing but the pipe stays open: a reader of our output would wait for its end. */
static void sweep(int alive, const char *folder)
{
    static const int deaf_to[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    char             word;
    ssize_t          got;
    for (size_t i = 0; i < sizeof deaf_to / sizeof *deaf_to; i++) signal(deaf_to[i], SIG_IGN);
    setpgid(0, 0);
    dup2(alive, STDIN_FILENO);
    close_range(STDIN_FILENO + 1, ~0U, 0);
    do got = read(STDIN_FILENO, &word, 1);
    while (got < 0 && errno == EINTR);
    for (int i = 0; i < SWEEPS && got == 0; i++) {
        gm_remove_job_folder(folder);
        usleep(PAUSE);
    }
    raise(SIGKILL); /* no exit handler of ours may run in this copy */
}

gm_status gm_sweeper_start(gm_sweeper *s, const char *folder)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return GM_FAIL(GM_EIO, "cannot make a pipe: %s", strerror(errno));
    pid_t process = fork();
    if (process == 0) {
        close(ends[1]);
        sweep(ends[0], folder);
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
