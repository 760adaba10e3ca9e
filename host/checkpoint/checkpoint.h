/* checkpoint.h - saves and reads checkpoints. A checkpoint stores global tensors, so that any number of ranks in any
 * layout can read it. It is either complete or invisible.
 *
 *     DIR/step-00001200/rank-00000.safetensors   the boxes that rank 0 wrote; one such file a rank
 *     DIR/step-00001200/index.json               format, version, world, files, tensors, meta, crc32c
 *
 * The index lists for every tensor dtype, global shape and boxes { offset, shape, file, begin, bytes,
 * crc32c }; begin counts from the start of the file. Its last field is the CRC32C of all bytes before it.
 * A box is stored under the tensor's name when it is the whole tensor, so that a checkpoint of one rank
 * is a plain safetensors file; else under "name[begin:end,...]".
 *
 * Saving. Every rank writes the boxes that the plan gives it (plan.h) into step-N.tmp, then an index of them
 * (parts.h). Rank 0 waits for all parts, checks that they cover every tensor once, writes the index, syncs it, renames
 * the folder and syncs the parent. A crash at any moment leaves the checkpoint complete or invisible. Folders called
 * *.tmp are never read; the next save removes them. A thread without Lua and MPI does all this from a copy of the
 * rank's data; if no copy is asked for, or memory for it is short, the calling thread does it at once.
 *
 *     all ranks   gm_save_list       of a pipeline only: what this stage holds; stages tell each other
 *     all ranks   gm_save_new        refuses what cannot be saved; nothing is written yet
 *     rank 0      gm_save_prepare    makes step-N.tmp; its token goes to all ranks (a broadcast)
 *     all ranks   gm_save_start      returns when the tensors may change again
 *     all ranks   gm_save_wait       until the part is written; then failures are announced, and rank 0 is told
 *     rank 0      gm_save_wait       done: gm_save_result is what became of the whole
 *
 * Apart. Where ranks share no folder, as in the memory of several machines, each rank saves its part for itself into
 * step-N (gm_save_as.apart), and nobody merges them: gm_save_prepare is left out, and apart.h has what comes after.
 *
 * Opening verifies headers, geometry (boxes cover each tensor once) and checksums; several ranks share the checksums of
 * data.
 *
 * Errors: GM_ECORRUPT: the checkpoint is damaged. GM_EIO: the system refused an operation; the message names the file.
 * A failed save leaves older checkpoints as they were and removes its .tmp folder. */
#ifndef GM_CHECKPOINT_H
#define GM_CHECKPOINT_H

#include "../mesh/layout.h"
#include "../files/extent.h"

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

/* Makes a piece that all ranks hold, of this global shape. The piece borrows name and block. */
gm_piece gm_piece_of(const char *name, const gm_tensor *block, const gm_layout *layout, const int64_t *shape);

/* ---- saving ---- */

typedef struct gm_save gm_save; /* one under way */

/* The stages of a pipeline hold different tensors, and a save writes their union. A list names the tensors of a stage,
 * as bytes: gm_save_list makes it, and the ranks that differ only along `pipeline` exchange their lists. */
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
    int64_t              spared;    /* a step that stays beside these; -1: none */
    int                  rank;
    const gm_mesh       *mesh;
    bool                 apart;          /* the ranks share no folder: this one's part alone is saved */
    int                  sharers;        /* ranks that share the memory for copies; 0: all may be on one machine */
    bool                 background;     /* write from a copy, in a thread */
    uint64_t             snapshot_limit; /* > 0: the copy's bytes at most; always: half of the memory that is available,
                                       divided by the sharers. Beyond it the save is done in the foreground. */
} gm_save_as;

#define GM_SAVE_TOKEN 17 /* bytes of a token, its 0 included */

typedef enum gm_save_state {
    GM_SAVE_WRITING,
    GM_SAVE_WRITTEN, /* this rank's part is on disk, or failed; rank 0 waits for the others' */
    GM_SAVE_DONE
} gm_save_state;

/* Checks the pieces and makes a save; the caller frees it. GM_EINVAL, GM_ESHAPE: a piece cannot be saved, or two stages
 * hold different tensors under one name. GM_ENOMEM. */
gm_status gm_save_new(const gm_save_as *as, gm_save **out);
/* Rank 0 only: makes step-N.tmp and draws the token (room for GM_SAVE_TOKEN bytes). No other save into this folder may
 * be under way. GM_EIO. */
gm_status gm_save_prepare(gm_save *s, char *token);
/* Starts to write. Returns when the tensors may change again. gm_save_part and gm_save_result report failures to
 * write; this call does not. */
gm_status gm_save_start(gm_save *s, const char *token);
bool      gm_save_is_started(const gm_save *s);
/* Waits until a started save reaches this state, or for so many seconds (negative: no limit); returns the state. On a
 * save that was not started it waits for ever. */
gm_save_state gm_save_wait(gm_save *s, gm_save_state until, double seconds);
bool          gm_save_in_background(const gm_save *s); /* false although asked for: no memory for the copy */
gm_status     gm_save_part(const gm_save *s);          /* once written: this rank's own part; sets gm_last_error */
gm_status     gm_save_result(const gm_save *s);        /* once done; on rank 0: the whole. Sets gm_last_error */
const char   *gm_save_path(const gm_save *s);          /* what it will be called, or is */
/* Rank 0: tells the save that all ranks have written their parts; a part that is not found from now on is lost. */
void gm_save_all_written(gm_save *s);
/* Rank 0: tells the save that all other ranks have stopped writing and no more parts will come. */
void gm_save_give_up(gm_save *s, const char *why);
/* Frees a save; stops its writing as soon as the system allows it (after an fsync at worst). NULL is allowed. */
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

/* Opens a checkpoint and verifies it; of the checksums of data only share `part` of `parts`. The checkpoint is intact
 * if parts 0 .. parts - 1 have all been opened without an error; part 0 of 1 verifies everything. */
gm_status gm_checkpoint_open(const char *path, int part, int parts, gm_checkpoint **out);
/* Opens what one rank has saved apart, and verifies it; data: its checksums of data, too. It is read like the whole. */
gm_status gm_checkpoint_open_part(const char *path, int rank, bool data, gm_checkpoint **out);
/* Opens a checkpoint of which files may be missing here. The checksums of data are not verified. Reading from a file
 * that is missing fails with GM_EIO. */
gm_status gm_checkpoint_open_partly(const char *path, gm_checkpoint **out);
void      gm_checkpoint_close(gm_checkpoint *c); /* NULL is allowed */

const char *gm_checkpoint_meta(const gm_checkpoint *c); /* JSON */
int         gm_checkpoint_world(const gm_checkpoint *c);
int         gm_checkpoint_count(const gm_checkpoint *c);
gm_stored   gm_checkpoint_at(const gm_checkpoint *c, int i);              /* by name, 0 <= i < count */
int         gm_checkpoint_find(const gm_checkpoint *c, const char *name); /* -1: no such tensor */

/* Fills the block that a rank holds of a piece from the stored boxes that it meets, and its padding with zeros. offset:
 * where the piece's global shape begins in the stored tensor (NULL: the piece is the whole tensor, of equal shape). The
 * dtypes must be equal unless `cast` is true. GM_ESHAPE: the piece does not fit. */
gm_status gm_checkpoint_read(const gm_checkpoint *c, const gm_mesh *mesh, int rank, const gm_piece *to,
                             const int64_t *offset, bool cast);
/* Sets needed[r], for r < world, if gm_checkpoint_read of the whole piece would read from the file of rank r, and
 * leaves it as it is otherwise. Errors as there. */
gm_status gm_checkpoint_files(const gm_checkpoint *c, const gm_mesh *mesh, int rank, const gm_piece *to, bool *needed);
/* The bytes of file i, in order of their names. */
uint64_t gm_checkpoint_file_bytes(const gm_checkpoint *c, int i);

#endif
