/* device.h - where tensors live and ops run: a backend, its memory pool, threads and step block. */
#ifndef GM_DEVICE_H
#define GM_DEVICE_H

#include "memory.h"
#include "op.h"
#include "tensor.h"
#include "threads.h"

/* What changes from step to step and kernels read when they run, not when they are recorded, so that
 * a captured graph can be replayed. On the CPU it is plain memory; on a GPU a mirror of it. */
typedef struct gm_step_block {
    uint64_t rng_step;   /* the step coordinate of random streams: optimizer steps done so far */
    int64_t  step;       /* optimizer step being made, from 1: Adam's t */
    double   lr;         /* learning rate of this step */
    double   clip;       /* gradients are multiplied by this in the optimizer; 1: no clipping */
    double   loss_scale; /* gradients carry this factor; the optimizer divides by it */
} gm_step_block;

typedef struct gm_op_counter {
    uint64_t calls;
    double   flops, bytes;
    double   products; /* of flops: matrix products and attention */
} gm_op_counter;

struct gm_device {
    const gm_backend *backend;
    gm_pool          *pool;
    gm_threads       *threads; /* NULL on meta */
    gm_step_block     step;
    gm_op_counter     counters[GM_OP_COUNT];
};

/* A table of kernels and a source of memory. Each backend fills it from ops.def. */
struct gm_backend {
    const char   *name;     /* "ref", "cpu", "cuda", "meta" */
    bool          has_data; /* false: storages have no bytes, kernels compute nothing */
    gm_raw_memory memory;
    gm_kernel     kernel[GM_OP_COUNT];
};

/* name: "cpu", "ref" or "meta". threads: 0 for one a core that this process may use. */
gm_status gm_device_new(const char *backend, int threads, gm_device **out);
void      gm_device_free(gm_device *dev); /* after its last tensor; NULL is allowed */

/* The table called name, or NULL. "cpu" is the best of the instruction sets this machine has;
 * "cpu-generic", "cpu-avx2", "cpu-avx512" name one, NULL where it cannot run. */
const gm_backend *gm_backend_find(const char *name);

/* Checks the call (gm_infer), that outputs are as inferred, counts it, runs the device's kernel. */
gm_status gm_run(gm_device *dev, const gm_call *call);
/* The same with another backend's kernel over the same memory: the judge in specs. */
gm_status gm_run_with(gm_device *dev, const gm_backend *backend, const gm_call *call);
/* gm_run of an op of one output and at most one input. attrs NULL: defaults; in NULL: none. */
gm_status gm_run_one(gm_device *dev, gm_op op, const gm_attrs *attrs, gm_tensor *in, gm_tensor *out);

#endif
