/* formats.h - the formats of files of arrays; inside of this folder alone. Each function reads the file
 * s->files[file], adds what it holds to s, and sets s->meta if the format has such. gm_arrays_open closes a set that
 * failed. */
#ifndef GM_ARRAYS_FORMATS_H
#define GM_ARRAYS_FORMATS_H

#include "arrays.h"

gm_status gm_safetensors_add(gm_arrays *s, int file);
gm_status gm_gguf_add(gm_arrays *s, int file);
gm_status gm_npy_add(gm_arrays *s, int file, const char *name); /* name: of its array */
gm_status gm_npz_add(gm_arrays *s, int file);
gm_status gm_nifti_add(gm_arrays *s, const char *path, bool zipped); /* opens the file, too */

/* Adds an array of this name, which is copied. The caller fills *out, which is valid until the next one. GM_ENOMEM. */
gm_status gm_arrays_add(gm_arrays *s, const char *name, size_t length, int file, gm_array **out);
/* Maps one more file. */
gm_status gm_arrays_map(gm_arrays *s, const char *path, int *file);
/* One more file, of bytes that are in memory; *b is taken over, also on failure. */
gm_status gm_arrays_take(gm_arrays *s, gm_bytes *b, int *file);

#endif
