/* index.h - index.json of a checkpoint: it lists what the files hold, and stores everything that is not a tensor
 * (meta).
 *
 *     { "files": { "rank-00000.safetensors": { "bytes": 123, "header_crc32c": "0123abcd" } },
 *       "format": "ganymede checkpoint", "meta": {...},
 *       "tensors": { "w": { "boxes": [ { "begin": 512, "bytes": 24, "crc32c": "...", "file": "...",
 *                    "offset": [0, 0], "shape": [2, 3] } ], "dtype": "f32", "shape": [2, 3] } },
 *       "version": 1, "world": 1, "crc32c": "89abcdef" }
 *
 * The last field is the CRC32C of all bytes of the text before its comma. */
#ifndef GM_CHECKPOINT_INDEX_H
#define GM_CHECKPOINT_INDEX_H

#include "../files/extent.h"

#define GM_INDEX_NAME    "index.json"
#define GM_INDEX_MAX     ((uint64_t)1 << 30)
#define GM_INDEX_VERSION 1

typedef struct gm_index_file {
    char    *name; /* as written in the index; gm_files_open refuses a name that leads out of the folder */
    uint64_t bytes;
    uint32_t header_crc; /* CRC32C of the bytes before the data */
} gm_index_file;

typedef struct gm_index_box {
    gm_extent extent;
    int       file;         /* index in gm_index.files */
    uint64_t  begin, bytes; /* begin: from the start of the file */
    uint32_t  crc;          /* CRC32C of these bytes */
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
    gm_index_file   *files;   /* in order of their names */
    gm_index_tensor *tensors; /* in order of their names */
    char            *meta;    /* JSON */
} gm_index;

/* Makes the text of an index; the caller frees it. GM_EINVAL: meta is not JSON. */
gm_status gm_index_format(const gm_index *x, char **text, size_t *size);
typedef enum gm_index_kind {
    GM_INDEX_WHOLE, /* of a checkpoint: one file for each rank; the boxes of each tensor cover it exactly once */
    GM_INDEX_PART   /* of the file of one rank */
} gm_index_kind;

/* Reads an index; the caller frees *out by gm_index_free. GM_ECORRUPT: the checksum or the format is wrong, or a box
 * does not lie inside its tensor. path: for messages. */
gm_status gm_index_parse(const char *path, const char *text, size_t size, gm_index_kind kind, gm_index *out);
/* GM_ECORRUPT unless the boxes of each tensor cover it exactly once. path: for the message. */
gm_status gm_index_check_cover(const char *path, const gm_index *x);
/* Adds the file and the boxes of a part to `into`, which lists the tensors already and has room for the file.
 * GM_ECORRUPT: `into` does not list a tensor of the part, or lists it with another dtype or shape. GM_ENOMEM. */
gm_status gm_index_merge(gm_index *into, const gm_index *part);
void      gm_index_free(gm_index *x); /* a zeroed one is allowed */

/* The name under which a box is stored in its file: the name of the tensor, followed by "[begin:end,...]" if the box is
 * not the whole tensor. The caller frees it. */
char *gm_index_box_name(const gm_index_tensor *t, const gm_extent *box);

#endif
