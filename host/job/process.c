/* process.c - see process.h. */
#define _GNU_SOURCE
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void become(char *const *argv, char *const *environment, int output, int kept)
{
    sigset_t none;
    int      nothing = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    dup2(nothing, STDIN_FILENO);
    if (output >= 0) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
    }
    if (kept >= 0) {
        fcntl(kept, F_SETFD, 0);
        dprintf(kept, "%d\n", (int)getpid()); /* for the sweeper: whom to end if this process outlives its parent */
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (char *const *e = environment; e && *e; e++) putenv(*e);
    execvp(argv[0], argv);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerror(errno));
    raise(SIGKILL); /* no exit handler of ours may run in this copy */
}

static gm_status start(gm_process *p, char *const *argv, char *const *environment, int output, int kept)
{
    fflush(NULL);
    p->pid = fork();
    if (p->pid == 0) become(argv, environment, output, kept);
    if (p->pid > 0) return GM_OK;
    p->pid = 0;
    return GM_FAIL(GM_EIO, "cannot start a process: %s", strerror(errno));
}

gm_status gm_process_start(gm_process *p, char *const *argv, char *const *environment, int kept)
{
    int output = gm_lines_open(&p->said, NULL, "");
    if (output < 0) return GM_FAIL(GM_EIO, "cannot make a pipe: %s", strerror(errno));
    gm_status status = start(p, argv, environment, output, kept);
    close(output);
    return status;
}

gm_status gm_process_start_into(gm_process *p, char *const *argv, int output)
{
    p->said = (gm_lines){.from = -1};
    return start(p, argv, NULL, output, -1);
}

bool gm_process_ended(gm_process *p, int *status)
{
    if (!p->pid || waitpid(p->pid, status, WNOHANG) != p->pid) return false;
    p->pid = 0;
    gm_lines_pump(&p->said);
    return true;
}

void gm_process_wait_if_dying(const gm_process *p)
{
    enum { EXITING = 0x4 }; /* PF_EXITING of the kernel: set before any file is closed */
    char      path[32], text[512];
    siginfo_t ended;
    unsigned  flags = 0;
    if (!p->pid) return;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)p->pid);
    FILE       *file = fopen(path, "re");
    const char *after = file && fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL; /* of its name */
    if (file) fclose(file);
    if (!after || sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1 || !(flags & EXITING)) return;
    while (waitid(P_PID, (id_t)p->pid, &ended, WEXITED | WNOWAIT) && errno == EINTR) {
    }
}

void gm_process_signal(const gm_process *p, int signal_number)
{
    if (p->pid) kill(p->pid, signal_number);
}

void gm_process_end(gm_process *p, double grace)
{
    int status;
    gm_process_signal(p, SIGTERM);
    for (double waited = 0; p->pid && !gm_process_ended(p, &status); waited += 0.01) {
        if (waited > grace) gm_process_signal(p, SIGKILL);
        usleep(10000);
    }
    gm_lines_close(&p->said);
}
