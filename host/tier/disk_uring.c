/* disk_uring.c - pieces through io_uring: one submission queue, no thread of ours. */
#include "disk_way.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

typedef struct uring {
    struct io_uring ring;
    gm_disk_piece  *refused; /* pieces that the system did not take: their results are there */
} uring;

static gm_status uring_open(int depth, void **state)
{
    uring *u = calloc(1, sizeof *u);
    if (!u) return GM_FAIL(GM_ENOMEM, "no memory for io_uring");
    int error = -io_uring_queue_init((unsigned)depth, &u->ring, 0);
    if (error) {
        free(u);
        return GM_FAIL(GM_EIO, "io_uring: %s", strerror(error));
    }
    *state = u;
    return GM_OK;
}

static void refuse(uring *u, gm_disk_piece *p, int error)
{
    p->result = error;
    p->next = u->refused;
    u->refused = p;
}

static void uring_submit(void *state, gm_disk_piece *p)
{
    uring               *u = state;
    int                  n;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (!sqe) {
        refuse(u, p, -EBUSY);
        return;
    }
    if (p->write) io_uring_prep_write(sqe, p->fd, p->memory, (unsigned)p->bytes, p->at);
    else io_uring_prep_read(sqe, p->fd, p->memory, (unsigned)p->bytes, p->at);
    io_uring_sqe_set_data(sqe, p);
    do n = io_uring_submit(&u->ring);
    while (n == -EINTR);
    if (n >= 0) return;
    io_uring_prep_nop(sqe); /* the entry stays in the queue: what it ends with is nobody's */
    io_uring_sqe_set_data(sqe, NULL);
    refuse(u, p, n);
}

static gm_disk_piece *uring_reap(void *state, double seconds)
{
    uring                   *u = state;
    struct io_uring_cqe     *cqe;
    struct __kernel_timespec most = {(long long)seconds, (long long)((seconds - (double)(long long)seconds) * 1e9)};
    for (;;) {
        gm_disk_piece *p = u->refused;
        if (p) {
            u->refused = p->next;
            return p;
        }
        int st = seconds > 0 ? io_uring_wait_cqe_timeout(&u->ring, &cqe, &most) : io_uring_peek_cqe(&u->ring, &cqe);
        if (st == -EINTR) continue;
        if (st) return NULL;
        p = io_uring_cqe_get_data(cqe);
        if (p) p->result = cqe->res;
        io_uring_cqe_seen(&u->ring, cqe);
        if (p) return p;
    }
}

static void uring_close(void *state)
{
    uring *u = state;
    io_uring_queue_exit(&u->ring);
    free(u);
}

const gm_disk_way gm_disk_uring = {uring_open, uring_submit, uring_reap, uring_close};
