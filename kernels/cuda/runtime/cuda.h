/* cuda.h - the host side of the CUDA backend: what all of kernels/cuda shares. It is C11 and uses the driver API only,
 * which it loads at run time (driver.h). So it builds and links without a GPU, and specs can replace the driver by one
 * that runs the kernels on the CPU (spec/cuda).
 *
 * The backend is a module, ganymede_cuda.so, which is opened when a device is asked for (module.h). Its kernels are
 * CUDA C++ in ops/, compiled to fat binaries inside the module (sm_80, sm_90, sm_100 and PTX). For each op a function
 * cuda_<op> in a .c file beside them fills an argument struct and launches kernels; gm_infer has checked the call. All
 * work of a device goes to one stream, in order. Only gm_cuda_read, gm_cuda_synchronize and the end of the device wait
 * for the GPU. */
#ifndef GM_CUDA_H
#define GM_CUDA_H

#include "../../device.h"

typedef struct gm_cuda gm_cuda; /* the state of a device (driver.h): dev->state */

static inline gm_cuda *gm_cuda_of(const gm_device *dev) { return dev->state; }

typedef struct gm_cuda_grid {
    int64_t x;      /* blocks, up to 2^31 - 1 */
    int     y, z;   /* blocks, up to 65,535; 0 means 1 */
    int     block;  /* threads of a block: a multiple of 32, up to 1,024 */
    size_t  shared; /* bytes of GM_SHARED; more than 48 KiB are requested from the driver, if the device has them */
} gm_cuda_grid;

/* Launches the kernel of this name (GM_KERNEL) on the device's stream; args is copied. An empty grid launches nothing.
 * GM_EINVAL: there is no such kernel, or the grid is impossible; the message names both. GM_EIO: the driver reports an
 * error. An error inside a kernel is reported by the next call that waits. */
gm_status gm_cuda_launch(gm_device *dev, const char *kernel, gm_cuda_grid grid, const void *args, size_t size);
#define GM_LAUNCH(dev, kernel, grid, args) gm_cuda_launch((dev), (kernel), (grid), &(args), sizeof(args))

/* The name of a kernel of several dtypes: "gm_axpy" and bf16 give "gm_axpy_bf16". buf has room for GM_CUDA_NAME bytes.
 */
#define GM_CUDA_NAME 96
const char *gm_cuda_name(char *buf, const char *base, gm_dtype t);

/* A grid of blocks of `block` threads for n elements, where each thread works on `each` of them. There are at most a
 * few times as many blocks as the device can run at once; GM_GRID_LOOP then repeats. */
gm_cuda_grid gm_cuda_over(const gm_device *dev, int64_t n, int each, int block);
int          gm_cuda_multiprocessors(const gm_device *dev);
size_t       gm_cuda_shared_most(const gm_device *dev); /* bytes of shared memory that a block may have */

/* Whether this build has the kernel for this GPU. Some kernels are compiled for one kind of GPU only. */
bool gm_cuda_has(gm_device *dev, const char *kernel);

/* Gives memory for one op. The caller releases *block as soon as the op is queued: the stream keeps the order, so later
 * work cannot overwrite the memory too early. GM_ENOMEM. */
gm_status gm_cuda_scratch(gm_device *dev, size_t bytes, void **data, gm_block **block);

/* These run in order with the kernels; copies and fills go where kernels go (launch_on of queues.h). read waits for the
 * kernels and for the copy; write returns when the caller may change `host`. */
gm_status gm_cuda_read(gm_device *dev, void *host, const void *device, size_t bytes);
gm_status gm_cuda_write(gm_device *dev, void *device, const void *host, size_t bytes);
gm_status gm_cuda_copy(gm_device *dev, void *to, const void *from, size_t bytes);
gm_status gm_cuda_fill(gm_device *dev, void *to, int byte, size_t bytes);
gm_status gm_cuda_synchronize(gm_device *dev);

/* Gives the address of the step block (device.h) in device memory, for kernels that read it. If the step block has
 * changed, it first queues a copy to the device. While a graph is being captured, it only gives the address, and each
 * replay copies the step block (graph.h). */
gm_status gm_cuda_step(gm_device *dev, const gm_step_block **on_device);
bool      gm_cuda_same_step(const gm_step_block *a, const gm_step_block *b);

/* The ops, one function each: cuda_fill, cuda_copy, ... */
#define GM_OP(name, rule, in, out, attrs) gm_status cuda_##name(gm_device *dev, const gm_call *call);
#include "../../ops.def"
#undef GM_OP

/* A tensor of any strides, for kernels. It has no dimensions of size 1, and neighbours that are contiguous are joined.
 */
typedef struct gm_cuda_view {
    int     ndim;
    int64_t shape[GM_MAX_DIMS], stride[GM_MAX_DIMS]; /* in elements */
} gm_cuda_view;

#endif
