/* arena.c - see arena.h. Free parts of the range are a list in the order of addresses; no two of them touch. A block is
 * taken from the first that is large enough. There are few blocks: the pool above keeps idle ones. */
#define _GNU_SOURCE
#include "arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE  ((size_t)4096)
#define HUGE  ((size_t)2 << 20)
#define MOST  ((size_t)256 << 30)
#define LEAST ((size_t)64 << 20)

typedef struct part {
    struct part *next;
    size_t       at, bytes;
} part;

struct gm_arena {
    char  *base;
    size_t size;
    int    file;
    part  *idle;
};

/* A file may not grow beyond a limit of the process (ulimit -f): the system would end the process. Of the addresses
 * that it may have (ulimit -v) most stay for other memory, and for the arenas of others. */
static size_t wanted_size(void)
{
    struct rlimit file, addresses;
    long          pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t        size = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : MOST;
    if (size > MOST) size = MOST;
    if (!getrlimit(RLIMIT_FSIZE, &file) && file.rlim_cur < size) size = (size_t)file.rlim_cur;
    if (!getrlimit(RLIMIT_AS, &addresses) && addresses.rlim_cur != RLIM_INFINITY && addresses.rlim_cur / 16 < size)
        size = (size_t)addresses.rlim_cur / 16;
    return size / HUGE * HUGE;
}

/* At a multiple of HUGE. False: there are not so many addresses. */
static bool map(gm_arena *a, size_t size)
{
    char *all = mmap(NULL, size + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return false;
    size_t head = (HUGE - (uintptr_t)all % HUGE) % HUGE;
    if (head) munmap(all, head);
    if (HUGE > head) munmap(all + head + size, HUGE - head);
    a->base = mmap(all + head, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, a->file, 0);
    a->size = size;
    if (a->base != MAP_FAILED) return true;
    munmap(all + head, size);
    return false;
}

gm_status gm_arena_new(gm_arena **out)
{
    gm_arena *a = calloc(1, sizeof *a);
    part     *all = calloc(1, sizeof *all);
    size_t    size = wanted_size();
    gm_status st;
    if (!a || !all) GM_TRY_OR(GM_FAIL(GM_ENOMEM, "no memory for memory to share"), st, fail);
    a->file = memfd_create(GM_ARENA_NAME, MFD_CLOEXEC);
    if (a->file < 0)
        GM_TRY_OR(GM_FAIL(GM_EINVAL, "memory cannot be shared: memfd_create: %s", strerror(errno)), st, fail);
    while (size >= LEAST && !map(a, size)) size = size / 2 / HUGE * HUGE;
    if (size < LEAST || ftruncate(a->file, (off_t)size)) {
        st = size < LEAST ? GM_FAIL(GM_EINVAL,
                                    "memory cannot be shared: the limits of this process leave less than %zu bytes "
                                    "(ulimit -f, ulimit -v)",
                                    LEAST)
                          : GM_FAIL(GM_EINVAL, "memory cannot be shared: %zu bytes: %s", size, strerror(errno));
        if (size >= LEAST) munmap(a->base, a->size);
        close(a->file);
        goto fail;
    }
    (void)madvise(a->base, size, MADV_HUGEPAGE); /* advice, which most systems do not follow here */
    (void)madvise(a->base, size, MADV_DONTFORK);
    *all = (part){.bytes = size};
    a->idle = all;
    *out = a;
    return GM_OK;
fail:
    free(all);
    free(a);
    return st;
}

void gm_arena_free(gm_arena *a)
{
    if (!a) return;
    for (part *p = a->idle, *next; p; p = next) {
        next = p->next;
        free(p);
    }
    munmap(a->base, a->size);
    close(a->file);
    free(a);
}

static size_t rounded(size_t n, size_t to) { return (n + to - 1) / to * to; }

static size_t start_in(const part *p, size_t bytes) { return rounded(p->at, bytes >= HUGE ? HUGE : PAGE); }

static bool fits(const part *p, size_t bytes) { return start_in(p, bytes) + bytes <= p->at + p->bytes; }

/* Takes [at, at + bytes) out of *from. False: no memory for a part. */
static bool cut(part **from, size_t at, size_t bytes)
{
    part  *p = *from;
    size_t before = at - p->at, after = p->at + p->bytes - at - bytes;
    if (before && after) {
        part *behind = malloc(sizeof *behind);
        if (!behind) return false;
        *behind = (part){p->next, at + bytes, after};
        p->next = behind;
        p->bytes = before;
    } else if (before) {
        p->bytes = before;
    } else if (after) {
        p->at = at + bytes;
        p->bytes = after;
    } else {
        *from = p->next;
        free(p);
    }
    return true;
}

gm_status gm_arena_take(gm_arena *a, size_t bytes, void **out)
{
    part **from = &a->idle;
    size_t n = rounded(bytes, PAGE);
    while (*from && !fits(*from, n)) from = &(*from)->next;
    if (!*from) return GM_FAIL(GM_ENOMEM, "the range of memory that can be shared is full");
    size_t at = start_in(*from, n);
    while (fallocate(a->file, 0, (off_t)at, (off_t)n)) {
        if (errno == EINTR) continue;
        return GM_FAIL(GM_ENOMEM, "the system gives no more memory that can be shared: %s", strerror(errno));
    }
    if (!cut(from, at, n)) return GM_FAIL(GM_ENOMEM, "no memory for a part of memory that can be shared");
    *out = a->base + at;
    return GM_OK;
}

/* Joins p with the part behind it if they touch. */
static void join(part *p)
{
    part *behind = p->next;
    if (!behind || p->at + p->bytes != behind->at) return;
    p->bytes += behind->bytes;
    p->next = behind->next;
    free(behind);
}

void gm_arena_give(gm_arena *a, void *block, size_t bytes)
{
    size_t at = (size_t)((char *)block - a->base), n = rounded(bytes, PAGE);
    part  *before = NULL, *p = malloc(sizeof *p);
    while (fallocate(a->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)n) && errno == EINTR) {
    }
    if (!p) return; /* its addresses are lost, not its memory */
    for (part *q = a->idle; q && q->at < at; q = q->next) before = q;
    *p = (part){before ? before->next : a->idle, at, n};
    if (before) before->next = p;
    else a->idle = p;
    join(p);
    if (before) join(before);
}

char  *gm_arena_base(const gm_arena *a) { return a->base; }
size_t gm_arena_size(const gm_arena *a) { return a->size; }
int    gm_arena_file(const gm_arena *a) { return a->file; }
