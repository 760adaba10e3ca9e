/* fake_memory.c - see fake_memory.h. */
#include "fake_memory.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARD 64
#define ARENA ((size_t)16 << 30) /* of addresses; pages are taken as they are touched */
#define HUGE  ((size_t)2 << 20)  /* bytes of a huge page: to open the arena visits each page of it */

gm_fake_allocations gm_fake_device, gm_fake_pinned;

static unsigned char *arena;
static size_t         used; /* bytes of it that were ever given out */
static bool           is_open;

/* Bytes that the device has: those of the arena, or GANYMEDE_CUDA_MEMORY of them, for specs of what happens when they
 * are used up. */
static size_t room(void)
{
    static size_t bytes;
    const char   *text = bytes ? NULL : getenv("GANYMEDE_CUDA_MEMORY");
    if (!bytes) bytes = text ? strtoull(text, NULL, 10) : ARENA;
    return bytes < ARENA ? bytes : ARENA;
}

static size_t whole(size_t bytes) { return 256 + (bytes + GUARD + 255) / 256 * 256; }

static void touched_by_host(int signal, siginfo_t *info, void *context)
{
    static const char text[] =
        "fake_driver: host code touched device memory; it must use gm_device_read and its like\n";
    unsigned char *at = info->si_addr;
    (void)context;
    if (at >= arena && at < arena + ARENA && write(2, text, sizeof text - 1) < 0) _exit(99);
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigaction(signal, &usual, NULL);
}

void gm_fake_open(bool on)
{
    if (is_open == on || !used) return;
    if (mprotect(arena, used, on ? PROT_READ | PROT_WRITE : PROT_NONE)) abort();
    is_open = on;
}

static bool make_arena(void)
{
    struct sigaction action = {.sa_sigaction = touched_by_host, .sa_flags = SA_SIGINFO};
    if (arena) return true;
    void *p = mmap(NULL, ARENA + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    arena = (unsigned char *)(((uintptr_t)p + HUGE - 1) / HUGE * HUGE);
    madvise(arena, ARENA, MADV_HUGEPAGE); /* where there are none, each opening costs more */
    return !sigaction(SIGSEGV, &action, NULL);
}

static void insert(gm_fake_allocations *a, int at, unsigned char *data, size_t bytes)
{
    memmove(&a->list[at + 1], &a->list[at], (size_t)(a->n - at) * sizeof *a->list);
    a->list[at] = (gm_fake_allocation){data, bytes};
    a->n++;
    memset(data - GUARD, 0xa5, GUARD);
    memset(data, 0xff, bytes);
    memset(data + bytes, 0xa5, GUARD);
}

/* The first gap of the arena that is large enough, or its end. */
static unsigned char *find_gap(size_t bytes, int *at)
{
    unsigned char *from = arena;
    for (*at = 0; *at < gm_fake_device.n; ++*at) {
        gm_fake_allocation *next = &gm_fake_device.list[*at];
        if (next->data - 256 - from >= (ptrdiff_t)whole(bytes)) return from;
        from = next->data - 256 + whole(next->bytes);
    }
    return from;
}

CUresult gm_fake_take(size_t bytes, void **out)
{
    int at;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    if (gm_fake_device.n == GM_FAKE_ALLOCATIONS || !make_arena()) return CUDA_ERROR_OUT_OF_MEMORY;
    unsigned char *p = find_gap(bytes, &at);
    size_t         end = (size_t)(p - arena) + whole(bytes);
    if (bytes > ARENA || end > room()) return CUDA_ERROR_OUT_OF_MEMORY;
    if (end > used) {
        gm_fake_open(false);
        used = (end + ((size_t)16 << 20)) >> 24 << 24;
        if (used > ARENA) used = ARENA;
    }
    gm_fake_open(true);
    insert(&gm_fake_device, at, p + 256, bytes);
    *out = p + 256;
    return CUDA_SUCCESS;
}

CUresult gm_fake_take_pinned(size_t bytes, void **out)
{
    int            at = 0;
    unsigned char *p = bytes && gm_fake_pinned.n < GM_FAKE_ALLOCATIONS ? aligned_alloc(256, whole(bytes)) : NULL;
    if (!p) return CUDA_ERROR_OUT_OF_MEMORY;
    while (at < gm_fake_pinned.n && gm_fake_pinned.list[at].data < p) at++;
    insert(&gm_fake_pinned, at, p + 256, bytes);
    *out = p + 256;
    return CUDA_SUCCESS;
}

/* -1: there is none that begins there */
int gm_fake_find(const gm_fake_allocations *a, const void *p)
{
    for (int i = 0; i < a->n; i++)
        if (a->list[i].data == p) return i;
    return -1;
}

void gm_fake_forget(gm_fake_allocations *a, int at)
{
    memset(a->list[at].data, 0xff, a->list[at].bytes);
    a->n--;
    memmove(&a->list[at], &a->list[at + 1], (size_t)(a->n - at) * sizeof *a->list);
}

bool gm_fake_inside(const gm_fake_allocations *a, const void *p, size_t bytes)
{
    const unsigned char *at = p;
    for (int i = 0; i < a->n; i++)
        if (at >= a->list[i].data && at + bytes <= a->list[i].data + a->list[i].bytes) return true;
    return false;
}

/* Without a branch a byte: it is asked twice for each allocation after each launch. */
static bool guard_is_whole(const unsigned char *p)
{
    uint64_t wrong = 0;
    for (int i = 0; i < GUARD; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, sizeof word);
        wrong |= word ^ 0xa5a5a5a5a5a5a5a5;
    }
    return !wrong;
}

void gm_fake_check_guards(const char *after, char *error, size_t size)
{
    for (int i = 0; i < gm_fake_device.n && !error[0]; i++) {
        gm_fake_allocation *a = &gm_fake_device.list[i];
        bool                before = guard_is_whole(a->data - GUARD), behind = guard_is_whole(a->data + a->bytes);
        if (before && behind) continue;
        snprintf(error, size, "%s wrote %s an allocation of %zu bytes", after,
                 before ? "past the end of" : "before the start of", a->bytes);
        memset(a->data - GUARD, 0xa5, GUARD);
        memset(a->data + a->bytes, 0xa5, GUARD);
    }
}
