/* kernel.h - transforms of users: finds, checks and calls what transform_kernel.h describes.
 *
 * A kernel stays loaded until the program ends, whatever happens to the handle through which Lua has found it. */
#ifndef GM_DATA_KERNEL_H
#define GM_DATA_KERNEL_H

#include "../../kernels/tensor.h"
#include "transform_kernel.h"

#define GM_KERNEL_PARAMETERS 64
#define GM_KERNEL_NAME       64

/* A transform that calls one. */
typedef struct gm_kernel_use {
    const gm_transform_kernel *kernel;
    char                       name[GM_KERNEL_NAME]; /* for messages */
    gm_dtype                   dtype;                /* of what it takes and gives: GM_U8 or GM_F64 */
    int                        ndim;                 /* of what it gives; 0: the shape of what it takes */
    int64_t                    shape[GM_KERNEL_DIMS];
    int                        n_parameters;
    double                     parameters[GM_KERNEL_PARAMETERS];
    void                      *user;
} gm_kernel_use;

/* The kernel of that name in a shared library. GM_EIO: the library cannot be loaded. GM_EINVAL: it has no such kernel;
 * what has that name is none, or was compiled with another transform_kernel.h. */
gm_status gm_kernel_open(const char *library, const char *symbol, const gm_transform_kernel **out);
/* The kernel at an address that Lua has got. GM_EINVAL: as above, or it lies in no shared library. */
gm_status gm_kernel_at(const void *address, const gm_transform_kernel **out);

/* Calls it. in, out, shapes, sample, epoch and seed are set; the rest comes from the transform. GM_EINVAL: it failed;
 * the message says why. */
gm_status gm_kernel_run(const gm_kernel_use *k, gm_kernel_call *call);

#endif
