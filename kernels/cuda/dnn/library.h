/* library.h - cuDNN's graph library, loaded when attention first asks for it. Knows no device: spec/cuda uses it on
 * machines without one. */
#ifndef GM_CUDA_DNN_LIBRARY_H
#define GM_CUDA_DNN_LIBRARY_H

#include <cudnn_graph.h>

#include "../../status.h"
#include "../runtime/driver.h"

typedef struct gm_dnn_library {
#define GM_DNN(name) __typeof__(name) *name;
#include "functions.def"
#undef GM_DNN
} gm_dnn_library;

/* Loads the library at path, which then stays. GM_EINVAL: there is none, it is too old or it lacks a function. */
gm_status gm_dnn_load(const char *path, gm_dnn_library *out);

/* Sets the message of a failure: what was done, and cuDNN's name and text of the error. Returns GM_ENOMEM if memory is
 * short, GM_EINVAL if cuDNN does not support the request, else GM_EIO. */
gm_status gm_dnn_failed(const gm_dnn_library *lib, cudnnStatus_t status, const char *file, int line, const char *what);
#define GM_CUDNN(lib, call)                                                                         \
    do {                                                                                            \
        cudnnStatus_t s_ = (lib)->call;                                                             \
        if (s_ != CUDNN_STATUS_SUCCESS) return gm_dnn_failed((lib), s_, __FILE__, __LINE__, #call); \
    } while (0)

#endif
