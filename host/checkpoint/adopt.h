/* adopt.h - makes a checkpoint of a safetensors file that somebody else writes, tensor after tensor: so a model of any
 * size becomes a checkpoint without being in memory.
 *
 *     gm_adopt_begin(folder, 0, &a);                  // makes step-00000000.tmp, as a save does (checkpoint.h)
 *     ... write gm_adopt_file(a), whole tensors under their names ...
 *     gm_adopt_finish(a, meta);                       // checks the file, sums it, writes the index, publishes
 *     gm_adopt_free(a);                               // removes what was not finished
 *
 * The result is what a save of one rank would have written. One process alone. */
#ifndef GM_CHECKPOINT_ADOPT_H
#define GM_CHECKPOINT_ADOPT_H

#include "checkpoint.h"

typedef struct gm_adopt gm_adopt;

/* GM_EIO: the folder cannot be made, or another process has it. GM_ENOMEM. */
gm_status   gm_adopt_begin(const char *folder, int64_t step, gm_adopt **out);
const char *gm_adopt_file(const gm_adopt *a); /* the safetensors file to write */
const char *gm_adopt_path(const gm_adopt *a); /* the checkpoint, once finished */
/* meta: JSON. GM_ECORRUPT: the file is no safetensors file. GM_EINVAL: it has a type that checkpoints do not have, or
 * meta is no JSON. GM_EIO. GM_ENOMEM. */
gm_status gm_adopt_finish(gm_adopt *a, const char *meta);
void      gm_adopt_free(gm_adopt *a); /* NULL is allowed */

#endif
