/* window.h - memory that a rank shares with the other ranks of its machine: rings that it fills and they empty, a bell
 * by which they wake it, and the arena in which tensors may lie.
 *
 * What a message costs is the number of lines of memory that go from one core's cache to the other's. The count of what
 * was put into a ring therefore lies beside the bell of its reader, in one line. Both ends keep their own count, and
 * the writer asks for the other one only where the ring seems full. A reader that waits for a message at once looks at
 * neither, but at the letter of the large ring: one line, which has the count, too, and repeats what was put last if
 * that is short. So such a message moves one line.
 *
 * The memory has no name (memfd_create): it is there as long as a process maps it, and nothing is left after any death.
 * Others open it as a file of the owner (/proc/PID/fd/N), which works for processes of one user that see each other.
 * It costs memory only where something was written. Each ring has one writer, the owner, and one reader.
 *
 * The bell is a count that whoever did something for the owner raises. A rank reads it before it looks around, and
 * sleeps only while it has not changed: so nothing is missed, whoever comes first. */
#ifndef GM_WINDOW_H
#define GM_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "../../kernels/status.h"

typedef struct gm_window gm_window;

typedef struct gm_window_shape { /* the same for all ranks of a machine */
    int    n;                    /* readers: of each 2 rings, 2 i and 2 i + 1 */
    size_t large, small;         /* bytes of the even and of the odd rings, powers of 2, at least 64 */
} gm_window_shape;

/* Makes the window of this rank; *fd: by which others open it, to be closed by the caller. key: that tells it from all
 * others. GM_EINVAL: the system refuses; why. */
gm_status gm_window_make(const gm_window_shape *shape, uint64_t key, gm_window **out, int *fd);
/* Opens that of another process. GM_EINVAL: there is none of this key, or it may not be opened; why. */
gm_status gm_window_open(const gm_window_shape *shape, uint64_t key, int pid, int fd, gm_window **out);
void      gm_window_close(gm_window *w); /* NULL is allowed */

/* One end of a ring, of the process that made it: counts of bytes (modulo 2^32), and where the rest lies. */
typedef struct gm_ring {
    gm_window        *writer, *reader;
    char             *bytes;
    uint32_t          size;
    int               at;   /* of its two counts: which in the reader's window is of what was put, */
    int               ends; /* and which in the writer's of what was taken */
    uint32_t          put, got;
    struct gm_letter *letter; /* NULL: the ring is a small one */
} gm_ring;

/* The ring in the window `writer` for the rank at place `to`, whose window is `reader`; the writer is at place `from`.
 * small: the odd one of the two. Each end is made once, before anything is put. */
gm_ring gm_ring_of(gm_window *writer, int from, gm_window *reader, int to, bool small);
/* The writer: puts in as much as there is room for, and rings the reader's bell. 0: there was none, and the reader will
 * ring when there is some. */
size_t gm_ring_put(gm_ring *r, const struct iovec *parts, int n);
#define GM_LETTER 48 /* bytes of a message that a letter repeats */

/* Puts two parts into a large ring, `whole` bytes with what follows them, of any value, or nothing: false, there is no
 * room now, and the reader will not ring. The letter repeats the second part under a label, which is not 0. */
bool gm_ring_put_letter(gm_ring *r, const struct iovec parts[2], size_t whole, uint64_t label);
/* The reader. 1: all that is in the ring was put with this label and has `whole` bytes, of which the letter repeats n
 * (at most GM_LETTER): they are in `to`, and the ring is to be skipped. 0: the ring is empty. -1: neither. After -1,
 * `to` may hold anything. */
int gm_ring_read_letter(const gm_ring *r, uint64_t label, size_t whole, void *to, size_t n);
/* As look, by the count of the letter. */
const char *gm_ring_look_at_once(const gm_ring *r, size_t *n);
/* The reader. look: what is there in one piece. skip: that has been read; rings if the writer waits for room. */
const char *gm_ring_look(const gm_ring *r, size_t *n);
void        gm_ring_skip(gm_ring *r, size_t n);

/* The arena (arena.h) of another rank, mapped as a whole. */
typedef struct gm_reach {
    char    *here; /* its first byte in this process; NULL: it is not mapped */
    uint64_t base; /* and in the process that owns it */
    uint64_t size;
} gm_reach;

/* Maps the range [base, base + size) of a process, whose file is fd there. GM_EINVAL: that is no arena of this size, or
 * it may not be opened; why. */
gm_status gm_reach_open(int pid, int fd, uint64_t base, uint64_t size, gm_reach *out);
void      gm_reach_close(gm_reach *r); /* of zeros is allowed */
/* Where n bytes at address `at` of the owner lie here; NULL: not in the arena. */
char *gm_reach_at(const gm_reach *r, uint64_t at, size_t n);

/* Does the system let this process read the memory of another one? There, `key` is at address `at`. */
bool gm_reads_memory(int pid, uint64_t at, uint64_t key);

void     gm_window_ring(gm_window *w); /* wakes its owner */
uint32_t gm_window_rung(gm_window *w); /* so often, for the owner */
/* Sleeps until the bell has been rung more than `seen` times, a signal comes, or after so many seconds. */
void gm_window_sleep(gm_window *w, uint32_t seen, double seconds);

#endif
