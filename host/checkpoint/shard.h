/* shard.h - one rank's file of a checkpoint: the boxes that the plan gave it, in order of their names.
 *
 * It is written from the tensors themselves, or from a copy that gm_shard_copy made; after the copy the caller's
 * tensors are not read any more. Data goes through a buffer of fixed size, whatever the strides. */
#ifndef GM_CHECKPOINT_SHARD_H
#define GM_CHECKPOINT_SHARD_H

#include <stdatomic.h>
#include "index.h"
#include "plan.h"
#include "../arrays/safetensors.h"

typedef struct gm_shard {
    gm_index          index;   /* of this one file: the tensors of which it holds a box, with one box each */
    gm_array         *entries; /* one for each box */
    const gm_tensor **tensors; /* the tensor of each box; NULL after it was copied */
    char             *header, *buffer, *copy;
    size_t            header_size;
    uint64_t          bytes; /* bytes of data */
} gm_shard;

/* Makes the shard of a rank; the caller frees it, also after a failure. GM_EINVAL: a name is not UTF-8, or there are
 * too many tensors for one file. GM_ESHAPE: a tensor is too large. */
gm_status gm_shard_new(int world, int rank, const gm_piece *pieces, const gm_planned *planned, int n, gm_shard *out);
/* Copies the data. GM_ENOMEM: it is more than `limit` bytes, or the system has no memory; the shard is then written
 * from the tensors themselves. GM_EINVAL: a tensor has no data. */
gm_status gm_shard_copy(gm_shard *s, uint64_t limit);
/* Writes and syncs the file, and fills the index. GM_EINTERRUPT: *stop became true meanwhile. GM_EINVAL: a tensor has
 * no data. */
gm_status gm_shard_write(gm_shard *s, const char *folder, const atomic_bool *stop);
void      gm_shard_free(gm_shard *s); /* a zeroed one is allowed */

#endif
