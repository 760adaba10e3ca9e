/* disk.h - one file of a rank as a second memory: aligned ranges of bytes that are read and written while the program
 * works on others.
 *
 *     gm_disk_open(&(gm_disk_settings){.folder = "/scratch"}, &d);
 *     gm_disk_reserve(d, bytes, &at);             // space: a full disk is an error here, not later
 *     gm_disk_write(d, at, memory, bytes, &t);    // returns at once
 *     gm_disk_wait(d, t);                         // memory may change; the file has the bytes
 *
 * The file has no name, so whatever ends the process also frees its space. Transfers go through io_uring, or where the
 * system refuses that, through threads that call pread and pwrite. They bypass the page cache (O_DIRECT), or where the
 * file system refuses that, pass through it. Both choices are told to `say`, once each.
 *
 * A transfer is cut into pieces. At most `depth` pieces are under way; the others wait in order. Transfers are not
 * ordered: a range that is under way must not be touched by another one. Memory stays where it is until the wait.
 * The first failure stays: every later call fails with the same message, since bytes may be lost. One thread. */
#ifndef GM_DISK_H
#define GM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../../kernels/status.h"
#include "spans.h"

#define GM_DISK_ALIGN ((size_t)4096) /* addresses, places and numbers of bytes are multiples of it */

typedef struct gm_disk          gm_disk;
typedef struct gm_disk_transfer gm_disk_transfer; /* a ticket: what began; gm_disk_wait takes it back */

typedef enum gm_disk_event { GM_DISK_RESERVES, GM_DISK_READS, GM_DISK_WRITES } gm_disk_event;

typedef struct gm_disk_settings {
    const char *folder;
    int         depth;    /* pieces under way at most; 0: 256 */
    size_t      piece;    /* bytes of a piece, a multiple of GM_DISK_ALIGN; 0: 4 MiB */
    double      deadline; /* seconds without an answer of the disk after which a wait fails; 0: 120 */
    bool        threads;  /* pread and pwrite also where io_uring is there */
    bool        buffered; /* through the page cache also where O_DIRECT is there */
    void (*say)(void *context, const char *text); /* NULL: nobody hears of choices */
    void *say_context;
    /* For tests: called before each reservation and piece. Returns how many of the bytes are moved, or an errno as a
     * negative number; INT64_MIN: the answer never comes. */
    int64_t (*fault)(void *context, gm_disk_event event, uint64_t at, size_t bytes);
    void *fault_context;
} gm_disk_settings;

typedef struct gm_disk_stats {
    uint64_t size;             /* of the file: bytes taken from the file system */
    uint64_t reserved;         /* of these, in ranges that are reserved now */
    uint64_t read, written;    /* bytes moved since the beginning */
    double   waited;           /* seconds in gm_disk_wait */
    bool     direct, io_uring; /* how bytes travel */
} gm_disk_stats;

/* GM_EIO: the folder takes no files; GM_EINVAL, GM_ENOMEM. The folder must exist. */
gm_status gm_disk_open(const gm_disk_settings *settings, gm_disk **out);
/* Waits for what is under way, deadline seconds at most. NULL is allowed. Reservations and waits end with it. */
void gm_disk_close(gm_disk *d);

/* A range of its own; what it holds is undefined. bytes are rounded up to GM_DISK_ALIGN. GM_EIO: the disk is full. */
gm_status gm_disk_reserve(gm_disk *d, uint64_t bytes, uint64_t *at);
void      gm_disk_give_back(gm_disk *d, uint64_t at, uint64_t bytes); /* nothing of it is under way */
/* Takes space from the file system until the next `bytes` bytes of ranges can be reserved without any more. */
gm_status gm_disk_prepare(gm_disk *d, uint64_t bytes);

/* Begin a transfer of a reserved range. GM_EINVAL: not aligned, or outside of the file. */
gm_status gm_disk_read(gm_disk *d, uint64_t at, void *to, size_t bytes, gm_disk_transfer **out);
gm_status gm_disk_write(gm_disk *d, uint64_t at, const void *from, size_t bytes, gm_disk_transfer **out);
/* Waits until it is done, and frees the ticket in any case. */
gm_status gm_disk_wait(gm_disk *d, gm_disk_transfer *t);
/* Is it done, or has it failed? Does not wait. */
bool gm_disk_is_done(gm_disk *d, gm_disk_transfer *t);

gm_disk_stats gm_disk_stats_of(const gm_disk *d);
/* A number of bytes for a message, such as "64.0 KiB", written into text; returns text. */
const char *gm_disk_amount(uint64_t bytes, char text[32]);
/* When it moved bytes, if that is recorded (gm_disk_spans_set); borrowed. */
gm_disk_spans *gm_disk_spans_of(gm_disk *d);

#endif
