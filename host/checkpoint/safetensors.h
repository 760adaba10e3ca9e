/* safetensors.h - the header of a .safetensors file: read with all the rules, or written.
 *
 *     header length, u64 little-endian | header, JSON | data
 *     { "name": { "dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end] }, "__metadata__": { texts } }
 *
 * Refused, as the format demands: a header longer than 100,000,000 bytes or than the file, not beginning
 * with '{', with duplicate names or unknown fields; offsets that overlap, leave holes, do not fit shape
 * and dtype, or do not end with the file. Nothing larger than the file is ever allocated. */
#ifndef GM_SAFETENSORS_H
#define GM_SAFETENSORS_H

#include "../../kernels/tensor.h"

#define GM_SAFETENSORS_HEADER_MAX 100000000u

typedef struct gm_safetensor {
    char    *name;
    gm_dtype dtype;
    int      ndim;
    int64_t  shape[GM_MAX_DIMS];
    uint64_t begin, bytes; /* begin: from the start of the file */
} gm_safetensor;

typedef struct gm_safetensors {
    gm_safetensor *list; /* by name */
    int            n;
    uint64_t       data; /* where data begins */
    uint32_t       crc;  /* CRC32C of the bytes before that */
} gm_safetensors;

/* name is what errors call the file. GM_ECORRUPT. */
gm_status            gm_safetensors_read(int fd, const char *name, uint64_t file_size, gm_safetensors *out);
void                 gm_safetensors_free(gm_safetensors *s);                         /* a zeroed one is allowed */
const gm_safetensor *gm_safetensors_find(const gm_safetensors *s, const char *name); /* or NULL */

/* The bytes before the data for tensors listed in the order in which their data follows: sets their
 * begin and bytes. Padded with spaces so that data begins at a multiple of 64. To be freed. */
gm_status gm_safetensors_header(gm_safetensor *list, int n, char **header, size_t *size);

/* Bytes of a tensor; false: a negative size or more than 2^62. */
bool gm_safetensors_bytes(gm_dtype dtype, int ndim, const int64_t *shape, uint64_t *bytes);

#endif
