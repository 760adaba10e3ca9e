/* arena.h - memory of the host that other processes of this machine can map: one range of addresses, of which blocks
 * are handed out.
 *
 * The range is a file without a name (memfd_create): nothing is left of it after any death. It costs memory only where
 * a block is in use. A process that maps the whole range once sees every block, at the distance from its start that the
 * block has here, so that blocks come and go without a word between processes. The memory of a block goes back to the
 * system as soon as the block is given back, whoever maps the range. A forked process does not have the range. */
#ifndef GM_ARENA_H
#define GM_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include "status.h"

#define GM_ARENA_NAME "ganymede-tensors" /* of the file, as /proc/PID/maps shows it */

typedef struct gm_arena gm_arena;

/* Makes a range as large as the machine's memory, at most 256 GiB, and at most 1/16 of the addresses that the
 * process may have (ulimit -v). GM_EINVAL: the system refuses; the message says what. */
gm_status gm_arena_new(gm_arena **out);
void      gm_arena_free(gm_arena *a); /* when no block is in use; NULL is allowed */

/* Gives a block of at least so many bytes, 4096-aligned, and of 2 MiB from that size on. Its memory is there: to touch
 * it cannot fail. GM_ENOMEM: the range or the system has no more. */
gm_status gm_arena_take(gm_arena *a, size_t bytes, void **out);
void      gm_arena_give(gm_arena *a, void *block, size_t bytes); /* bytes: as it was taken */

char  *gm_arena_base(const gm_arena *a);
size_t gm_arena_size(const gm_arena *a); /* of the range, in bytes */
int    gm_arena_file(const gm_arena *a); /* its descriptor, owned by a: others open it by /proc/PID/fd/N */

#endif
