/* nccl_library.h - NCCL, loaded when ranks with GPUs of their own look for it. Knows no device: spec/cuda asks the real
 * library on machines without one. */
#ifndef GM_CUDA_NCCL_LIBRARY_H
#define GM_CUDA_NCCL_LIBRARY_H

#include <nccl.h>

#include "../status.h"

#define GM_NCCL_OLDEST 22800 /* 2.28: the oldest that was tried; ncclConfig_t is its */

typedef struct gm_nccl_library {
    int version; /* 22809 is 2.28.9 */
#define GM_NCCL(name)       __typeof__(name) *name;
#define GM_NCCL_MAYBE(name) __typeof__(name) *name; /* NULL: this library has none */
#include "nccl_functions.def"
#undef GM_NCCL
#undef GM_NCCL_MAYBE
} gm_nccl_library;

/* Loads the library at path, which then stays; "none": GM_EINVAL. GM_EINVAL: there is none, it is too old or it lacks a
 * function. */
gm_status gm_nccl_load(const char *path, gm_nccl_library *out);

/* GM_ECOMM with what was done, NCCL's name for the error and its last words. comm may be NULL. */
gm_status gm_nccl_failed(const gm_nccl_library *lib, ncclComm_t comm, ncclResult_t r, const char *file, int line,
                         const char *what);

#endif
