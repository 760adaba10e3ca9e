/* safetensors.h - reads and writes the header of a .safetensors file (https://github.com/huggingface/safetensors).
 *
 *     header length, u64 little-endian | header, JSON | data
 *     { "name": { "dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end] }, "__metadata__": { texts } }
 *
 * The reader refuses what the format forbids: a header that is longer than 100,000,000 bytes or than the file, that
 * does not begin with '{', or that has duplicate names or unknown fields; offsets that overlap, leave holes, do not fit
 * shape and dtype, or do not end with the file. It never allocates more than the size of the file. */
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
    gm_safetensor *list; /* in order of their names */
    int            n;
    uint64_t       data; /* the offset in the file at which the data begins */
    uint32_t       crc;  /* CRC32C of the bytes before it */
} gm_safetensors;

/* Reads the header; the caller frees *out by gm_safetensors_free. name: what messages call the file. GM_ECORRUPT: the
 * header breaks a rule of the format. */
gm_status            gm_safetensors_read(int fd, const char *name, uint64_t file_size, gm_safetensors *out);
void                 gm_safetensors_free(gm_safetensors *s);                         /* a zeroed one is allowed */
const gm_safetensor *gm_safetensors_find(const gm_safetensors *s, const char *name); /* or NULL */

/* Makes the bytes before the data, for tensors in the order in which their data follows; the caller frees them. Sets
 * begin and bytes of each tensor. Spaces at the end let the data begin at a multiple of 64. GM_ESHAPE: a tensor is too
 * large. GM_ENOMEM: there is no memory, or a name is not UTF-8. */
gm_status gm_safetensors_header(gm_safetensor *list, int n, char **header, size_t *size);

/* Gives the number of bytes of a tensor; false: a size is negative, or there are more than 2^62 bytes. */
bool gm_safetensors_bytes(gm_dtype dtype, int ndim, const int64_t *shape, uint64_t *bytes);

#endif
