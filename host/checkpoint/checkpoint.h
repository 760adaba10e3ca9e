/* checkpoint.h - checkpoints are global tensors: any number of files, any layout, valid or invisible.
 *
 *     DIR/step-00001200/rank-00000.safetensors   the boxes that rank 0 held
 *     DIR/step-00001200/index.json               format, version, world, files, tensors, meta, crc32c
 *
 * The index lists for every tensor dtype, global shape and boxes { offset, shape, file, begin, bytes,
 * crc32c }; begin counts from the start of the file. Its last field is the CRC32C of all bytes before it.
 * A box is stored under the tensor's name when it is the whole tensor, so that a checkpoint of one rank
 * is a plain safetensors file; else under "name[begin:end,...]".
 *
 * Saving writes into step-N.tmp, syncs files and folder, renames, syncs the parent: a crash at any
 * moment leaves the checkpoint whole or unseen. What is called *.tmp is never read, and removed by the
 * next save. Opening checks everything: checksums, geometry (boxes cover each tensor once), headers.
 *
 * Errors: GM_ECORRUPT damaged; GM_EIO the system refused, the message names the file; after a failed
 * save older checkpoints are as they were and the .tmp folder is gone. */
#ifndef GM_CHECKPOINT_H
#define GM_CHECKPOINT_H

#include "box.h"

/* A piece of a global tensor in memory. */
typedef struct gm_piece {
    const char      *name;
    const gm_tensor *tensor;                                  /* any strides; CPU memory */
    int64_t          shape[GM_MAX_DIMS], offset[GM_MAX_DIMS]; /* of the global tensor; where the piece lies in it */
} gm_piece;

/* Saves a checkpoint of one rank: the pieces are whole tensors, each name once. meta: a JSON text with
 * whatever else is needed to go on. keep_last > 0: only so many steps are kept, never fewer than this
 * one. An older checkpoint of the same step is replaced. *path is to be freed. */
gm_status gm_checkpoint_save(const char *folder, int64_t step, const gm_piece *pieces, int n, const char *meta,
                             int keep_last, char **path);

/* The steps in a folder that are complete by name, ascending; to be freed. No folder: none. */
gm_status gm_checkpoint_list(const char *folder, int64_t **steps, int *n);
char     *gm_checkpoint_path(const char *folder, int64_t step); /* to be freed; NULL: no memory */

typedef struct gm_checkpoint gm_checkpoint;

typedef struct gm_stored {
    const char *name;
    gm_dtype    dtype;
    int         ndim;
    int64_t     shape[GM_MAX_DIMS]; /* global */
    int         boxes;
    uint64_t    bytes;
} gm_stored;

/* Opens and verifies all of it. */
gm_status gm_checkpoint_open(const char *path, gm_checkpoint **out);
void      gm_checkpoint_close(gm_checkpoint *c); /* NULL is allowed */

const char *gm_checkpoint_meta(const gm_checkpoint *c); /* JSON */
int         gm_checkpoint_world(const gm_checkpoint *c);
int         gm_checkpoint_count(const gm_checkpoint *c);
gm_stored   gm_checkpoint_at(const gm_checkpoint *c, int i);              /* by name, 0 <= i < count */
int         gm_checkpoint_find(const gm_checkpoint *c, const char *name); /* -1: no such tensor */

/* Fills a tensor that is the box at `offset` (NULL: the whole, whose shape must then be equal) of a
 * stored one, from whatever boxes it meets. dtypes must be equal, or `cast` be true. GM_ESHAPE. */
gm_status gm_checkpoint_read(const gm_checkpoint *c, const char *name, const int64_t *offset, bool cast, gm_tensor *to);

#endif
