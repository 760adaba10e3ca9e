/* index.h - index.json of a checkpoint: what the files hold, and everything that is no tensor.
 *
 *     { "files": { "rank-00000.safetensors": { "bytes": 123, "header_crc32c": "0123abcd" } },
 *       "format": "ganymede checkpoint", "meta": {...},
 *       "tensors": { "w": { "boxes": [ { "begin": 512, "bytes": 24, "crc32c": "...", "file": "...",
 *                    "offset": [0, 0], "shape": [2, 3] } ], "dtype": "f32", "shape": [2, 3] } },
 *       "version": 1, "world": 1, "crc32c": "89abcdef" }
 *
 * The last field closes the text: it is the CRC32C of all bytes before its comma. */
#ifndef GM_CHECKPOINT_INDEX_H
#define GM_CHECKPOINT_INDEX_H

#include "box.h"

#define GM_INDEX_NAME    "index.json"
#define GM_INDEX_MAX     ((uint64_t)1 << 30)
#define GM_INDEX_VERSION 1

typedef struct gm_index_file {
    char    *name; /* as written: gm_files_open refuses what leads out of the folder */
    uint64_t bytes;
    uint32_t header_crc;
} gm_index_file;

typedef struct gm_index_box {
    gm_extent extent;
    int       file; /* into files */
    uint64_t  begin, bytes;
    uint32_t  crc;
} gm_index_box;

typedef struct gm_index_tensor {
    char         *name;
    gm_dtype      dtype;
    int           ndim;
    int64_t       shape[GM_MAX_DIMS];
    gm_index_box *boxes;
    int           n_boxes;
} gm_index_tensor;

typedef struct gm_index {
    int              world, n_files, n_tensors;
    gm_index_file   *files;   /* by name */
    gm_index_tensor *tensors; /* by name */
    char            *meta;    /* JSON */
} gm_index;

/* The text of an index; meta must be JSON. To be freed. GM_EINVAL: meta is not. */
gm_status gm_index_format(const gm_index *x, char **text, size_t *size);
typedef enum gm_index_kind {
    GM_INDEX_WHOLE, /* of a checkpoint: a file a rank; the boxes of each tensor cover it once */
    GM_INDEX_PART   /* of one rank's file */
} gm_index_kind;

/* Checks checksum, format, and that the boxes of each tensor lie inside it. GM_ECORRUPT. */
gm_status gm_index_parse(const char *path, const char *text, size_t size, gm_index_kind kind, gm_index *out);
/* Do the boxes of each tensor cover it once? path is for the message. GM_ECORRUPT. */
gm_status gm_index_check_cover(const char *path, const gm_index *x);
/* Adds file and boxes of a part to `into`, which lists the tensors and has room for the file. GM_ECORRUPT: a tensor
 * that it does not list, or lists otherwise. GM_ENOMEM. */
gm_status gm_index_merge(gm_index *into, const gm_index *part);
void      gm_index_free(gm_index *x); /* a zeroed one is allowed */

/* The name under which a box is stored in its file: the tensor's, or with "[begin:end,...]". To be freed. */
char *gm_index_box_name(const gm_index_tensor *t, const gm_extent *box);

#endif
