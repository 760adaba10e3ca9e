/* arrays.h - files of named arrays, in the formats of others: safetensors, GGUF, npy, npz and NIfTI.
 *
 *     gm_arrays_open("model/model.safetensors.index.json", &s);    // or a folder, *.safetensors, *.gguf, *.npy, *.npz,
 *                                                                  // *.nii, *.nii.gz
 *     const gm_array *a = gm_arrays_find(s, "wte.weight");
 *     gm_arrays_read(s, a, &box, GM_F32, elements, stride);          // converts, and reads the bytes of the box alone
 *
 * Files are mapped, so what nobody asks for is not read; parts of an npz that are compressed are inflated when they are
 * opened, and so are volumes; those that are scaled are worked out then. Nothing that a file says is believed: names,
 * counts, sizes and places are checked against each other and the length of the file when it is opened, and no more
 * memory is taken than the file has bytes, times a small factor. A set that is open may be read by several threads. */
#ifndef GM_ARRAYS_H
#define GM_ARRAYS_H

#include "../files/extent.h"
#include "../files/bytes.h"
#include "elements.h"

typedef struct gm_array {
    char      *name; /* of an npy file and of a volume: "" */
    gm_element element;
    bool       swapped; /* bytes of a number in big-endian order */
    bool       fortran; /* the first dimension is the innermost in the file */
    int        ndim;
    int64_t    shape[GM_MAX_DIMS]; /* outermost first */
    int        file;               /* of gm_arrays.files */
    uint64_t   begin, bytes;       /* in that file */
} gm_array;

typedef struct gm_arrays {
    char     *path;
    gm_array *list; /* in order of their names */
    int       n, room;
    gm_bytes *files;
    int       n_files;
    char     *meta; /* what the file says of itself, as a JSON object: __metadata__, or the keys of GGUF */
} gm_arrays;

/* GM_EIO: a file cannot be read. GM_ECORRUPT: it breaks a rule of its format, or has a type that is not known here.
 * GM_EINVAL: the name tells no format that is known. */
gm_status gm_arrays_open(const char *path, gm_arrays **out);
void      gm_arrays_close(gm_arrays *s); /* NULL is allowed */

/* Lets the system take back the memory that what was read so far occupies (gm_bytes_forget). */
void gm_arrays_forget(const gm_arrays *s);

const gm_array *gm_arrays_find(const gm_arrays *s, const char *name); /* NULL: there is none */

/* Reads the box into a block of dtype `to` at `elements`, with strides in elements. The block's element 0 is the box's
 * first. GM_ESHAPE: the box is not inside of the array. GM_ECORRUPT: the file has become shorter. GM_ENOMEM. */
gm_status gm_arrays_read(const gm_arrays *s, const gm_array *a, const gm_extent *box, gm_dtype to, void *elements,
                         const int64_t *stride);

/* The number of bytes of such an array; false: a size is negative, the innermost dimension is no multiple of the
 * type's block, or there are more than 2^62 bytes. */
bool gm_array_size(gm_element e, int ndim, const int64_t *shape, uint64_t *bytes);

#endif
