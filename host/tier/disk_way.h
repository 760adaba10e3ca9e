/* disk_way.h - how pieces of transfers reach the system: io_uring, or threads. Inside of disk.c alone. */
#ifndef GM_DISK_WAY_H
#define GM_DISK_WAY_H

#include "disk.h"

typedef struct gm_disk_piece {
    bool                  write, direct; /* direct: it bypasses the page cache */
    int                   fd;
    uint64_t              at;
    char                 *memory;
    size_t                bytes;  /* what this attempt shall move */
    int64_t               result; /* what it has moved, or -errno */
    gm_disk_transfer     *of;
    size_t                rest; /* of the piece, bytes included */
    struct gm_disk_piece *next;
} gm_disk_piece;

typedef struct gm_disk_way {
    /* GM_EIO: this system has no such way; gm_last_error says why. depth: pieces under way at most. */
    gm_status (*open)(int depth, void **state);
    void (*submit)(void *state, gm_disk_piece *piece); /* borrowed until it is reaped; failures are its result */
    /* A piece that has ended, or NULL: none in so many seconds. */
    gm_disk_piece *(*reap)(void *state, double seconds);
    void (*close)(void *state);
} gm_disk_way;

/* Asks reap for what has ended, for a second at a time, until these seconds are as many as `deadline`: a process that
 * was stopped (SIGSTOP, a suspended job) or had no core in one of them has the others, and so has the disk. false:
 * nothing has ended. */
bool gm_disk_ask(bool (*reap)(void *context, double seconds), void *context, double deadline);

extern const gm_disk_way gm_disk_uring, gm_disk_threads;

#endif
