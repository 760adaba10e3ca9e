/* page.c - see page.h. */
#define _GNU_SOURCE
#include "page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../../kernels/clock.h"
#include "state.h"

#define MAGIC 0x676d7067u
#define TRIES 1000 /* copies until a reader takes one that the rank changed meanwhile */

static gm_status begin_page(gm_page *page, int rank, int world, gm_page **out)
{
    *page = (gm_page){.size = sizeof *page, .rank = rank, .world = world, .pid = (int32_t)getpid(), .step = -1};
    page->opened = gm_now();
    page->waiting.record.call = page->last.record.call = -1;
    if (gethostname(page->host, sizeof page->host - 1)) page->host[0] = 0;
    page->magic = MAGIC;
    *out = page;
    return GM_OK;
}

static gm_status make_without_file(int rank, int world, gm_page **out)
{
    gm_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return GM_FAIL(GM_EIO, "no memory for the page of a rank: %s", strerror(errno));
    return begin_page(page, rank, world, out);
}

gm_status gm_page_make(const char *path, int rank, int world, gm_page **out)
{
    if (!path) return make_without_file(rank, world, out);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return GM_FAIL(GM_EIO, "cannot make %s: %s", path, strerror(errno));
    int      full = posix_fallocate(fd, 0, sizeof(gm_page)); /* or a store may end the process later */
    gm_page *page = full ? MAP_FAILED : mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int      error = full ? full : errno;
    close(fd);
    if (page == MAP_FAILED) {
        unlink(path);
        return GM_FAIL(GM_EIO, "no room for %s: %s", path, strerror(error));
    }
    return begin_page(page, rank, world, out);
}

void gm_page_free(gm_page *page)
{
    if (page) munmap(page, sizeof *page);
}

/* ---- the rank ---- */

static void begin(gm_page *page)
{
    page->changes++;
    atomic_thread_fence(memory_order_release);
}

static void end(gm_page *page)
{
    atomic_thread_fence(memory_order_release);
    page->changes++;
}

static void fill(gm_page_call *call, const gm_pending *p, double since)
{
    const gm_group *g = p->group;
    bool            two = p->call == GM_CALL_send || p->call == GM_CALL_receive;
    call->record = p->record;
    call->since = since;
    call->size = g->size;
    call->peer = two ? g->member[p->root] : -1;
    for (int i = 0; i < g->size && i < GM_PAGE_MEMBERS; i++) call->member[i] = g->member[i];
    strncpy(call->group, g->name, sizeof call->group - 1);
}

void gm_page_called(gm_page *page, const gm_pending *p)
{
    begin(page);
    fill(&page->last, p, p->started);
    end(page);
}

void gm_page_waits(gm_page *page, const gm_pending *p, double since)
{
    begin(page);
    fill(&page->waiting, p, since);
    end(page);
}

void gm_page_waited(gm_page *page, double seconds)
{
    begin(page);
    page->waiting.record.call = -1;
    page->waited += seconds;
    end(page);
}

void gm_page_stepped(gm_page *page, int64_t step, gm_page_step totals)
{
    begin(page);
    page->step = step;
    totals.waited = page->waited;
    page->steps[page->n_steps % GM_PAGE_STEPS] = totals;
    page->n_steps++;
    end(page);
}

void gm_page_memory(gm_page *page, uint64_t live, uint64_t peak, uint64_t reserved)
{
    begin(page);
    page->live = live;
    page->peak = peak;
    page->reserved = reserved;
    end(page);
}

/* ---- readers ---- */

static void copy_settled(const volatile gm_page *from, gm_page *copy)
{
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = from->changes;
        atomic_thread_fence(memory_order_acquire);
        memcpy(copy, (const void *)from, sizeof *copy);
        atomic_thread_fence(memory_order_acquire);
        if (!(before & 1) && from->changes == before) return;
    }
}

void gm_page_snapshot(const gm_page *page, gm_page *copy)
{
    copy_settled(page, copy);
    copy->copied = gm_now();
    copy->copied_wall = gm_clock(CLOCK_REALTIME);
}

/* Makes a call safe to describe. */
static bool is_sound(gm_page_call *call)
{
    gm_call_record *r = &call->record;
    call->group[sizeof call->group - 1] = r->place[sizeof r->place - 1] = 0;
    if (r->call < 0) return true;
    return r->call < GM_CALL_COUNT && r->ndim >= 0 && r->ndim <= GM_MAX_DIMS && r->dtype >= -1 &&
           r->dtype < GM_DTYPE_COUNT && r->reduction >= -1 && r->reduction < 4 && call->size >= 0;
}

gm_status gm_page_read(const char *path, gm_page *copy)
{
    struct stat s;
    int         fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &s)) {
        gm_status st = GM_FAIL(GM_EIO, "cannot read %s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return st;
    }
    bool     ours = s.st_uid == geteuid() && S_ISREG(s.st_mode) && s.st_size == (off_t)sizeof *copy;
    gm_page *page = ours ? mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (page == MAP_FAILED) return GM_FAIL(GM_ECORRUPT, "%s was not made by a rank of this program and user", path);
    copy_settled(page, copy);
    munmap(page, sizeof *page);
    if (copy->magic != MAGIC || copy->size != sizeof *copy || !is_sound(&copy->waiting) || !is_sound(&copy->last) ||
        copy->phase < 0 || copy->phase >= GM_PHASE_COUNT)
        return GM_FAIL(GM_ECORRUPT, "%s is no page of a rank of this build", path);
    copy->host[sizeof copy->host - 1] = 0;
    return GM_OK;
}

char *gm_page_describe(const gm_page_call *call, char *buf, size_t size)
{
    return gm_record_describe(&call->record, call->group, buf, size);
}
