/* stage.h - copies of messages in the sender's arena, where the receivers read them without the system.
 *
 * Memory of a process is read by others through the system (process_vm_readv), which pins it page by page and copies
 * at some 13 GB/s. And each line of it is in the caches of two cores afterwards. Where it is slow to write to such a
 * line (lines.h), the owner pays whenever it writes to the tensor again, in whatever op. So a message is copied there
 * into a block of the arena by stores that do not wait for lines, and the lines of the tensor stay with their owner.
 * Elsewhere a message that is only read is copied where several ranks read it, or the system forbids to read it where
 * it lies. Terms of sums always are: a sum goes back into the copies in the same pass (docs/performance_ranks.md has
 * the figures).
 *
 * Blocks are kept for later messages, 32 MiB of them at most. Messages longer than 1 MiB (terms of an all_reduce, where
 * lines are slow: 8 MiB), those for which no block is free, and those of an operation that sends more than 1 MiB in all
 * are read by the system: so many copies cost more than they save. Terms of sums are copied however many there are.
 */
#ifndef GM_STAGE_H
#define GM_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include "../../kernels/arena.h"
#include "lines.h"

#define GM_STAGE_ALONE (-1)

typedef struct gm_stage gm_stage;

/* The arena must outlive it. messages: those that are only read are copied, too; stores: how. GM_ENOMEM. */
gm_status gm_stage_new(gm_arena *arena, bool messages, gm_line_stores stores, gm_stage **out);
void      gm_stage_free(gm_stage *s); /* also copies that are in use; NULL is allowed */

/* Returns a copy of the bytes: the one that other messages of this operation (its tag) have in use, or a new one. tag
 * GM_STAGE_ALONE: a new one, to which the receiver may write. NULL: they are in the arena themselves, too many, not to
 * be copied, or no block is free. */
char *gm_stage_put(gm_stage *s, const void *bytes, size_t n, int tag);
/* The operation of this tag sends so many bytes, those for several ranks counted once; the same ones go to so many
 * ranks, at most. */
void gm_stage_tell(gm_stage *s, int tag, size_t bytes, int ranks);
void gm_stage_drop(gm_stage *s, const char *copy); /* one use of it ends */

#endif
