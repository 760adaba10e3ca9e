/* window.c - see window.h. */
#define _GNU_SOURCE
#include "window.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "../../kernels/arena.h"
#include "lines.h"

#define STREAMED 2048 /* from so many bytes on, stores do not wait for the reader's copies of lines (lines.h) */
#define MAGIC    UINT64_C(0x676d77696e646f77)
#define NAME     "ganymede" /* as /proc/PID/maps shows it */

/* Counts begin shortly before they overflow, so that each run goes through that. */
#define FIRST_COUNT (UINT32_MAX - 4095)

typedef struct taken { /* from one ring */
    _Alignas(64) _Atomic uint32_t count;
    _Atomic uint32_t waits; /* the writer found no room */
} taken;

/* begun is ahead of put while the letter is being written: a reader that finds put before and begun after its copy
 * unchanged has what belongs to that count. */
typedef struct gm_letter {
    _Alignas(64) _Atomic uint32_t begun;
    _Atomic uint32_t put;
    _Atomic uint64_t label; /* 0: it repeats nothing */
    _Atomic uint64_t word[GM_LETTER / 8];
} gm_letter;

typedef struct shared {
    uint64_t magic, key, size;
    _Alignas(64) _Atomic uint32_t bell;
    _Atomic uint32_t asleep;
    _Atomic uint32_t put[]; /* 2 n, in rings for the owner; then taken[2 n], out of its own; letter[n], to the owner;
                               the bytes of all rings */
} shared;

struct gm_window {
    gm_window_shape shape;
    size_t          size;
    shared         *s;
    taken          *taken;
    gm_letter      *letter;
    char           *bytes;
};

/* ---- life ---- */

static size_t rounded(size_t n, size_t to) { return (n + to - 1) / to * to; }

static size_t counts_size(const gm_window_shape *shape)
{
    return rounded(sizeof(shared) + 2 * (size_t)shape->n * sizeof(uint32_t), 64);
}

static size_t head_size(const gm_window_shape *shape)
{
    return rounded(counts_size(shape) + (size_t)shape->n * (2 * sizeof(taken) + sizeof(gm_letter)), 4096);
}

static char *ring_bytes(const gm_window *w, int ring)
{
    size_t before = (size_t)(ring / 2) * (w->shape.large + w->shape.small);
    return w->bytes + before + (ring % 2 ? w->shape.large : 0);
}

static gm_status map(const gm_window_shape *shape, int fd, gm_window **out)
{
    gm_window *w = calloc(1, sizeof *w);
    if (!w) return GM_FAIL(GM_ENOMEM, "no memory for a window");
    w->shape = *shape;
    w->size = head_size(shape) + (size_t)shape->n * (shape->large + shape->small);
    w->s = mmap(NULL, w->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (w->s == MAP_FAILED) {
        free(w);
        return GM_FAIL(GM_EINVAL, "memory cannot be shared: mmap: %s", strerror(errno));
    }
    w->taken = (taken *)((char *)w->s + counts_size(shape));
    w->letter = (gm_letter *)(w->taken + 2 * (size_t)shape->n);
    w->bytes = (char *)w->s + head_size(shape);
    *out = w;
    return GM_OK;
}

gm_status gm_window_make(const gm_window_shape *shape, uint64_t key, gm_window **out, int *fd)
{
    size_t    size = head_size(shape) + (size_t)shape->n * (shape->large + shape->small);
    int       file = memfd_create(NAME, MFD_CLOEXEC);
    gm_status st = GM_OK;
    if (file < 0) return GM_FAIL(GM_EINVAL, "memory cannot be shared: memfd_create: %s", strerror(errno));
    if (ftruncate(file, (off_t)size))
        st = GM_FAIL(GM_EINVAL, "memory cannot be shared: %zu bytes: %s", size, strerror(errno));
    if (st == GM_OK) st = map(shape, file, out);
    if (st != GM_OK) {
        close(file);
        return st;
    }
    for (int i = 0; i < 2 * shape->n; i++) (*out)->s->put[i] = (*out)->taken[i].count = FIRST_COUNT;
    for (int i = 0; i < shape->n; i++) (*out)->letter[i].begun = (*out)->letter[i].put = FIRST_COUNT;
    (*out)->s->key = key;
    (*out)->s->size = size;
    (*out)->s->magic = MAGIC;
    *fd = file;
    return GM_OK;
}

/* Opens a file that we have made, of this size, and no other: to open some of those would do something. */
static gm_status open_file(int pid, int fd, const char *name, uint64_t size, int *out)
{
    char        path[64], wanted[64], target[64] = "";
    struct stat about;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    snprintf(wanted, sizeof wanted, "/memfd:%s (deleted)", name);
    if (readlink(path, target, sizeof target - 1) < 0)
        return GM_FAIL(GM_EINVAL, "memory cannot be shared: %s: %s", path, strerror(errno));
    if (strcmp(target, wanted))
        return GM_FAIL(GM_EINVAL, "memory cannot be shared: %s is another process's file", path);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return GM_FAIL(GM_EINVAL, "memory cannot be shared: %s: %s", path, strerror(errno));
    *out = file;
    if (!fstat(file, &about) && about.st_size == (off_t)size) return GM_OK;
    close(file);
    return GM_FAIL(GM_EINVAL, "memory cannot be shared: %s has another size", path);
}

gm_status gm_window_open(const gm_window_shape *shape, uint64_t key, int pid, int fd, gm_window **out)
{
    int    file;
    size_t size = head_size(shape) + (size_t)shape->n * (shape->large + shape->small);
    GM_TRY(open_file(pid, fd, NAME, size, &file));
    gm_status st = map(shape, file, out);
    close(file);
    GM_TRY(st);
    const shared *s = (*out)->s;
    if (s->magic == MAGIC && s->key == key && s->size == size) return GM_OK;
    gm_window_close(*out);
    *out = NULL;
    return GM_FAIL(GM_EINVAL, "memory cannot be shared: /proc/%d/fd/%d belongs to another job", pid, fd);
}

void gm_window_close(gm_window *w)
{
    if (!w) return;
    munmap(w->s, w->size);
    free(w);
}

/* ---- the arena of another rank ---- */

gm_status gm_reach_open(int pid, int fd, uint64_t base, uint64_t size, gm_reach *out)
{
    int file;
    GM_TRY(open_file(pid, fd, GM_ARENA_NAME, size, &file));
    void *here = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int   why = errno;
    close(file);
    if (here == MAP_FAILED) return GM_FAIL(GM_EINVAL, "memory cannot be shared: mmap: %s", strerror(why));
    (void)madvise(here, size, MADV_DONTFORK);
    (void)madvise(here, size, MADV_DONTDUMP);
    *out = (gm_reach){here, base, size};
    return GM_OK;
}

void gm_reach_close(gm_reach *r)
{
    if (r->here) munmap(r->here, r->size);
    r->here = NULL;
}

char *gm_reach_at(const gm_reach *r, uint64_t at, size_t n)
{
    bool inside = r->here && at >= r->base && at - r->base <= r->size && n <= r->size - (at - r->base);
    return inside ? r->here + (at - r->base) : NULL;
}

bool gm_reads_memory(int pid, uint64_t at, uint64_t key)
{
    uint64_t     found = ~key;
    struct iovec here = {&found, sizeof found}, there = {(void *)(uintptr_t)at, sizeof found};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == sizeof found && found == key;
}

/* ---- rings ---- */

gm_ring gm_ring_of(gm_window *writer, int from, gm_window *reader, int to, bool small)
{
    int ends = 2 * to + small, at = 2 * from + small;
    return (gm_ring){.writer = writer,
                     .reader = reader,
                     .bytes = ring_bytes(writer, ends),
                     .size = (uint32_t)(small ? writer->shape.small : writer->shape.large),
                     .at = at,
                     .ends = ends,
                     .put = FIRST_COUNT,
                     .got = FIRST_COUNT,
                     .letter = small ? NULL : &reader->letter[from]};
}

static void copy_in(const gm_ring *r, const char *from, size_t n)
{
    size_t start = r->put & (r->size - 1), first = n < r->size - start ? n : r->size - start;
    char  *ring = r->bytes;
    if (n < STREAMED) {
        memcpy(ring + start, from, first);
        if (n > first) memcpy(ring, from + first, n - first);
        return;
    }
    gm_copy_for_others(ring + start, from, first, gm_lines_stores());
    gm_copy_for_others(ring, from + first, n - first, gm_lines_stores());
}

/* Room for at least `wanted` bytes, if there is as much. The reader's count is asked for only where its last one does
 * not do: the line that it is in stays with the reader. */
static size_t room(gm_ring *r, size_t wanted)
{
    size_t free_bytes = r->size - (r->put - r->got);
    if (free_bytes >= wanted) return free_bytes;
    r->got = atomic_load_explicit(&r->writer->taken[r->ends].count, memory_order_acquire);
    return r->size - (r->put - r->got);
}

/* The writer says that it waits, and looks once more: the reader may have made room before it could see that. */
static size_t await_room(gm_ring *r)
{
    atomic_store(&r->writer->taken[r->ends].waits, 1);
    atomic_thread_fence(memory_order_seq_cst);
    return room(r, r->size);
}

/* Says what was put. what: what the letter repeats. The letter comes last: who has read it counts on the other. */
static void announce(gm_ring *r, uint64_t label, const struct iovec *what)
{
    gm_letter *l = r->letter;
    atomic_store_explicit(&r->reader->s->put[r->at], r->put, memory_order_release);
    if (l) {
        uint64_t word[GM_LETTER / 8];
        atomic_store_explicit(&l->begun, r->put, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        atomic_store_explicit(&l->label, label, memory_order_relaxed);
        if (label && what->iov_len) memcpy(word, what->iov_base, what->iov_len);
        for (size_t i = 0; label && 8 * i < what->iov_len; i++)
            atomic_store_explicit(&l->word[i], word[i], memory_order_relaxed);
        atomic_store_explicit(&l->put, r->put, memory_order_release);
    }
    gm_window_ring(r->reader);
}

bool gm_ring_put_letter(gm_ring *r, const struct iovec parts[2], size_t whole, uint64_t label)
{
    if (room(r, whole) < whole) return false;
    uint32_t end = r->put + (uint32_t)whole;
    for (int i = 0; i < 2; i++) {
        if (parts[i].iov_len) copy_in(r, parts[i].iov_base, parts[i].iov_len);
        r->put += (uint32_t)parts[i].iov_len;
    }
    r->put = end;
    announce(r, parts[1].iov_len <= GM_LETTER ? label : 0, &parts[1]);
    return true;
}

int gm_ring_read_letter(const gm_ring *r, uint64_t label, size_t whole, void *to, size_t n)
{
    gm_letter *l = r->letter;
    uint64_t   word[GM_LETTER / 8];
    uint32_t   put = atomic_load_explicit(&l->put, memory_order_acquire);
    if (put == r->got) return 0;
    if (put - r->got != whole || n > GM_LETTER || atomic_load_explicit(&l->label, memory_order_relaxed) != label)
        return -1;
    for (size_t i = 0; 8 * i < n; i++) word[i] = atomic_load_explicit(&l->word[i], memory_order_relaxed);
    if (n) memcpy(to, word, n);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&l->begun, memory_order_relaxed) == put ? 1 : -1;
}

size_t gm_ring_put(gm_ring *r, const struct iovec *parts, int n)
{
    size_t done = 0, wanted = 0;
    for (int i = 0; i < n; i++) wanted += parts[i].iov_len;
    size_t free_bytes = room(r, wanted);
    if (!free_bytes) free_bytes = await_room(r);
    for (int i = 0; i < n && free_bytes; i++) {
        size_t m = parts[i].iov_len < free_bytes ? parts[i].iov_len : free_bytes;
        copy_in(r, parts[i].iov_base, m);
        r->put += (uint32_t)m;
        free_bytes -= m;
        done += m;
    }
    if (done) announce(r, 0, NULL);
    return done;
}

static const char *look(const gm_ring *r, const _Atomic uint32_t *put, size_t *n)
{
    size_t here = atomic_load_explicit(put, memory_order_acquire) - r->got, start = r->got & (r->size - 1);
    *n = here < r->size - start ? here : r->size - start;
    return r->bytes + start;
}

const char *gm_ring_look(const gm_ring *r, size_t *n) { return look(r, &r->reader->s->put[r->at], n); }
const char *gm_ring_look_at_once(const gm_ring *r, size_t *n) { return look(r, &r->letter->put, n); }

/* A writer that waits is woken when half of the ring is free: more often would cost more than it gains. */
void gm_ring_skip(gm_ring *r, size_t n)
{
    taken *t = &r->writer->taken[r->ends];
    r->got += (uint32_t)n;
    atomic_store_explicit(&t->count, r->got, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&t->waits, memory_order_relaxed)) return;
    if (atomic_load_explicit(&r->reader->s->put[r->at], memory_order_acquire) - r->got > r->size / 2) return;
    atomic_store(&t->waits, 0);
    gm_window_ring(r->writer);
}

/* ---- the bell ---- */

static long futex(_Atomic uint32_t *word, int what, uint32_t value, const struct timespec *time)
{
    return syscall(SYS_futex, (uint32_t *)word, what, value, time, NULL, 0);
}

void gm_window_ring(gm_window *w)
{
    atomic_fetch_add(&w->s->bell, 1);
    if (atomic_load(&w->s->asleep)) futex(&w->s->bell, FUTEX_WAKE, 1, NULL);
}

uint32_t gm_window_rung(gm_window *w) { return atomic_load_explicit(&w->s->bell, memory_order_acquire); }

void gm_window_sleep(gm_window *w, uint32_t seen, double seconds)
{
    struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    atomic_store(&w->s->asleep, 1);
    futex(&w->s->bell, FUTEX_WAIT, seen, &time);
    atomic_store(&w->s->asleep, 0);
}
