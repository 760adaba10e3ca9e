/* bytes.c - see bytes.h. */
#define _GNU_SOURCE
#include "bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- the guard: process-wide, as signal handlers are ---- */

static pthread_once_t                      guard_once = PTHREAD_ONCE_INIT;
static struct sigaction                    guard_before;
static _Thread_local sigjmp_buf            guard_back;
static _Thread_local volatile sig_atomic_t guard_on;

static void guard_signal(int sig, siginfo_t *info, void *context)
{
    if (guard_on) {
        guard_on = 0;
        siglongjmp(guard_back, 1);
    }
    if (guard_before.sa_flags & SA_SIGINFO) {
        guard_before.sa_sigaction(sig, info, context);
        return;
    }
    if (guard_before.sa_handler != SIG_DFL && guard_before.sa_handler != SIG_IGN) {
        guard_before.sa_handler(sig);
        return;
    }
    signal(sig, SIG_DFL); /* not ours: the faulting instruction runs again and ends the process */
}

static void guard_install(void)
{
    struct sigaction mine = {.sa_sigaction = guard_signal, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&mine.sa_mask);
    sigaction(SIGBUS, &mine, &guard_before);
}

gm_status gm_bytes_copy(const gm_bytes *b, size_t offset, size_t n, void *to)
{
    if (offset > b->size || n > b->size - offset)
        return GM_FAIL(GM_ECORRUPT, "%s: needs bytes %zu to %zu, the file has %zu", b->path, offset, offset + n,
                       b->size);
    if (!n) return GM_OK;
    if (!b->mapped) {
        memcpy(to, b->data + offset, n);
        return GM_OK;
    }
    if (sigsetjmp(guard_back, 0)) /* no signal mask to restore: the handler runs with SA_NODEFER */
        return GM_FAIL(GM_ECORRUPT,
                       "%s: became shorter while in use (reading bytes %zu to %zu); "
                       "put the file back and start again",
                       b->path, offset, offset + n);
    guard_on = 1;
    atomic_signal_fence(memory_order_seq_cst); /* the copy stays between the two stores */
    memcpy(to, b->data + offset, n);
    atomic_signal_fence(memory_order_seq_cst);
    guard_on = 0;
    return GM_OK;
}

/* ---- opening ---- */

static gm_status open_regular(const char *path, int *fd, size_t *size)
{
    struct stat s;
    int         f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo must not make us wait */
    if (f < 0) return GM_FAIL(GM_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(f, &s) || !S_ISREG(s.st_mode)) {
        close(f);
        return GM_FAIL(GM_EIO, "%s: is not a regular file", path);
    }
    *fd = f, *size = (size_t)s.st_size;
    return GM_OK;
}

static gm_status keep_path(const char *path, gm_bytes *out)
{
    *out = (gm_bytes){.path = strdup(path)};
    return out->path ? GM_OK : GM_FAIL(GM_ENOMEM, "%s: no memory for its name", path);
}

gm_status gm_bytes_map(const char *path, gm_access access, gm_bytes *out)
{
    int    fd;
    size_t size;
    pthread_once(&guard_once, guard_install);
    GM_TRY(open_regular(path, &fd, &size));
    gm_status st = keep_path(path, out);
    if (st == GM_OK && size) {
        void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) st = GM_FAIL(GM_EIO, "%s: cannot be mapped: %s", path, strerror(errno));
        else {
            madvise(p, size, access == GM_ACCESS_RANDOM ? MADV_RANDOM : MADV_SEQUENTIAL);
            out->data = p, out->size = size, out->mapped = true;
        }
    }
    close(fd);
    if (st != GM_OK) gm_bytes_close(out);
    return st;
}

/* ---- gzip ---- */

typedef struct gz {
    const char   *path;
    int           fd;
    z_stream      z;
    bool          ended;
    unsigned char in[1 << 16];
} gz;

static gm_status gz_refill(gz *g)
{
    ssize_t n;
    do n = read(g->fd, g->in, sizeof g->in);
    while (n < 0 && errno == EINTR);
    if (n < 0) return GM_FAIL(GM_EIO, "%s: cannot be read: %s", g->path, strerror(errno));
    g->z.next_in = g->in, g->z.avail_in = (unsigned)n;
    return GM_OK;
}

/* Inflates up to n bytes; *got < n only at the end of the stream. */
static gm_status gz_take(gz *g, unsigned char *to, size_t n, size_t *got)
{
    *got = 0;
    while (*got < n && !g->ended) {
        if (!g->z.avail_in) {
            GM_TRY(gz_refill(g));
            if (!g->z.avail_in)
                return GM_FAIL(GM_ECORRUPT, "%s: the gzip stream ends early, after %zu inflated bytes; fetch it again",
                               g->path, (size_t)g->z.total_out);
        }
        size_t room = n - *got < 1u << 30 ? n - *got : 1u << 30;
        g->z.next_out = to + *got, g->z.avail_out = (unsigned)room;
        int rc = inflate(&g->z, Z_NO_FLUSH);
        *got += room - g->z.avail_out;
        if (rc == Z_STREAM_END) g->ended = true;
        else if (rc == Z_MEM_ERROR) return GM_FAIL(GM_ENOMEM, "%s: no memory to inflate it", g->path);
        else if (rc != Z_OK && rc != Z_BUF_ERROR)
            return GM_FAIL(GM_ECORRUPT, "%s: damaged gzip data near inflated byte %zu: %s; fetch it again", g->path,
                           (size_t)g->z.total_out, g->z.msg ? g->z.msg : "not a gzip file");
    }
    return GM_OK;
}

/* The stream must end here, its CRC right, and the file with it. */
static gm_status gz_finish(gz *g, size_t total)
{
    unsigned char extra;
    size_t        got;
    GM_TRY(gz_take(g, &extra, 1, &got));
    if (got) return GM_FAIL(GM_ECORRUPT, "%s: inflates to more than the %zu bytes its header tells", g->path, total);
    if (!g->z.avail_in) GM_TRY(gz_refill(g));
    if (g->z.avail_in) return GM_FAIL(GM_ECORRUPT, "%s: has bytes after the end of its gzip stream", g->path);
    return GM_OK;
}

static gm_status gz_read(gz *g, size_t file_size, size_t head, gm_size_rule rule, gm_bytes *out)
{
    unsigned char first[352], *data;
    size_t        got, more, total;
    GM_TRY(gz_take(g, first, head < sizeof first ? head : sizeof first, &got));
    GM_TRY(rule(g->path, first, got, &total));
    if (total / 1032 > file_size)
        return GM_FAIL(GM_ECORRUPT, "%s: its header asks for %zu bytes, more than %zu bytes of gzip can hold", g->path,
                       total, file_size);
    if (got > total)
        return GM_FAIL(GM_ECORRUPT, "%s: inflates to more than the %zu bytes its header tells", g->path, total);
    if (!(data = malloc(total ? total : 1)))
        return GM_FAIL(GM_ENOMEM, "%s: no memory for %zu inflated bytes", g->path, total);
    memcpy(data, first, got);
    out->data = data, out->size = total; /* gm_bytes_close frees it, also on the failures below */
    GM_TRY(gz_take(g, data + got, total - got, &more));
    if (got + more < total)
        return GM_FAIL(GM_ECORRUPT, "%s: inflates to %zu bytes, its header tells %zu; fetch it again", g->path,
                       got + more, total);
    return gz_finish(g, total);
}

gm_status gm_bytes_inflate(const char *path, size_t head, gm_size_rule rule, gm_bytes *out)
{
    size_t size;
    gz    *g = calloc(1, sizeof *g);
    if (!g) return GM_FAIL(GM_ENOMEM, "%s: no memory to inflate it", path);
    g->path = path;
    gm_status st = open_regular(path, &g->fd, &size);
    if (st != GM_OK) {
        free(g);
        return st;
    }
    if (inflateInit2(&g->z, 16 + MAX_WBITS) != Z_OK) st = GM_FAIL(GM_ENOMEM, "%s: no memory to inflate it", path);
    else {
        st = keep_path(path, out);
        if (st == GM_OK) st = gz_read(g, size, head, rule, out);
        if (st != GM_OK) gm_bytes_close(out);
        inflateEnd(&g->z);
    }
    close(g->fd);
    free(g);
    return st;
}

void gm_bytes_forget(const gm_bytes *b)
{
    if (b->mapped && b->size) (void)madvise((void *)(uintptr_t)b->data, b->size, MADV_DONTNEED);
}

void gm_bytes_close(gm_bytes *b)
{
    if (b->mapped) munmap((void *)(uintptr_t)b->data, b->size);
    else free((void *)(uintptr_t)b->data);
    free(b->path);
    *b = (gm_bytes){0};
}
