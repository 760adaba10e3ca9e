/* process_test.c - a process that is dying is waited for, one that lives is not. */
#define _GNU_SOURCE
#include "../../host/job/process.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

static void *end_later(void *unused)
{
    (void)unused;
    usleep(300000);
    _exit(3);
}

/* A process whose first thread has ended is dying, as far as others see, until its last one has. */
static pid_t start_dying(void)
{
    pthread_t thread;
    pid_t     pid = fork();
    assert_true(pid >= 0);
    if (pid) return pid;
    if (pthread_create(&thread, NULL, end_later, NULL)) _exit(4);
    pthread_exit(NULL);
}

static char state_of(pid_t pid)
{
    char  path[40], text[200], state = 0;
    FILE *file;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (file && fgets(text, sizeof text, file)) sscanf(strrchr(text, ')'), ") %c", &state);
    if (file) fclose(file);
    return state;
}

void gm_test_process_dying(void **state)
{
    int        status = 0;
    gm_process p = {.pid = start_dying(), .said = {.from = -1}};
    (void)state;
    while (state_of(p.pid) != 'Z') usleep(1000);
    gm_process_wait_if_dying(&p);
    assert_true(gm_process_ended(&p, &status));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    gm_process_wait_if_dying(&p); /* gone */
    p.pid = fork();
    if (p.pid == 0) {
        pause();
        _exit(0);
    }
    gm_process_wait_if_dying(&p); /* lives: nothing to wait for */
    assert_false(gm_process_ended(&p, &status));
    gm_process_signal(&p, SIGKILL);
    assert_int_equal(waitpid(p.pid, &status, 0), p.pid);
}
