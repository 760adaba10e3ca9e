/* link.c - see link.h. */
#define _GNU_SOURCE
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../comm/launched.h"
#include "signals.h"
#include "where.h"

static struct {
    int                   fd, rank;
    gm_note              *note;
    char                  folder[112];
    bool                  open, ended; /* ended: the supervisor knows how */
    volatile sig_atomic_t failed;      /* peer is filled */
    volatile sig_atomic_t early;       /* a stop that came when nobody handled stops */
    gm_link_peer          peer;
} self;

static void stop(gm_stop reason)
{
    if (!gm_signals_raise(reason)) self.early = (sig_atomic_t)reason;
}

static void take_peer(const gm_packet *p)
{
    if (self.failed) return;
    size_t n = p->n < sizeof self.peer.text - 1 ? p->n : sizeof self.peer.text - 1;
    self.peer.rank = p->rank;
    self.peer.code = p->code;
    memcpy(self.peer.text, p->text, n);
    self.peer.text[n] = 0;
    self.failed = 1;
    stop(GM_STOP_PEER);
}

static bool is_urgent(gm_word word) { return word == GM_WORD_PEER || word == GM_WORD_STOP; }

/* Takes in what may not wait; a line to run stays where it is. Runs in the handler too. */
static void take_urgent(void)
{
    static gm_packet p; /* one thread, and the handler does not interrupt itself */
    while (is_urgent(gm_wire_peek(self.fd)) && gm_wire_receive(self.fd, &p, false) > 0) {
        if (p.word == GM_WORD_PEER) take_peer(&p);
        else stop((gm_stop)p.code);
    }
}

static void on_word(int signal_number)
{
    int error = errno;
    (void)signal_number;
    take_urgent();
    errno = error;
}

/* Runs fn with the handler kept out. */
static void without_handler(void (*fn)(void))
{
    sigset_t block, old;
    sigemptyset(&block);
    sigaddset(&block, SIGIO);
    sigprocmask(SIG_BLOCK, &block, &old);
    fn();
    sigprocmask(SIG_SETMASK, &old, NULL);
}

gm_status gm_link_open(const char *path, int rank, gm_note *note)
{
    struct sigaction  action = {.sa_handler = on_word, .sa_flags = SA_RESTART};
    struct f_owner_ex owner = {.type = F_OWNER_TID, .pid = gettid()};
    if (self.open) return GM_FAIL(GM_EINVAL, "this process is linked to a supervisor already");
    GM_TRY(gm_wire_connect(path, &self.fd));
    self.rank = rank;
    self.note = note;
    const char *slash = strrchr(path, '/');
    if (slash) snprintf(self.folder, sizeof self.folder, "%.*s", (int)(slash - path), path);
    self.open = true;
    gm_where_open(rank);
    sigemptyset(&action.sa_mask);
    sigaction(SIGIO, &action, NULL);
    if (fcntl(self.fd, F_SETOWN_EX, &owner) || fcntl(self.fd, F_SETFL, fcntl(self.fd, F_GETFL) | O_ASYNC))
        return GM_FAIL(GM_EIO, "cannot listen to the supervisor: %s", strerror(errno));
    if (!gm_wire_send(self.fd, GM_WORD_RANK, rank, (int)getpid(), 0, NULL, 0, true))
        return GM_FAIL(GM_EIO, "the supervisor is gone");
    return GM_OK;
}

gm_note    *gm_link_note(void) { return self.note; }
const char *gm_link_folder(void) { return self.folder[0] ? self.folder : NULL; }

void gm_link_joined(void)
{
    if (self.open) gm_wire_send(self.fd, GM_WORD_JOINED, self.rank, 0, 0, NULL, 0, true);
}

int gm_link_rank(void) { return self.open ? self.rank : -1; }

static bool end(gm_word word, int code, bool agreed, const char *text, size_t n)
{
    if (!self.open) return false;
    if (self.ended) return true;
    self.ended = true;
    return gm_wire_send(self.fd, word, self.rank, code, agreed, text, n, true);
}

bool gm_link_fail(int code, const char *text, size_t n, bool agreed)
{
    return end(GM_WORD_FAIL, code, agreed, text, n);
}
bool gm_link_fail_of_peer(int code) { return end(GM_WORD_PEER_IS, code, false, NULL, 0); }
bool gm_link_done(int code) { return end(GM_WORD_DONE, code, false, NULL, 0); }

static bool begins_with_one(const char *text, const char *const *prefixes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strncmp(text, prefixes[i], strlen(prefixes[i]))) return true;
    return false;
}

static bool is_launchers(const char *variable, bool plain)
{
    static const char *const prefixes[] = {"OMPI_", "PMIX_", "PMI_", "SLURM_STEP_NUM_TASKS="};
    static const char *const torch[] = {"RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE="};
    return begins_with_one(variable, prefixes, sizeof prefixes / sizeof *prefixes) ||
           (plain && begins_with_one(variable, torch, sizeof torch / sizeof *torch));
}

void gm_link_forget_launcher(void)
{
    char        name[256];
    gm_launched l;
    bool        plain = gm_launched_find(&l) == GM_OK && l.over_tcp;
    for (char **e = environ; *e;) {
        size_t n = strcspn(*e, "=");
        bool   forget = is_launchers(*e, plain) && n < sizeof name;
        if (!forget) {
            e++;
            continue;
        }
        memcpy(name, *e, n);
        name[n] = 0;
        unsetenv(name); /* what follows moves up to e */
    }
}

const gm_link_peer *gm_link_failure(void) { return self.open && self.failed ? &self.peer : NULL; }

void gm_link_poll(void)
{
    if (!self.open) return;
    without_handler(take_urgent);
    if (self.failed) gm_signals_raise(GM_STOP_PEER);
    else if (self.early) gm_signals_raise((gm_stop)self.early);
    self.early = 0;
}

int gm_link_read(gm_packet *p)
{
    if (!self.open) return -1;
    for (;;) {
        int ready = gm_signals_wait_readable(self.fd);
        if (ready <= 0) return ready;
        without_handler(take_urgent);
        if (gm_signals_pending()) return 0;
        if (is_urgent(gm_wire_peek(self.fd))) continue;
        int got = gm_wire_receive(self.fd, p, false);
        if (got) without_handler(take_urgent); /* it stood behind this word, and its signal has come already */
        if (got) return got;
    }
}

bool gm_link_has_line(void) { return self.open && gm_wire_peek(self.fd) == GM_WORD_LINE; }

bool gm_link_ready(int code)
{
    return self.open && gm_wire_send(self.fd, GM_WORD_READY, self.rank, code, 0, NULL, 0, true);
}

bool gm_link_answer(int kind, const char *text, size_t n)
{
    return self.open && gm_wire_send_long(self.fd, GM_WORD_ANSWER, self.rank, kind, text, n, true);
}
