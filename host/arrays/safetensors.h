/* safetensors.h - the header of a .safetensors file (https://github.com/huggingface/safetensors).
 *
 *     header length, u64 little-endian | header, JSON | data
 *     { "name": { "dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end] }, "__metadata__": { texts } }
 *
 * The reader refuses what the format forbids: a header that is longer than 100,000,000 bytes or than the file, that
 * does not begin with '{', or that has duplicate names or unknown fields; offsets that overlap, leave holes, do not fit
 * shape and dtype, or do not end with the file. It never allocates more than the size of the file. */
#ifndef GM_SAFETENSORS_H
#define GM_SAFETENSORS_H

#include "arrays.h"

#define GM_SAFETENSORS_HEADER_MAX 100000000u

typedef struct gm_safetensors {
    gm_array *list; /* in order of their names; begin counts from the start of the file */
    int       n;
    uint64_t  data; /* the offset in the file at which the data begins */
    char     *meta; /* __metadata__ as JSON; NULL: there is none */
} gm_safetensors;

/* The bytes of the header behind the first 8 of the file. file: what messages call it. GM_ECORRUPT: there are too
 * many. */
gm_status gm_safetensors_length(const char *file, const unsigned char *first8, uint64_t file_size, size_t *bytes);
/* Reads the header; the caller frees *out by gm_safetensors_free. GM_ECORRUPT: it breaks a rule of the format. */
gm_status gm_safetensors_parse(const char *file, const char *header, size_t n, uint64_t file_size, gm_safetensors *out);
void      gm_safetensors_free(gm_safetensors *s);                               /* a zeroed one is allowed */
const gm_array *gm_safetensors_find(const gm_safetensors *s, const char *name); /* or NULL */

/* Makes the bytes before the data, for arrays in the order in which their data follows; the caller frees them. Sets
 * begin and bytes of each array. meta: __metadata__ as a JSON object of texts; NULL: there is none. Spaces at the end
 * let the data begin at a multiple of 64. GM_ESHAPE: an array is too large. GM_EINVAL: a name is not UTF-8, or the
 * header is too long, or meta is no object of texts. */
gm_status gm_safetensors_header(gm_array *list, int n, const char *meta, char **header, size_t *size);

#endif
