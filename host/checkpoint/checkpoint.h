/* checkpoint.h - checkpoints are global tensors: any number of files, any layout, valid or invisible.
 *
 *     DIR/step-00001200/rank-00000.safetensors   the boxes that rank 0 wrote; one such file a rank
 *     DIR/step-00001200/index.json               format, version, world, files, tensors, meta, crc32c
 *
 * The index lists for every tensor dtype, global shape and boxes { offset, shape, file, begin, bytes,
 * crc32c }; begin counts from the start of the file. Its last field is the CRC32C of all bytes before it.
 * A box is stored under the tensor's name when it is the whole tensor, so that a checkpoint of one rank
 * is a plain safetensors file; else under "name[begin:end,...]".
 *
 * Saving. Every rank writes the boxes that are its own (plan.h) into step-N.tmp, then what they are
 * (parts.h). Rank 0 waits for all parts, checks that they cover every tensor once, writes the index, syncs, renames,
 * syncs the parent: a crash at any moment leaves the checkpoint whole or unseen. What is called *.tmp is never
 * read, and removed by the next save. All of this happens in a thread that knows neither Lua nor MPI, from a
 * copy of what the rank writes; or at once, where no copy is asked for or no memory is left for one.
 *
 *     all ranks   gm_save_list       of a pipeline only: what this stage holds; stages tell each other
 *     all ranks   gm_save_new        refuses what cannot be saved; nothing is written yet
 *     rank 0      gm_save_prepare    makes step-N.tmp; its token goes to all ranks (a broadcast)
 *     all ranks   gm_save_start      returns when the tensors may change again
 *     all ranks   gm_save_wait       part written; then ranks that failed are made known, and rank 0 is told
 *     rank 0      gm_save_wait       done: gm_save_result is what became of the whole
 *
 * Opening checks everything: checksums, geometry (boxes cover each tensor once), headers. Several ranks share the
 * checksums of data.
 *
 * Errors: GM_ECORRUPT damaged; GM_EIO the system refused, the message names the file; after a failed
 * save older checkpoints are as they were and the .tmp folder is gone. */
#ifndef GM_CHECKPOINT_H
#define GM_CHECKPOINT_H

#include "../mesh/layout.h"
#include "box.h"

/* A global tensor and the block of it that a rank holds. */
typedef struct gm_piece {
    const char      *name;
    const gm_tensor *tensor; /* the block, padded as its layout says; any strides; CPU memory. NULL: not held here */
    gm_dtype         dtype;
    int              ndim;
    int64_t          shape[GM_MAX_DIMS]; /* global */
    gm_layout        layout;             /* the same on all ranks that hold it */
    const bool      *stages; /* by coordinate along the axis `pipeline`: is it held there? NULL: by all ranks */
} gm_piece;

/* One that all ranks hold; shape is the global one. The piece borrows name and block. */
gm_piece gm_piece_of(const char *name, const gm_tensor *block, const gm_layout *layout, const int64_t *shape);

/* ---- saving ---- */

typedef struct gm_save gm_save; /* one under way */

/* The stages of a pipeline hold different tensors; what is saved is the union. A list says which, in bytes: those that
 * gm_save_list gives on a rank, and the ranks that differ only along `pipeline` exchange. */
typedef struct gm_stage_list {
    const char *bytes;
    size_t      size;
} gm_stage_list;

/* The list of these pieces; *bytes is to be freed. GM_ENOMEM. */
gm_status gm_save_list(const gm_piece *pieces, int n, char **bytes, size_t *size);

typedef struct gm_save_as {
    const char          *folder;
    int64_t              step;
    const gm_piece      *pieces; /* each name once; the same on all ranks of a stage, blocks aside */
    int                  n;
    const gm_stage_list *lists;     /* by coordinate along `pipeline`; NULL: all ranks save the same pieces */
    const char          *meta;      /* JSON with whatever else is needed to go on; rank 0's is kept */
    int                  keep_last; /* > 0: only so many steps are kept, never fewer than this one */
    int                  rank;
    const gm_mesh       *mesh;
    bool                 background;     /* write from a copy, in a thread */
    uint64_t             snapshot_limit; /* > 0: the copy's bytes at most; always: half of the memory that is available,
                                       divided by the ranks. Beyond it the save is done in the foreground. */
} gm_save_as;

#define GM_SAVE_TOKEN 17 /* bytes of a token, its 0 included */

typedef enum gm_save_state {
    GM_SAVE_WRITING,
    GM_SAVE_WRITTEN, /* this rank's part is on disk, or failed; rank 0 waits for the others' */
    GM_SAVE_DONE
} gm_save_state;

/* GM_EINVAL, GM_ESHAPE: what cannot be saved, or stages that hold different tensors under one name. GM_ENOMEM. */
gm_status gm_save_new(const gm_save_as *as, gm_save **out);
/* Rank 0 alone, while no other save into this folder is under way. token has room for GM_SAVE_TOKEN. GM_EIO. */
gm_status gm_save_prepare(gm_save *s, char *token);
/* Failures to write are no failures of this call: they wait in gm_save_part and gm_save_result. */
gm_status gm_save_start(gm_save *s, const char *token);
bool      gm_save_is_started(const gm_save *s);
/* Of one that was started: any other waits for ever. Returns at that state, or after so many seconds; negative: no
 * limit. */
gm_save_state gm_save_wait(gm_save *s, gm_save_state until, double seconds);
bool          gm_save_in_background(const gm_save *s); /* false although asked for: no memory for the copy */
gm_status     gm_save_part(const gm_save *s);          /* once written: this rank's own part; sets gm_last_error */
gm_status     gm_save_result(const gm_save *s);        /* once done; on rank 0: the whole. Sets gm_last_error */
const char   *gm_save_path(const gm_save *s);          /* what it will be called, or is */
/* Rank 0: all ranks have written their parts; one that cannot be found is lost. */
void gm_save_all_written(gm_save *s);
/* Rank 0: no more parts will come, all other ranks have stopped writing. */
void gm_save_give_up(gm_save *s, const char *why);
/* Stops what is under way as soon as the system lets it (an fsync at worst). NULL is allowed. */
void gm_save_free(gm_save *s);

/* ---- reading ---- */

typedef struct gm_checkpoint gm_checkpoint;

typedef struct gm_stored {
    const char *name;
    gm_dtype    dtype;
    int         ndim;
    int64_t     shape[GM_MAX_DIMS]; /* global */
    int         boxes;
    uint64_t    bytes;
} gm_stored;

/* Opens and verifies all but the checksums of data: of these only share `part` of `parts`. The checkpoint is whole
 * when part 0 .. parts - 1 have all been opened without complaint; 0 of 1 is all of it. */
gm_status gm_checkpoint_open(const char *path, int part, int parts, gm_checkpoint **out);
void      gm_checkpoint_close(gm_checkpoint *c); /* NULL is allowed */

const char *gm_checkpoint_meta(const gm_checkpoint *c); /* JSON */
int         gm_checkpoint_world(const gm_checkpoint *c);
int         gm_checkpoint_count(const gm_checkpoint *c);
gm_stored   gm_checkpoint_at(const gm_checkpoint *c, int i);              /* by name, 0 <= i < count */
int         gm_checkpoint_find(const gm_checkpoint *c, const char *name); /* -1: no such tensor */

/* Fills the block that a rank holds of a piece from whatever boxes it meets, and its padding with zeros. offset:
 * where the piece's global shape begins in the stored tensor (NULL: the whole, whose shape must then be equal).
 * dtypes must be equal, or `cast` be true. GM_ESHAPE. */
gm_status gm_checkpoint_read(const gm_checkpoint *c, const gm_mesh *mesh, int rank, const gm_piece *to,
                             const int64_t *offset, bool cast);

#endif
