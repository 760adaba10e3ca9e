/* keeper.c - see keeper.h. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "link.h"

static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT};

typedef struct keeper {
    int      fd, signals; /* to the supervisor; a signalfd */
    int      rank;
    pid_t    child; /* 0: gone */
    gm_note *note;  /* what it did last */
    bool     gone;  /* the supervisor is, or has told us to leave */
} keeper;

/* The rank's place in the job, as the launcher that started us counts; -1: it does not say. */
static int rank_in_environment(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text && *text) return atoi(text);
    }
    return -1;
}

/* "; it was in or behind step 6; its last operation: all_reduce (call 17 of data)". The note counts from 0. */
static void describe_last(const gm_note *note, char *text, size_t size)
{
    size_t n = 0;
    if (note->step >= 0) n = (size_t)snprintf(text, size, "; it was in or behind step %lld", (long long)note->step + 1);
    if (note->call)
        snprintf(text + n, size - n, "; its last operation: %s (call %llu of %.31s)", note->call,
                 (unsigned long long)note->number + 1, note->group);
}

static void report_end(keeper *k, int status)
{
    int  code = WIFEXITED(status) ? WEXITSTATUS(status) : -1, by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    char last[160] = "";
    describe_last(k->note, last, sizeof last);
    k->child = 0;
    gm_wire_send(k->fd, GM_WORD_END, k->rank, code, by, last, strlen(last), true);
}

static void look_after_child(keeper *k)
{
    int   status;
    pid_t pid;
    while (k->child && (pid = waitpid(k->child, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        if (WIFSTOPPED(status)) gm_wire_send(k->fd, GM_WORD_HALTED, k->rank, WSTOPSIG(status), 0, NULL, 0, false);
        else if (WIFCONTINUED(status)) gm_wire_send(k->fd, GM_WORD_HALTED, k->rank, 0, 0, NULL, 0, false);
        else report_end(k, status);
    }
}

static void take_signal(keeper *k)
{
    struct signalfd_siginfo s;
    while (read(k->signals, &s, sizeof s) == sizeof s) {
        if (s.ssi_signo == SIGCHLD) look_after_child(k);
        else if (k->child) kill(k->child, (int)s.ssi_signo);
    }
}

static void take_word(keeper *k)
{
    static gm_packet p;
    int              got = gm_wire_receive(k->fd, &p, false);
    if (got > 0 && p.word == GM_WORD_SIGNAL && k->child) kill(k->child, p.code);
    k->gone = got < 0 || (got > 0 && p.word == GM_WORD_LEAVE);
}

/* Until the supervisor lets us go; a rank does not outlive that. */
static void keep(keeper *k)
{
    while (!k->gone) {
        struct pollfd p[2] = {{.fd = k->fd, .events = POLLIN}, {.fd = k->signals, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR) break;
        if (p[1].revents) take_signal(k);
        if (p[0].revents) take_word(k);
    }
    if (k->child) kill(k->child, SIGKILL);
    while (k->child && waitpid(k->child, NULL, 0) < 0 && errno == EINTR) {
    }
}

static void bind_to_cpus(int first, int count)
{
    cpu_set_t allowed, chosen;
    if (count <= 0 || sched_getaffinity(0, sizeof allowed, &allowed)) return;
    CPU_ZERO(&chosen);
    for (int cpu = 0, place = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        if (place >= first && place < first + count) CPU_SET(cpu, &chosen);
        place++;
    }
    if (CPU_COUNT(&chosen) == count) sched_setaffinity(0, sizeof chosen, &chosen);
}

/* The child: its parent's death is its own, output goes to the supervisor, and it reads nothing. */
static gm_status become_rank(const keeper *k, pid_t parent, const gm_packet *welcome, const int output[2],
                             const char *path)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) raise(SIGKILL); /* it died before that */
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(output[0], STDOUT_FILENO);
    dup2(output[1], STDERR_FILENO);
    close(nothing);
    close(k->fd);
    close(k->signals);
    bind_to_cpus(welcome->code, welcome->extra);
    gm_status st = gm_link_open(path, k->rank, k->note);
    unsetenv(GM_SUPERVISOR); /* what the rank starts is no rank */
    return st;
}

static void open_signals(keeper *k, sigset_t *before)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) sigaddset(&set, passed_on[i]);
    sigprocmask(SIG_BLOCK, &set, before);
    k->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

gm_status gm_keeper_split(bool *kept)
{
    static gm_packet welcome;
    const char      *path = getenv(GM_SUPERVISOR);
    keeper           k = {.rank = rank_in_environment(), .signals = -1};
    int              output[2];
    sigset_t         mask;
    *kept = false;
    if (!path) return GM_OK;
    if (k.rank < 0)
        return GM_FAIL(GM_ECOMM, GM_SUPERVISOR " is set, but no launcher has numbered this process; unset it");
    GM_TRY(gm_wire_connect(path, &k.fd));
    gm_wire_send(k.fd, GM_WORD_KEEPER, k.rank, (int)getpid(), 0, NULL, 0, true);
    if (!gm_wire_receive_welcome(k.fd, &welcome, output)) return GM_FAIL(GM_ECOMM, "the supervisor is gone");
    k.note = mmap(NULL, sizeof *k.note, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (k.note == MAP_FAILED) return GM_FAIL(GM_ENOMEM, "no memory to share with a rank: %s", strerror(errno));
    k.note->step = -1;
    open_signals(&k, &mask);
    pid_t parent = getpid();
    k.child = fork();
    if (k.child == 0) {
        sigprocmask(SIG_SETMASK, &mask, NULL);
        return become_rank(&k, parent, &welcome, output, path);
    }
    close(output[0]);
    close(output[1]);
    if (k.child < 0) return GM_FAIL(GM_ECOMM, "cannot start a process: %s", strerror(errno));
    *kept = true;
    keep(&k);
    return GM_OK;
}
