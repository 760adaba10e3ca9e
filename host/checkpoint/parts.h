/* parts.h - the ranks that write one checkpoint report success or failure through files in its folder.
 *
 *     rank-00002.safetensors   data of rank 2          rank-00002.json     an index of that file alone: written last,
 *                                                                          synced, seen whole or not at all
 *     rank-00002.failed        why there will be none
 *
 * The .json and .failed files go before the checkpoint is published. Where ranks share no folder (apart.h) nothing is
 * published: the .json files stay, and that of rank 0 holds the state that is no tensor. A part carries the token of
 * its save (drawn by rank 0) and the digest of its plan, so that nothing of another save, or of ranks that disagree
 * about what is saved, can get into a checkpoint. */
#ifndef GM_CHECKPOINT_PARTS_H
#define GM_CHECKPOINT_PARTS_H

#include "index.h"

typedef struct gm_part_stamp {
    const char *token;
    uint32_t    digest;
    int         world;
    const char *state; /* JSON that is no tensor, kept with the part; NULL: none */
} gm_part_stamp;

typedef enum gm_part_state { GM_PART_NONE, GM_PART_READY, GM_PART_FAILED } gm_part_state;

char *gm_part_file(int rank);  /* "rank-00002.safetensors"; the caller frees it; NULL: no memory */
char *gm_part_index(int rank); /* "rank-00002.json"; likewise */

/* Writes the rank's .json file, which says that its data is complete. Sets part->meta. */
gm_status gm_part_announce(const char *folder, int rank, gm_index *part, const gm_part_stamp *stamp);
/* Removes what an earlier save has left of the rank's part: first the .json file, so that no part seems whole. */
void gm_part_drop(const char *folder, int rank);
/* Removes the rank's data, since the disk may be full, and writes the reason, as far as the system allows it. */
void          gm_part_fail(const char *folder, int rank, const char *why);
gm_part_state gm_part_look(const char *folder, int rank);
/* Reads a rank's part. GM_ECORRUPT: the part is not of this rank and save. GM_EIO: that rank failed; its message. */
gm_status gm_part_read(const char *folder, int rank, const gm_part_stamp *stamp, gm_index *out);
/* Removes the rank's .json and .failed files, which are not published. */
gm_status gm_part_forget(const char *folder, int rank);

#endif
