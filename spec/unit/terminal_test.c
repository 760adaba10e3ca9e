/* terminal_test.c - a prompt is on the screen only when keys are read as keys: what a user types as soon as it shows
 * must mean what it says. */
#define _GNU_SOURCE
#include "../../host/job/terminal.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "unit.h"

static int  keyboard = -1; /* the other end of the pseudo-terminal */
static bool prompt_was_early, typed;

/* What is written on a terminal reaches its other end a little later. */
static bool shows_something(void)
{
    struct pollfd screen = {.fd = keyboard, .events = POLLIN};
    return poll(&screen, 1, 200) > 0;
}

/* Stands before the C library's for the whole program, libedit included: it must be seen outside. */
__attribute__((visibility("default"))) int tcsetattr(int fd, int when, const struct termios *mode)
{
    static int (*next)(int, int, const struct termios *);
    bool first = keyboard >= 0 && !typed && !(mode->c_lflag & ICANON);
    int  status;
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "tcsetattr");
    if (first) prompt_was_early = shows_something();
    status = next(fd, when, mode);
    if (first) typed = write(keyboard, "\4", 1) == 1;
    return status;
}

/* A process whose standard input and output are a terminal -> its status: 0 when Ctrl-D ended the line in time. */
static int read_on_terminal(void)
{
    gm_terminal *t;
    gm_input     what;
    const char  *line, *name;
    int          screen;
    keyboard = posix_openpt(O_RDWR | O_NOCTTY);
    if (keyboard < 0 || grantpt(keyboard) || unlockpt(keyboard) || !(name = ptsname(keyboard))) return 2;
    screen = open(name, O_RDWR | O_NOCTTY);
    if (screen < 0 || dup2(screen, STDIN_FILENO) < 0 || dup2(screen, STDOUT_FILENO) < 0) return 3;
    setenv("TERM", "xterm", 1);
    if (gm_terminal_open(NULL, NULL, NULL, &t) != GM_OK || !gm_terminal_is_interactive(t)) return 4;
    if (gm_terminal_read(t, "> ", &what, &line) != GM_OK || what != GM_INPUT_END || !typed) return 5;
    gm_terminal_close(t);
    return prompt_was_early ? 6 : 0;
}

void gm_test_terminal_prompt(void **state)
{
    int   status = 0;
    pid_t pid;
    (void)state;
    fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(30); /* a Ctrl-D that is lost leaves it waiting */
        _exit(read_on_terminal());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : 0, 0);
    assert_int_equal(WEXITSTATUS(status), 0);
}
