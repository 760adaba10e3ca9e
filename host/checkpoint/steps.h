/* steps.h - the folder that holds the checkpoints of a run: names, lists, removal of leftovers and old checkpoints.
 *
 *     DIR/step-00001200        a checkpoint          DIR/step-00001200.tmp    one being made, or being removed
 *
 * Folders called *.tmp are never read. Only one rank may call gm_steps_prepare, gm_steps_publish and gm_steps_prune. */
#ifndef GM_CHECKPOINT_STEPS_H
#define GM_CHECKPOINT_STEPS_H

#include <stdint.h>
#include "../../kernels/status.h"

/* Gives "DIR/step-<8 digits or more><ending>"; the caller frees it. NULL: no memory. */
char *gm_steps_path(const char *folder, int64_t step, const char *ending);
/* Lists the steps of the checkpoints in a folder, ascending; the caller frees the list. Folders called *.tmp do not
 * count. If there is no folder, the list is empty. */
gm_status gm_steps_list(const char *folder, int64_t **steps, int *n);

/* Makes the folder and locks it, removes leftovers of interrupted saves and removals, and makes the folder `beside`.
 * *lock must be -1 before; the caller closes it, also after a failure, which ends the lock. GM_EIO: another process has
 * the lock. */
gm_status gm_steps_prepare(const char *folder, const char *beside, int *lock);
/* Syncs `beside` to disk and renames it to `target`. From then on the checkpoint exists. If there is a checkpoint of
 * the same step, both are exchanged in one operation, so that one of them exists at every moment; the old one is then
 * in `beside`. */
gm_status gm_steps_publish(const char *folder, const char *beside, const char *target);
/* Removes the oldest checkpoints until keep_last are left beside that of step `spared` (-1: none), but never the one
 * just saved. */
gm_status gm_steps_prune(const char *folder, int keep_last, int64_t saved, int64_t spared);

#endif
