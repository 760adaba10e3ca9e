/* shard.h - one rank's file of a checkpoint: the boxes that the plan gave it, in order of their names.
 *
 * It is written from the tensors themselves, or from a copy that gm_shard_copy made; after the copy the caller's
 * tensors are not read any more. Data goes through a buffer of fixed size, whatever the strides. */
#ifndef GM_CHECKPOINT_SHARD_H
#define GM_CHECKPOINT_SHARD_H

#include <stdatomic.h>
#include "index.h"
#include "plan.h"
#include "safetensors.h"

typedef struct gm_shard {
    gm_index          index;   /* one file, the tensors of which it holds a box, one box each */
    gm_safetensor    *entries; /* one a box */
    const gm_tensor **tensors; /* where each comes from; NULL entries once copied */
    char             *header, *buffer, *copy;
    size_t            header_size;
    uint64_t          bytes; /* of data */
} gm_shard;

/* GM_ENOMEM (or a name that is not UTF-8); the shard is to be freed also then. */
gm_status gm_shard_new(int world, int rank, const gm_piece *pieces, const gm_planned *planned, int n, gm_shard *out);
/* GM_ENOMEM: more than `limit` bytes, or the system has none; the tensors are written themselves then. */
gm_status gm_shard_copy(gm_shard *s, uint64_t limit);
/* Writes and syncs the file; fills the index. GM_EINTERRUPT when *stop became true meanwhile. */
gm_status gm_shard_write(gm_shard *s, const char *folder, const atomic_bool *stop);
void      gm_shard_free(gm_shard *s); /* a zeroed one is allowed */

#endif
