/* write.h - writes safetensors files: the arrays are named first, then their numbers come in any order.
 *
 *     gm_arrays_writer_open("model/model.safetensors", list, n, "{\"format\": \"pt\"}", 5000000000, &w);
 *     gm_arrays_writer_put(w, pieces, n_pieces, tensor);        // for each tensor; then one of
 *     gm_arrays_writer_close(w);                                // puts the files in place
 *     gm_arrays_writer_drop(w);                                 // or leaves nothing
 *
 * Where all arrays have more bytes than a file may have, model.safetensors becomes model-00001-of-00003.safetensors and
 * so on, and the index model.safetensors.index.json, which is written last. An array is never cut, so one that is
 * larger than that has a file of its own. Files are made beside their places and renamed. */
#ifndef GM_ARRAYS_WRITE_H
#define GM_ARRAYS_WRITE_H

#include "block.h"

typedef struct gm_arrays_writer gm_arrays_writer;

/* Opens the files for arrays of which name, element, ndim and shape are read. path ends in .safetensors; meta: see
 * gm_safetensors_header. GM_EINVAL: a name twice, a type that numbers of ours cannot have, a file or index is there
 * already. GM_ESHAPE: an array is too large. GM_EIO. GM_ENOMEM. */
gm_status gm_arrays_writer_open(const char *path, const gm_array *list, int n, const char *meta,
                                uint64_t max_file_bytes, gm_arrays_writer **out);
/* The array of that name, for pieces; NULL: there is none. It stays the writer's. */
const gm_array *gm_arrays_writer_find(const gm_arrays_writer *w, const char *name);
/* Writes pieces of t, which is a whole tensor; numbers are converted to the arrays' types. GM_ESHAPE: shapes do not
 * fit. GM_EINVAL: t has no data, or more elements came than an array has. GM_EIO. GM_ENOMEM. */
gm_status gm_arrays_writer_put(gm_arrays_writer *w, const gm_array_piece *pieces, int n, const gm_tensor *t);
/* Puts the files in place and frees w, also on failure. GM_EINVAL: an array has not got all of its numbers. GM_EIO. */
gm_status gm_arrays_writer_close(gm_arrays_writer *w);
void      gm_arrays_writer_drop(gm_arrays_writer *w); /* NULL is allowed */

#endif
