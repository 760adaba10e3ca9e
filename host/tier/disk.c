/* disk.c - see disk.h: the file, its space, and transfers cut into pieces. How pieces travel: disk_way.h. */
#define _GNU_SOURCE
#include "disk_way.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../../kernels/clock.h"
#include "../files/files.h"

#define DEPTH    256 /* so much that transfers go on while the program computes: it submits no pieces then */
#define PIECE    ((size_t)4 << 20)
#define DEADLINE 120
#define LOOK     1.0 /* seconds; see gm_disk_ask */
#define NEVER    INT64_MIN
#define BLOCK    512 /* of a disk, at least */

struct gm_disk_transfer {
    bool              write;
    uint64_t          at;
    char             *memory;
    double            begun;
    size_t            bytes;
    size_t            rest;      /* bytes that no piece has taken up yet */
    int               under_way; /* pieces */
    gm_disk_transfer *next;      /* of those with a rest */
};

typedef struct range {
    uint64_t at, bytes;
} range;

struct gm_disk {
    gm_disk_settings   set;
    char              *folder;
    int                fd;
    const gm_disk_way *way;
    void              *state; /* of the way */
    gm_disk_stats      stats;
    gm_disk_spans      spans;
    gm_disk_piece     *pieces, *spare; /* depth of them; spare: not under way */
    int                under_way;
    gm_disk_transfer  *first, **end; /* transfers with a rest, in order */
    gm_disk_transfer  *lost;         /* of which pieces may still come back */
    range             *holes;        /* of the file, ascending, apart from each other */
    int                n_holes, room;
    gm_status          broken; /* the first failure, and its message */
    char               why[600];
};

static uint64_t rounded(uint64_t bytes) { return (bytes + GM_DISK_ALIGN - 1) / GM_DISK_ALIGN * GM_DISK_ALIGN; }

static void say(const gm_disk *d, const char *text)
{
    if (d->set.say) d->set.say(d->set.say_context, text);
}

/* ---- failures stay ---- */

static gm_status state_of(const gm_disk *d) { return d->broken == GM_OK ? GM_OK : gm_fail_again(d->broken, d->why); }

static gm_status breaks(gm_disk *d, gm_status st)
{
    if (d->broken != GM_OK) return state_of(d);
    d->broken = st;
    snprintf(d->why, sizeof d->why, "%s", gm_last_error());
    return st;
}

/* ---- the file ---- */

/* A file without a name where the system has such, else one whose name is gone at once. */
static int open_in(const char *folder, int flags)
{
    char path[PATH_MAX];
    int  fd = open(folder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC | flags, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return fd;
    if (snprintf(path, sizeof path, "%s/.ganymede-offload-XXXXXX", folder) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC | flags);
    if (fd >= 0) unlink(path);
    return fd;
}

static void no_direct(gm_disk *d)
{
    char text[400];
    d->stats.direct = false;
    snprintf(text, sizeof text,
             "offload: the file system of %.200s has no direct I/O; its transfers pass through the page cache, which "
             "takes memory of the system",
             d->folder);
    say(d, text);
}

static gm_status open_file(gm_disk *d)
{
    struct stat s;
    d->stats.direct = !d->set.buffered;
    d->fd = open_in(d->folder, d->set.buffered ? 0 : O_DIRECT);
    if (d->fd < 0 && errno == EINVAL && !d->set.buffered) {
        d->fd = open_in(d->folder, 0);
        if (d->fd >= 0) no_direct(d);
    }
    if (d->fd >= 0) return GM_OK;
    int  error = errno;
    bool none = stat(d->folder, &s) ? errno == ENOENT || errno == ENOTDIR : !S_ISDIR(s.st_mode);
    if (none) /* ENOENT alone says little: it is also what /proc answers */
        return GM_FAIL(GM_EIO, "offload.disk = \"%s\" is no folder: make it, or name another", d->folder);
    return GM_FAIL(GM_EIO, "no file for offload can be made in the folder %s: %s", d->folder, gm_file_error(error));
}

static gm_status open_way(gm_disk *d)
{
    char text[800];
    d->way = &gm_disk_uring;
    d->stats.io_uring = !d->set.threads && d->way->open(d->set.depth, &d->state) == GM_OK;
    if (d->stats.io_uring) return GM_OK;
    if (!d->set.threads) {
        snprintf(text, sizeof text, "offload: the system refuses io_uring (%.300s); threads move the bytes instead",
                 gm_last_error());
        say(d, text);
    }
    d->way = &gm_disk_threads;
    return d->way->open(d->set.depth, &d->state);
}

gm_status gm_disk_open(const gm_disk_settings *settings, gm_disk **out)
{
    if (settings->piece % GM_DISK_ALIGN || settings->depth < 0 || settings->depth > 4096 || settings->piece > 1u << 30)
        return GM_FAIL(GM_EINVAL, "a disk with %d pieces of %zu bytes: at most 4096 of 1 GiB, multiples of %zu",
                       settings->depth, settings->piece, GM_DISK_ALIGN);
    gm_disk *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a disk");
    d->fd = -1;
    d->end = &d->first;
    d->set = *settings;
    if (!d->set.depth) d->set.depth = DEPTH;
    if (!d->set.piece) d->set.piece = PIECE;
    if (!(d->set.deadline > 0)) d->set.deadline = DEADLINE;
    d->folder = realpath(settings->folder, NULL);
    if (!d->folder) d->folder = strdup(settings->folder); /* opening the file says what is wrong with it */
    d->pieces = calloc((size_t)d->set.depth, sizeof *d->pieces);
    gm_status st = d->folder && d->pieces ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a disk");
    for (int i = 0; st == GM_OK && i < d->set.depth; i++) {
        d->pieces[i].next = d->spare;
        d->spare = &d->pieces[i];
    }
    if (st == GM_OK) st = open_file(d);
    if (st == GM_OK) st = open_way(d);
    if (st == GM_OK) *out = d;
    else gm_disk_close(d);
    return st;
}

/* ---- space ---- */

static gm_status add_hole(gm_disk *d, uint64_t at, uint64_t bytes)
{
    int i = 0;
    while (i < d->n_holes && d->holes[i].at < at) i++;
    bool left = i > 0 && d->holes[i - 1].at + d->holes[i - 1].bytes == at;
    bool right = i < d->n_holes && at + bytes == d->holes[i].at;
    if (left) d->holes[i - 1].bytes += bytes;
    if (left && right) {
        d->holes[i - 1].bytes += d->holes[i].bytes;
        memmove(&d->holes[i], &d->holes[i + 1], (size_t)(--d->n_holes - i) * sizeof *d->holes);
    } else if (right) {
        d->holes[i].at = at;
        d->holes[i].bytes += bytes;
    }
    if (left || right) return GM_OK;
    if (d->n_holes == d->room) {
        int    room = d->room ? 2 * d->room : 16;
        range *more = realloc(d->holes, (size_t)room * sizeof *more);
        if (!more) return GM_FAIL(GM_ENOMEM, "no memory for the ranges of a file");
        d->holes = more, d->room = room;
    }
    memmove(&d->holes[i + 1], &d->holes[i], (size_t)(d->n_holes++ - i) * sizeof *d->holes);
    d->holes[i] = (range){at, bytes};
    return GM_OK;
}

const char *gm_disk_amount(uint64_t bytes, char text[32])
{
    if (bytes < 1024) snprintf(text, 32, "%llu bytes", (unsigned long long)bytes);
    else if (bytes < 1048576) snprintf(text, 32, "%.1f KiB", (double)bytes / 1024);
    else snprintf(text, 32, "%.1f MiB", (double)bytes / 1048576);
    return text;
}

/* Blocks of a file system that cannot reserve them are taken by writing. */
static int write_zeros(gm_disk *d, uint64_t at, uint64_t bytes)
{
    const size_t most = (size_t)1 << 20;
    char        *zeros = aligned_alloc(GM_DISK_ALIGN, most);
    int          error = zeros ? 0 : ENOMEM;
    if (zeros) memset(zeros, 0, most);
    while (bytes && !error) {
        ssize_t n = pwrite(d->fd, zeros, bytes < most ? bytes : most, (off_t)at);
        if (n <= 0 && errno != EINTR) error = n ? errno : ENOSPC;
        if (n > 0) at += (uint64_t)n, bytes -= (uint64_t)n;
    }
    free(zeros);
    return error;
}

static gm_status grow(gm_disk *d, uint64_t bytes)
{
    int64_t fault = d->set.fault ? d->set.fault(d->set.fault_context, GM_DISK_RESERVES, d->stats.size, bytes) : 0;
    int     error = fault < 0 ? (int)-fault : 0;
    while (!error && fallocate(d->fd, 0, (off_t)d->stats.size, (off_t)bytes)) {
        if (errno == EINTR) continue;
        error = errno == EOPNOTSUPP ? write_zeros(d, d->stats.size, bytes) : errno;
        break;
    }
    char more[32], taken[32];
    if (error)
        return GM_FAIL(GM_EIO, "the folder %s has no room for %s more of what is offloaded, beside %s: %s", d->folder,
                       gm_disk_amount(bytes, more), gm_disk_amount(d->stats.size, taken), gm_file_error(error));
    GM_TRY(add_hole(d, d->stats.size, bytes));
    d->stats.size += bytes;
    return GM_OK;
}

/* Bytes of the hole that touches the end of the file. */
static uint64_t free_end(const gm_disk *d)
{
    const range *last = d->n_holes ? &d->holes[d->n_holes - 1] : NULL;
    return last && last->at + last->bytes == d->stats.size ? last->bytes : 0;
}

gm_status gm_disk_prepare(gm_disk *d, uint64_t bytes)
{
    GM_TRY(state_of(d));
    bytes = rounded(bytes);
    return bytes > free_end(d) ? grow(d, bytes - free_end(d)) : GM_OK;
}

gm_status gm_disk_reserve(gm_disk *d, uint64_t bytes, uint64_t *at)
{
    int i = 0;
    GM_TRY(state_of(d));
    bytes = bytes ? rounded(bytes) : GM_DISK_ALIGN;
    while (i < d->n_holes && d->holes[i].bytes < bytes) i++;
    if (i == d->n_holes) {
        GM_TRY(gm_disk_prepare(d, bytes));
        i = d->n_holes - 1;
    }
    *at = d->holes[i].at;
    d->holes[i].at += bytes;
    d->holes[i].bytes -= bytes;
    if (!d->holes[i].bytes) memmove(&d->holes[i], &d->holes[i + 1], (size_t)(--d->n_holes - i) * sizeof *d->holes);
    d->stats.reserved += bytes;
    return GM_OK;
}

void gm_disk_give_back(gm_disk *d, uint64_t at, uint64_t bytes)
{
    bytes = bytes ? rounded(bytes) : GM_DISK_ALIGN;
    d->stats.reserved -= bytes;
    (void)add_hole(d, at, bytes); /* without memory for it the range stays unused */
}

/* ---- transfers ---- */

/* Hands a piece to the system, or to the fault that a test has asked for. false: it has its result already. */
static bool hand_over(gm_disk *d, gm_disk_piece *p)
{
    gm_disk_event event = p->write ? GM_DISK_WRITES : GM_DISK_READS;
    int64_t       n = d->set.fault ? d->set.fault(d->set.fault_context, event, p->at, p->rest) : (int64_t)p->rest;
    p->bytes = n >= 0 && (size_t)n < p->rest ? (size_t)n : p->rest;
    p->result = n;
    p->direct = d->stats.direct;
    if (n < 0) return n == NEVER;
    d->way->submit(d->state, p);
    return true;
}

static gm_status failed(const gm_disk *d, const gm_disk_piece *p)
{
    int error = p->result < 0 ? (int)-p->result : p->write ? ENOSPC : EIO;
    return GM_FAIL(GM_EIO, "the disk of the folder %s failed to %s %zu bytes of what is offloaded: %s%s", d->folder,
                   p->write ? "write" : "read", p->rest, p->result < 0 ? "" : "it moved fewer; ", gm_file_error(error));
}

/* Counts what an attempt has moved. Direct transfers go on where a block begins. */
static gm_status account(gm_disk *d, gm_disk_piece *p)
{
    int64_t n = p->result;
    if (n == -EINTR) return GM_OK;
    if (n == -EINVAL && p->direct && !fcntl(d->fd, F_SETFL, 0)) {
        if (d->stats.direct) no_direct(d);
        return GM_OK;
    }
    if (n > 0 && n < (int64_t)p->rest && p->direct) n -= n % BLOCK;
    if (n <= 0) return breaks(d, failed(d, p));
    *(p->write ? &d->stats.written : &d->stats.read) += (uint64_t)n;
    p->at += (uint64_t)n;
    p->memory += n;
    p->rest -= (size_t)n;
    return GM_OK;
}

/* What became of a piece: done, or its rest begins again. */
static void settle(gm_disk *d, gm_disk_piece *p)
{
    while (account(d, p) == GM_OK && p->rest && d->broken == GM_OK)
        if (hand_over(d, p)) return;
    gm_disk_transfer *t = p->of;
    t->under_way--;
    d->under_way--;
    if (!t->under_way && !t->rest)
        gm_disk_spans_add(&d->spans, t->write ? GM_DISK_WRITING : GM_DISK_READING, t->begun, t->bytes);
    p->next = d->spare;
    d->spare = p;
}

static void begin_piece(gm_disk *d, gm_disk_transfer *t)
{
    gm_disk_piece *p = d->spare;
    size_t         n = t->rest < d->set.piece ? t->rest : d->set.piece;
    d->spare = p->next;
    *p = (gm_disk_piece){.write = t->write, .fd = d->fd, .at = t->at, .memory = t->memory, .rest = n, .of = t};
    t->at += n, t->memory += n, t->rest -= n;
    t->under_way++;
    d->under_way++;
    if (!hand_over(d, p)) settle(d, p);
}

/* Begins pieces while there is room for them. */
static void pump(gm_disk *d)
{
    while (d->first && d->spare && d->broken == GM_OK) {
        gm_disk_transfer *t = d->first;
        begin_piece(d, t);
        if (t->rest) continue;
        d->first = t->next;
        if (!d->first) d->end = &d->first;
    }
}

/* Takes what has ended. false: nothing did in so many seconds. */
static bool reap(gm_disk *d, double seconds)
{
    gm_disk_piece *p = d->under_way ? d->way->reap(d->state, seconds) : NULL;
    if (!p) return false;
    do settle(d, p);
    while (d->under_way && (p = d->way->reap(d->state, 0)));
    pump(d);
    return true;
}

static gm_status begin(gm_disk *d, bool write, uint64_t at, void *memory, size_t bytes, gm_disk_transfer **out)
{
    GM_TRY(state_of(d));
    if ((at | bytes | (uintptr_t)memory) % GM_DISK_ALIGN || at > d->stats.size || bytes > d->stats.size - at)
        return GM_FAIL(GM_EINVAL, "offload: %zu bytes at %llu of a file of %llu, memory %p: not aligned, or outside",
                       bytes, (unsigned long long)at, (unsigned long long)d->stats.size, memory);
    gm_disk_transfer *t = calloc(1, sizeof *t);
    if (!t) return GM_FAIL(GM_ENOMEM, "no memory for a transfer");
    *t = (gm_disk_transfer){
        .write = write, .at = at, .memory = memory, .begun = gm_now(), .bytes = bytes, .rest = bytes};
    if (bytes) {
        *d->end = t;
        d->end = &t->next;
    }
    pump(d);
    *out = t;
    return GM_OK;
}

gm_status gm_disk_read(gm_disk *d, uint64_t at, void *to, size_t bytes, gm_disk_transfer **out)
{
    return begin(d, false, at, to, bytes, out);
}

gm_status gm_disk_write(gm_disk *d, uint64_t at, const void *from, size_t bytes, gm_disk_transfer **out)
{
    return begin(d, true, at, (void *)(uintptr_t)from, bytes, out);
}

static bool is_under_way(const gm_disk *d, const gm_disk_transfer *t)
{
    return t->under_way || (t->rest && d->broken == GM_OK);
}

bool gm_disk_is_done(gm_disk *d, gm_disk_transfer *t)
{
    reap(d, 0);
    return !is_under_way(d, t);
}

/* Out of the list of those that wait, where a failure has left it there. */
static void forget(gm_disk *d, gm_disk_transfer *t)
{
    for (gm_disk_transfer **at = &d->first; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            if (!*at) d->end = at;
            return;
        }
}

bool gm_disk_ask(bool (*reap)(void *context, double seconds), void *context, double deadline)
{
    for (double left = deadline; left > 0; left -= LOOK)
        if (reap(context, left < LOOK ? left : LOOK)) return true;
    return false;
}

static bool reap_of(void *disk, double seconds) { return reap(disk, seconds); }

/* Takes what ends within the deadline; false: nothing. */
static bool answers(gm_disk *d) { return gm_disk_ask(reap_of, d, d->set.deadline); }

static gm_status no_answer(gm_disk *d)
{
    return breaks(d, GM_FAIL(GM_EIO,
                             "the disk of the folder %s has not answered for %g s: look at its device (dmesg), or "
                             "offload to another folder",
                             d->folder, d->set.deadline));
}

gm_status gm_disk_wait(gm_disk *d, gm_disk_transfer *t)
{
    double begun = gm_now();
    bool   lost = false, waits = is_under_way(d, t);
    while (is_under_way(d, t) && !lost) {
        lost = !answers(d);
        if (lost) (void)no_answer(d);
    }
    d->stats.waited += gm_now() - begun;
    if (waits) gm_disk_spans_add(&d->spans, GM_DISK_WAITING, begun, 0);
    forget(d, t);
    if (!lost) {
        free(t);
    } else {
        t->next = d->lost;
        d->lost = t;
    }
    return state_of(d);
}

gm_disk_stats gm_disk_stats_of(const gm_disk *d) { return d->stats; }

gm_disk_spans *gm_disk_spans_of(gm_disk *d) { return &d->spans; }

void gm_disk_close(gm_disk *d)
{
    if (!d) return;
    if (d->broken == GM_OK) d->first = NULL;
    while (d->under_way && answers(d)) continue;
    if (d->state) d->way->close(d->state);
    if (d->fd >= 0) close(d->fd);
    while (d->lost) {
        gm_disk_transfer *t = d->lost;
        d->lost = t->next;
        free(t);
    }
    gm_disk_spans_free(&d->spans);
    free(d->folder);
    free(d->pieces);
    free(d->holes);
    free(d);
}
