/* supervise.c - see supervise.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../../kernels/clock.h"
#include "keeper.h"
#include "supervise_state.h"

#define LAUNCHER_GRACE 2.0
#define TICK           100 /* milliseconds between looks at the clock */
#define MOST           512 /* ranks of a job: turn() has room for so many */

/* ---- the launcher ---- */

/* Looks whether it has ended, which it should not do before its ranks. */
static void look_at_launcher(gm_supervisor *job)
{
    int         status;
    const char *name = job->options.argv[0], *said;
    bool        early = job->started < job->n;
    if (!gm_process_ended(&job->launcher, &status) || job->left_at > 0) return;
    said = gm_lines_tail(&job->launcher.said);
    if (WIFSIGNALED(status))
        gm_supervisor_fail(job, -1, 6, "%s was killed by signal %d (%s)%s%s%s", name, WTERMSIG(status),
                           strsignal(WTERMSIG(status)), early ? " before all ranks had started" : "",
                           early && *said ? "; it said:\n" : "", early ? said : "");
    else if (early)
        gm_supervisor_fail(job, -1, 1, "%s could not start %d ranks (status %d)%s%s", name, job->n, WEXITSTATUS(status),
                           *said ? ":\n" : " and said nothing", said);
    else gm_supervisor_fail(job, -1, 6, "%s ended before its ranks, with status %d", name, WEXITSTATUS(status));
}

/* The same, where a rank or its keeper is gone without a word: an mpirun that dies is the cause. */
static void blame_launcher(gm_supervisor *job)
{
    gm_process_wait_if_dying(&job->launcher);
    look_at_launcher(job);
}

/* What MPI shares between ranks lies there too. */
static gm_status open_folder(gm_supervisor *job)
{
    GM_TRY(gm_job_folder_make(&job->folder, true, MPI_BYTES + (uint64_t)job->n * MPI_RANK_BYTES));
    snprintf(job->address, sizeof job->address, "%s/supervisor", job->folder.path);
    return gm_wire_listen(job->address, &job->listener);
}

/* The launcher's variables: the ones asked for, our address, and the private folder under its names. */
static gm_status start_launcher(gm_supervisor *job)
{
    size_t       n = 0, given = 0;
    const size_t room = sizeof job->folder.path + 100;
    char *const *e = job->options.environment, *const *f = job->options.folders;
    while (e && e[given]) given++;
    while (f && f[n]) n++;
    char    **list = calloc(given + n + 2, sizeof *list);
    char     *text = calloc(n + 1, room);
    gm_status st = list && text ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory to start a job");
    if (st == GM_OK) {
        for (size_t i = 0; i < given; i++) list[i] = e[i];
        for (size_t i = 0; i < n; i++) {
            list[given + i] = text + i * room;
            snprintf(list[given + i], room, "%s=%s", f[i], job->folder.path);
        }
        list[given + n] = text + n * room;
        snprintf(list[given + n], room, "%s=%s", GM_SUPERVISOR, job->address);
        st = gm_process_start(&job->launcher, job->options.argv, list, job->folder.sweeper.alive);
    }
    free(list);
    free(text);
    return st;
}

/* Six descriptors a rank: more than 1024, the usual limit, for many ranks. With too few mpirun never ends. */
static gm_status allow_many_files(int ranks)
{
    struct rlimit limit;
    rlim_t        needed = 24 + 6 * (rlim_t)ranks;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return GM_OK;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max >= needed) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%d ranks need %llu open files, the limit is %llu; raise it (ulimit -n), or start fewer",
                   ranks, (unsigned long long)needed, (unsigned long long)limit.rlim_max);
}

gm_status gm_supervisor_start(const gm_supervisor_options *options, gm_supervisor **out)
{
    gm_status st = GM_OK;
    if (options->ranks < 1 || options->ranks > MOST)
        return GM_FAIL(GM_EINVAL, "a job of %d ranks: 1 to %d can be supervised", options->ranks, MOST);
    gm_supervisor *job = calloc(1, sizeof *job);
    if (!job) return GM_FAIL(GM_ENOMEM, "no memory for a job");
    job->options = *options;
    job->listener = -1;
    job->out.fd = STDOUT_FILENO;
    job->err.fd = STDERR_FILENO;
    job->launcher.said.from = -1;
    job->n = options->ranks;
    job->began = gm_now();
    job->ranks = calloc((size_t)job->n, sizeof *job->ranks);
    job->joining = calloc(2 * (size_t)job->n, sizeof *job->joining);
    st = job->ranks && job->joining ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a job of %d ranks", job->n);
    for (int i = 0; i < job->n && st == GM_OK; i++)
        job->ranks[i] = (member){.keeper = -1, .rank = -1, .out.from = -1, .err.from = -1, .leaving = -1};
    if (st == GM_OK) st = allow_many_files(job->n);
    if (st == GM_OK) st = open_folder(job);
    if (st == GM_OK) st = start_launcher(job);
    job->busy = true;
    gm_output_unlimit(); /* of a job before this one, which failed */
    if (st == GM_OK) *out = job;
    else gm_supervisor_free(job);
    return st;
}

/* ---- one rank ---- */

static void close_connection(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Ranks wait while their reader does, as any program would. */
static void pump(gm_supervisor *job, member *m)
{
    if (!gm_outlet_is_full(&job->out)) gm_lines_pump(&m->out);
    if (!gm_outlet_is_full(&job->err)) gm_lines_pump(&m->err);
}

static void welcome(gm_supervisor *job, int rank, int fd)
{
    member *m = &job->ranks[rank];
    char    label[16] = "";
    if (job->options.interactive) snprintf(label, sizeof label, "[%d] ", rank);
    int output[2] = {gm_lines_open(&m->out, &job->out, label), gm_lines_open(&m->err, &job->err, label)};
    m->keeper = fd;
    m->started = true;
    job->started++;
    if (output[0] < 0 || output[1] < 0) gm_supervisor_fail(job, -1, 1, "cannot make a pipe: %s", strerror(errno));
    else gm_wire_welcome(fd, rank, rank * job->options.cpus, job->options.cpus, output);
    close_connection(&output[0]);
    close_connection(&output[1]);
}

static void rank_ended(gm_supervisor *job, int rank, int code, int by, const char *last)
{
    member *m = &job->ranks[rank];
    if (m->ended) return;
    m->ended = true;
    job->ended++;
    gm_lines_close(&m->out);
    gm_lines_close(&m->err);
    close_connection(&m->rank);
    if (m->finished || m->failed || m->peer || job->text) return;
    blame_launcher(job);
    if (by == SIGKILL)
        gm_supervisor_fail(job, rank, 6,
                           "killed by signal %d (%s)%s; where nobody sent it, this machine ran out of memory: %s", by,
                           strsignal(by), last, "see dmesg, lower data.batch_size, or give --limit-memory");
    else if (by) gm_supervisor_fail(job, rank, 6, "killed by signal %d (%s)%s", by, strsignal(by), last);
    else if (code) gm_supervisor_fail(job, rank, 1, "the process ended with status %d and said nothing%s", code, last);
    else gm_supervisor_fail(job, rank, 1, "the process ended with exit(0) in the middle of things%s", last);
}

static void take_answer(member *m, const gm_packet *p)
{
    char *grown = realloc(m->answer, m->n + p->n + 1);
    if (!grown) return; /* the answer stays cut */
    memcpy(grown + m->n, p->text, p->n + 1);
    m->answer = grown;
    m->n += p->n;
    m->kind = p->code;
}

static void from_rank(gm_supervisor *job, int rank, const gm_packet *p)
{
    member *m = &job->ranks[rank];
    pump(job, m); /* what it wrote before it said that */
    switch (p->word) {
    case GM_WORD_JOINED: m->joined = true; break;
    case GM_WORD_FAIL: gm_supervisor_rank_failed(job, rank, p); break;
    case GM_WORD_PEER_IS: m->peer = true; break;
    case GM_WORD_DONE:
        m->finished = true;
        if (p->code > job->status) job->status = p->code;
        break;
    case GM_WORD_ANSWER:
        gm_lines_break(&m->out);
        gm_lines_break(&m->err);
        take_answer(m, p);
        break;
    case GM_WORD_READY:
        m->ready = true;
        m->leaving = p->code;
        break;
    default: break;
    }
}

static void from_keeper(gm_supervisor *job, int rank, const gm_packet *p)
{
    if (p->word == GM_WORD_END) rank_ended(job, rank, p->code, p->extra, p->text);
    else if (p->word == GM_WORD_HALTED) job->ranks[rank].halted = p->code;
}

/* Reads all that a connection brings; at its end closes it. */
static void drain(gm_supervisor *job, int rank, bool keeper)
{
    static gm_packet p;
    member          *m = &job->ranks[rank];
    int             *fd = keeper ? &m->keeper : &m->rank, got = 0;
    while (*fd >= 0 && (got = gm_wire_receive(*fd, &p, false)) > 0) (keeper ? from_keeper : from_rank)(job, rank, &p);
    if (*fd < 0 || got == 0) return;
    close_connection(fd);
    if (keeper && !m->ended) {
        blame_launcher(job);
        if (!job->text) gm_supervisor_fail(job, rank, 6, "the keeper of this rank was killed, and the rank with it");
        rank_ended(job, rank, 1, 0, "");
    }
}

/* A connection says whose it is; the first word of anything else is not for us. A job that is over takes no more. */
static void join(gm_supervisor *job, int place)
{
    static gm_packet p;
    int              fd = job->joining[place], got = gm_wire_receive(fd, &p, false);
    if (got == 0) return;
    job->joining[place] = job->joining[--job->n_joining];
    bool known = got > 0 && p.rank >= 0 && p.rank < job->n && !job->killed && job->left_at == 0;
    if (known && p.word == GM_WORD_KEEPER && !job->ranks[p.rank].started) {
        welcome(job, p.rank, fd);
    } else if (known && p.word == GM_WORD_RANK && job->ranks[p.rank].rank < 0) {
        job->ranks[p.rank].rank = fd;
        job->ranks[p.rank].process = (pid_t)p.code;
        if (job->text && job->spread)
            gm_wire_send(fd, GM_WORD_PEER, job->first.rank, job->first.code, 0, job->text, strlen(job->text), false);
    } else {
        close(fd);
    }
}

static void accept_one(gm_supervisor *job)
{
    int fd = gm_wire_accept(job->listener);
    if (fd < 0) return;
    if (job->n_joining < 2 * job->n) job->joining[job->n_joining++] = fd;
    else close(fd);
}

/* ---- the end ---- */

static bool all_ended(gm_supervisor *job)
{
    return (job->ended == job->started && (job->text || job->ended == job->n)) || gm_supervisor_leaves_some(job);
}

/* The ranks are gone: lets the keepers go, and the launcher; true when that is gone too. */
static bool wind_up(gm_supervisor *job)
{
    double t = gm_now();
    if (job->left_at == 0) {
        job->left_at = t;
        for (int i = 0; i < job->n; i++)
            if (job->ranks[i].keeper >= 0) gm_wire_send(job->ranks[i].keeper, GM_WORD_LEAVE, i, 0, 0, NULL, 0, false);
    }
    look_at_launcher(job);
    if (t > job->left_at + 2 * LAUNCHER_GRACE) gm_process_signal(&job->launcher, SIGKILL);
    else if (t > job->left_at + LAUNCHER_GRACE) gm_process_signal(&job->launcher, SIGTERM);
    return !job->launcher.pid;
}

/* ---- waiting ---- */

static bool all_joined(const gm_supervisor *job)
{
    for (int i = 0; i < job->n; i++)
        if (!job->ranks[i].joined) return false;
    return true;
}

/* Ranks that wait for each other in MPI hear nothing, and some may not be there yet: before all have joined there is
 * nothing to save, and they are killed. */
static void ask_to_stop(gm_supervisor *job, gm_stop reason, bool now)
{
    gm_output_limit();
    if (!job->options.interactive) {
        job->asked = reason;
        if (now && job->stopped_at == 0) job->stopped_at = gm_now();
    }
    if (job->options.interactive || all_joined(job)) gm_supervisor_tell(job, GM_WORD_STOP, -1, -1, (int)reason, "");
    else gm_supervisor_end_by_stop(job);
}

void gm_supervisor_stop(gm_supervisor *job, gm_stop reason) { ask_to_stop(job, reason, reason != GM_STOP_TERMINATE); }

/* True: a stop that the caller must see to. */
static bool take_stop(gm_supervisor *job)
{
    gm_stop reason = job->deaf ? GM_STOP_NONE : gm_signals_pending();
    if (reason == GM_STOP_NONE) return false;
    if (job->options.interactive && (!job->busy || reason == GM_STOP_TERMINATE) && !job->text) return true;
    gm_signals_take();
    job->terminated += reason == GM_STOP_TERMINATE;
    bool again = reason == GM_STOP_TERMINATE ? job->terminated > 2 : job->asked == reason || job->killed;
    ask_to_stop(job, reason, reason != GM_STOP_TERMINATE || job->terminated > 1);
    if (again && !job->options.interactive) gm_supervisor_end_by_stop(job);
    return false;
}

/* Waits for anything at all, so many milliseconds, and takes it in. True: `input` can be read. */
static bool turn(gm_supervisor *job, int input, int most)
{
    enum { FILES = 5, PER_RANK = 4 };
    struct pollfd p[FILES + (2 + PER_RANK) * MOST];
    const bool    wait_out = gm_outlet_is_full(&job->out), wait_err = gm_outlet_is_full(&job->err);
    int           n = 0, joining = job->n_joining;
    p[n++] = (struct pollfd){.fd = input, .events = POLLIN};
    p[n++] = (struct pollfd){.fd = job->listener, .events = POLLIN};
    p[n++] = (struct pollfd){.fd = job->launcher.said.from, .events = POLLIN};
    p[n++] = (struct pollfd){.fd = job->out.n ? job->out.fd : -1, .events = POLLOUT};
    p[n++] = (struct pollfd){.fd = job->err.n ? job->err.fd : -1, .events = POLLOUT};
    for (int i = 0; i < joining; i++) p[n++] = (struct pollfd){.fd = job->joining[i], .events = POLLIN};
    for (int i = 0; i < job->n; i++) {
        const member *m = &job->ranks[i];
        const int     files[PER_RANK] = {m->rank, m->keeper, wait_out ? -1 : m->out.from, wait_err ? -1 : m->err.from};
        for (int k = 0; k < PER_RANK; k++) p[n++] = (struct pollfd){.fd = files[k], .events = POLLIN};
    }
    int ready = job->deaf ? poll(p, (nfds_t)n, most) : gm_signals_poll(p, n, most); /* a stop for another waits */
    gm_outlet_flush(&job->out);
    gm_outlet_flush(&job->err);
    if (ready <= 0) return false;
    if (p[1].revents) accept_one(job);
    if (p[2].revents) gm_lines_pump(&job->launcher.said);
    for (int i = joining - 1; i >= 0; i--)
        if (p[FILES + i].revents) join(job, i);
    for (int i = 0; i < job->n; i++) {
        const struct pollfd *of = &p[FILES + joining + PER_RANK * i];
        if (of[0].revents) drain(job, i, false);
        if (of[2].revents || of[3].revents) pump(job, &job->ranks[i]);
        if (of[1].revents) {
            drain(job, i, false); /* its last words come before its end */
            drain(job, i, true);
        }
    }
    gm_outlet_flush(&job->out);
    gm_outlet_flush(&job->err);
    return p[0].revents != 0;
}

/* Nothing of what ranks wrote is on its way still. */
static bool is_written(const gm_supervisor *job) { return !job->out.n && !job->err.n; }

static bool is_idle(const gm_supervisor *job)
{
    for (int i = 0; i < job->n; i++)
        if (!job->ranks[i].ready) return false;
    return true;
}

/* Milliseconds of a turn that must end at a moment; negative: there is none. */
static int turn_until(double end)
{
    double left = end < 0 ? TICK : 1e3 * (end - gm_now());
    return left < 0 ? 0 : left < TICK ? (int)left + 1 : TICK;
}

gm_status gm_supervisor_wait(gm_supervisor *job, int input, double seconds, gm_supervisor_event *event)
{
    const double end = seconds < 0 ? -1 : gm_now() + seconds;
    for (;;) {
        bool readable = turn(job, input, turn_until(end));
        if (take_stop(job)) return *event = GM_RANKS_STOPPED, GM_OK;
        look_at_launcher(job);
        gm_supervisor_check_clock(job);
        if (gm_supervisor_can_tell(job)) {
            job->told = true;
            if (job->alike == job->n && job->n > 1) job->first.rank = -1;
            return *event = GM_RANKS_FAILED, GM_OK;
        }
        if (all_ended(job) && wind_up(job) && is_written(job)) return *event = GM_RANKS_ENDED, GM_OK;
        if (job->busy && is_idle(job) && is_written(job)) {
            job->busy = false;
            return *event = GM_RANKS_IDLE, GM_OK;
        }
        if (readable) return *event = GM_RANKS_READABLE, GM_OK;
        if (end >= 0 && gm_now() >= end) return *event = GM_RANKS_QUIET, GM_OK;
    }
}

void gm_supervisor_hear(gm_supervisor *job, bool stops)
{
    if (stops && !job->text) gm_output_unlimit();
    job->deaf = !stops;
}

const char *gm_supervisor_folder(const gm_supervisor *job) { return job->folder.path; }

gm_stop gm_supervisor_asked(const gm_supervisor *job) { return job->asked; }

int gm_supervisor_status(const gm_supervisor *job) { return job->text ? job->first.code : job->status; }

/* ---- lines ---- */

gm_status gm_supervisor_send(gm_supervisor *job, int rank, int kind, const char *text, size_t n)
{
    if (n > 100000) return GM_FAIL(GM_EINVAL, "an input of %zu bytes; at most 100000 can be sent to ranks", n);
    for (int i = 0; i < job->n; i++) {
        member *m = &job->ranks[i];
        m->n = 0;
        free(m->answer);
        m->answer = NULL;
        if (rank >= 0 && i != rank) continue;
        m->ready = false;
        gm_wire_send_long(m->rank, GM_WORD_LINE, i, kind, text, n, false);
    }
    job->busy = true;
    return GM_OK;
}

const char *gm_supervisor_answer(const gm_supervisor *job, int rank, int *kind, size_t *n)
{
    if (rank < 0 || rank >= job->n) return NULL;
    *kind = job->ranks[rank].kind;
    *n = job->ranks[rank].n;
    return job->ranks[rank].answer;
}

int gm_supervisor_leaving(const gm_supervisor *job)
{
    for (int i = 0; i < job->n; i++)
        if (job->ranks[i].leaving < 0) return -1;
    return job->ranks[0].leaving;
}

int gm_supervisor_output_error(const gm_supervisor *job) { return job->out.error; }

void gm_supervisor_free(gm_supervisor *job)
{
    if (!job) return;
    for (int i = 0; i < job->n && job->ranks; i++) {
        member *m = &job->ranks[i];
        if (m->keeper >= 0 && !m->ended) gm_wire_send(m->keeper, GM_WORD_SIGNAL, i, SIGKILL, 0, NULL, 0, false);
        close_connection(&m->keeper); /* it kills the rank, if that is still there, and leaves */
        close_connection(&m->rank);
        gm_lines_close(&m->out);
        gm_lines_close(&m->err);
        free(m->answer);
    }
    gm_outlet_free(&job->out);
    gm_outlet_free(&job->err);
    gm_process_end(&job->launcher, LAUNCHER_GRACE);
    for (int i = 0; i < job->n_joining; i++) close(job->joining[i]);
    close_connection(&job->listener);
    (gm_supervisor_status(job) ? gm_job_folder_leave : gm_job_folder_remove)(&job->folder);
    free(job->ranks);
    free(job->joining);
    free(job->text);
    free(job);
}
