/* array_file.h - IDX files, the format of MNIST and similar data sets: one dense array, big-endian.
 *
 *     0 0 TYPE NDIM | NDIM sizes, u32 | elements, row-major           (http://yann.lecun.com/exdb/mnist)
 *
 * A file whose name ends in ".gz" is inflated into memory; other files are mapped. The file must be exactly as long as
 * its header says. A header with 0 or more than GM_MAX_DIMS dimensions, or with sizes whose product overflows, is
 * refused. */
#ifndef GM_ARRAY_FILE_H
#define GM_ARRAY_FILE_H

#include <stdint.h>
#include "../../kernels/tensor.h"
#include "../files/bytes.h"

typedef enum gm_idx_type {
    GM_IDX_U8 = 0x08,
    GM_IDX_I8 = 0x09,
    GM_IDX_I16 = 0x0B,
    GM_IDX_I32 = 0x0C,
    GM_IDX_F32 = 0x0D,
    GM_IDX_F64 = 0x0E
} gm_idx_type;

typedef struct gm_array_file {
    gm_bytes    bytes;
    gm_idx_type type;
    size_t      element; /* bytes of one element */
    size_t      header;  /* bytes before the first element */
    int         ndim;    /* >= 1 */
    int64_t     shape[GM_MAX_DIMS];
    int64_t     numel;
} gm_array_file;

/* Opens a file; the caller closes *out. GM_EIO: it cannot be read. GM_ECORRUPT: it is not IDX, or its size does not fit
 * its header. */
gm_status gm_array_open(const char *path, gm_array_file *out);
void      gm_array_close(gm_array_file *a); /* a zeroed one is allowed */

/* Reads n elements, from element `first` on: as bytes (u8 files only), or as doubles (any type). */
gm_status gm_array_read_u8(const gm_array_file *a, int64_t first, int64_t n, uint8_t *to);
gm_status gm_array_read_f64(const gm_array_file *a, int64_t first, int64_t n, double *to);

#endif
