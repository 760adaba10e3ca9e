/* cuda.h - the host side of the CUDA backend: what all of kernels/cuda shares. C11; the driver API alone, loaded at run
 * time (driver.h), so that this builds and links without a GPU, and that specs can put a driver of their own in its
 * place which runs the kernels on the CPU (spec/cuda).
 *
 * The backend is a module, ganymede_cuda.so, opened when a device is asked for (module.h). Its kernels are CUDA C++ in
 * ops/, compiled to fat binaries inside the module (sm_80, sm_90, sm_100 and PTX). For each op a function cuda_<op> (in
 * *.c beside them) checks nothing again (gm_infer has), fills an argument struct and launches. All work of a device
 * goes to one stream, in order; nothing here waits for the GPU but gm_cuda_read, gm_cuda_synchronize and the end. */
#ifndef GM_CUDA_H
#define GM_CUDA_H

#include "../../device.h"

typedef struct gm_cuda gm_cuda; /* what belongs to a device beside its pool: dev->state */

static inline gm_cuda *gm_cuda_of(const gm_device *dev) { return dev->state; }

typedef struct gm_cuda_grid {
    int64_t x;      /* blocks, up to 2^31 - 1 */
    int     y, z;   /* 0 stands for 1; up to 65,535 */
    int     block;  /* threads of a block: a multiple of 32, up to 1,024 */
    size_t  shared; /* bytes of GM_SHARED; above 48 KiB the kernel is told, up to what the device has */
} gm_cuda_grid;

/* Launches the kernel of that name (GM_KERNEL) on the device's stream; args is copied. An empty grid launches nothing.
 * GM_EINVAL: no such kernel, a grid that cannot be, naming both; GM_EIO: what the driver says. Errors inside kernels
 * come out at the next call that waits. */
gm_status gm_cuda_launch(gm_device *dev, const char *kernel, gm_cuda_grid grid, const void *args, size_t size);
#define GM_LAUNCH(dev, kernel, grid, args) gm_cuda_launch((dev), (kernel), (grid), &(args), sizeof(args))

/* "gm_axpy" and bf16 -> "gm_axpy_bf16"; buf has room for GM_CUDA_NAME. For kernels of several dtypes. */
#define GM_CUDA_NAME 96
const char *gm_cuda_name(char *buf, const char *base, gm_dtype t);

/* Enough blocks of `block` threads to go over n elements, each thread `each` of them, but not more than fill the
 * device some times over (GM_GRID_LOOP goes on from there). */
gm_cuda_grid gm_cuda_over(const gm_device *dev, int64_t n, int each, int block);
int          gm_cuda_multiprocessors(const gm_device *dev);

/* Memory for one op: given back when it was queued (the stream keeps order). NULL on failure of st. */
gm_status gm_cuda_scratch(gm_device *dev, size_t bytes, void **data, gm_block **block);

/* In order with the kernels. read waits for them and for the copy; write returns when `host` may change. */
gm_status gm_cuda_read(gm_device *dev, void *host, const void *device, size_t bytes);
gm_status gm_cuda_write(gm_device *dev, void *device, const void *host, size_t bytes);
gm_status gm_cuda_copy(gm_device *dev, void *to, const void *from, size_t bytes);
gm_status gm_cuda_fill(gm_device *dev, void *to, int byte, size_t bytes);
gm_status gm_cuda_synchronize(gm_device *dev);

/* The step block (device.h) in device memory, for kernels that read it: step, lr, clip, loss_scale, rng_step.
 * Brought up to date by gm_cuda_step, which copies it in stream order when it has changed; a graph that is being
 * captured gets its address alone, and each replay brings it up to date (graph.h). */
gm_status gm_cuda_step(gm_device *dev, const gm_step_block **on_device);
bool      gm_cuda_same_step(const gm_step_block *a, const gm_step_block *b);

/* The ops, one function each: cuda_fill, cuda_copy, ... */
#define GM_OP(name, rule, in, out, attrs) gm_status cuda_##name(gm_device *dev, const gm_call *call);
#include "../../ops.def"
#undef GM_OP

/* Tensors with any strides, for kernels: without dimensions of size 1; neighbours that are contiguous are joined. */
typedef struct gm_cuda_view {
    int     ndim;
    int64_t shape[GM_MAX_DIMS], stride[GM_MAX_DIMS]; /* in elements */
} gm_cuda_view;

#endif
