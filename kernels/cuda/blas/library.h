/* library.h - the functions of cuBLASLt, which are loaded when they are first needed. */
#ifndef GM_CUDA_BLAS_LIBRARY_H
#define GM_CUDA_BLAS_LIBRARY_H

#include <cublasLt.h>

#include "../../status.h"

typedef struct gm_blas_library {
#define GM_BLAS(name) __typeof__(name) *name;
#include "functions.def"
#undef GM_BLAS
} gm_blas_library;

/* Loads the library at path, once in a process. GM_EINVAL: it is not there or lacks a function; the message says what
 * to try. */
gm_status gm_blas_load(const char *path, const gm_blas_library **out);

#endif
