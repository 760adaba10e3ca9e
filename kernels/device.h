/* device.h - where tensors live and ops run: a backend, its memory pool, threads and step block.
 *
 * The bytes of a backend that is not on_host lie where the host cannot touch them: gm_tensor_data gives an address for
 * kernels, and gm_device_read, gm_device_write and gm_device_copy move bytes. They serve every backend with data, so
 * code that uses them needs not ask which one it has. Work is queued in order: reading waits for what was queued
 * before, nothing else does. */
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
    double   momentum;   /* SGD's, or Adam's beta1, in place of the attribute where has_momentum says so */
    int64_t  has_momentum;
} gm_step_block;

typedef struct gm_op_counter {
    uint64_t calls;
    double   flops, bytes;
    double   products; /* of flops: matrix products and attention */
} gm_op_counter;

struct gm_device {
    const gm_backend  *backend;
    gm_pool           *pool;
    gm_pool           *host;    /* memory of the host that copies use by themselves; NULL until it is asked for */
    gm_threads        *threads; /* NULL on meta */
    gm_step_block      step;
    gm_op_counter      counters[GM_OP_COUNT];
    struct gm_graph   *capture;       /* being recorded (graph.h); NULL: work is done as it is asked for */
    void              *state;         /* the backend's own, made by open */
    bool               time_products; /* gm_device_time_products */
    bool               deterministic; /* gm_device_set_deterministic */
    bool               tf32; /* products of f32 may round their operands to 11 bits of mantissa (gm_device_set_tf32) */
    struct gm_profile *profile; /* profile.h; NULL until one is started */
    struct gm_notes   *notes;   /* gm_device_note; NULL: none so far */
    /* Asked again and again while the host waits for the device, where operations between devices are queued
     * (queues.h). Not GM_OK: they will not end, and have been stopped; the wait fails with it. *idle: none are left. */
    gm_status (*attend)(void *context, bool *idle);
    void *attend_context;
};

/* What this process asked of its GPUs since it began. What is launched again by a graph counts in graphs alone. */
typedef struct gm_device_counts {
    uint64_t launches;    /* of our kernels */
    uint64_t libraries;   /* calls of cuBLASLt and cuDNN that compute */
    uint64_t graphs;      /* launches of graphs */
    uint64_t copies;      /* and fills, in any direction */
    uint64_t waits;       /* of the host for the device, where it had to */
    uint64_t allocations; /* of device memory from the driver */
} gm_device_counts;

/* A table of kernels and a source of memory. Each backend fills it from ops.def. */
struct gm_backend {
    const char   *name;     /* "ref", "cpu", "cuda", "meta" */
    bool          has_data; /* false: storages have no bytes, kernels compute nothing */
    bool          on_host;  /* the bytes are memory of this process; the functions below are then NULL */
    gm_raw_memory memory;   /* its context is the device */
    gm_kernel     kernel[GM_OP_COUNT];

    gm_status (*open)(gm_device *dev, int ordinal); /* before the first allocation */
    void (*close)(gm_device *dev);                  /* after the last; also when open failed */
    gm_status (*read)(gm_device *dev, void *host, const void *device, size_t bytes);
    gm_status (*write)(gm_device *dev, void *device, const void *host, size_t bytes);
    gm_status (*copy)(gm_device *dev, void *to, const void *from, size_t bytes);
    gm_status (*synchronize)(gm_device *dev);
    gm_raw_memory pinned; /* of the host; its context is the device */
    gm_status (*read_later)(gm_device *dev, void *pinned, const void *device, size_t bytes);
    gm_status (*write_later)(gm_device *dev, void *device, const void *pinned, size_t bytes);
    gm_status (*mark)(gm_device *dev, void **mark);
    gm_status (*passed)(gm_device *dev, void *mark, bool *passed);
    void (*unmark)(gm_device *dev, void *mark);
    gm_status (*stamp)(gm_device *dev, void **stamp); /* a mark that keeps its time; NULL where work is done at once */
    /* between two stamps; waits until `to` has been passed */
    gm_status (*elapsed)(gm_device *dev, void *from, void *to, double *seconds);
    void (*counts)(const gm_device *dev, gm_device_counts *out); /* NULL: nothing is queued, nothing counted */

    /* graph.h; NULL where there are no graphs. begin: what is queued from here on is recorded, not run, until end or
     * drop; end: *graph is what replay queues, *nodes the pieces of work in it. A failed end has dropped it. */
    gm_status (*capture_begin)(gm_device *dev);
    gm_status (*capture_end)(gm_device *dev, void **graph, int *nodes);
    void (*capture_drop)(gm_device *dev);
    gm_status (*replay)(gm_device *dev, void *graph);
    void (*graph_free)(gm_device *dev, void *graph);
    /* "NVIDIA H200, sm_90, 139 GiB" into buf; returns buf. For people. */
    char *(*describe)(const gm_device *dev, char *buf, size_t size);
    /* "GPU-8f0c1d2e-...": which device of the machine it is, as the driver's tools name it; "" where it has no name */
    char *(*identify)(const gm_device *dev, char *buf, size_t size);
    const struct gm_queues *queues; /* queues.h; NULL: nothing can be queued beside the ops of devices of this kind */
};

/* name: "cpu", "ref", "meta", "cuda", or "cuda:1" for the second GPU. threads: 0 for one a core that this process may
 * use. GM_EINVAL: there is no such backend or device, or what it needs is missing, with what to try. */
gm_status gm_device_new(const char *backend, int threads, gm_device **out);
/* What this machine has for GPUs (driver, devices, libraries), for people: at most n facts, *found of them. GM_EINVAL:
 * this build has no CUDA. */
typedef struct gm_device_fact {
    char name[16]; /* "driver", "device", "cublaslt", "cudnn" */
    bool found;
    char text[240]; /* what was found, or why not */
} gm_device_fact;
gm_status gm_device_facts(gm_device_fact *out, int n, int *found);

/* What a kernel chose for the user and must not keep to itself (a slow way, because a library is missing): each text
 * once in the device's life. next takes them out in order: false: none is left. */
void gm_device_note(gm_device *dev, const char *text);
bool gm_device_next_note(gm_device *dev, char *buf, size_t size);
/* false: this device works at once, there is nothing to count. */
bool gm_device_count(const gm_device *dev, gm_device_counts *out);
/* May products of f32 use TF32 (8 bits of exponent, 10 of mantissa, sums in f32) from here on? They do where the
 * device has it and cuBLASLt makes the product; *effect: does this device have it? */
void gm_device_set_tf32(gm_device *dev, bool wanted, bool *effect);
/* From here on, are the ways to make a kind of product timed when it is first met, and the fastest taken? Which one it
 * is, and so the last bits of products, may then differ from run to run and from rank to rank. *effect as above. */
void gm_device_time_products(gm_device *dev, bool wanted, bool *effect);
/* From here on, must an op that is called twice give the same bits? Ours do; libraries have ways that are faster and
 * add up in the order in which blocks end. *effect as above. */
void gm_device_set_deterministic(gm_device *dev, bool wanted, bool *effect);

bool gm_device_exists(const char *backend); /* false: gm_last_error says why it could not be opened */
void gm_device_free(gm_device *dev);        /* after its last tensor; NULL is allowed */

/* Bytes between the host and the device, and inside of it, in order with what was queued. Read waits; write returns
 * when `host` may change; nothing else waits. Nothing is done where there are no bytes (meta). */
gm_status gm_device_read(gm_device *dev, void *host, const void *device, size_t bytes);
gm_status gm_device_write(gm_device *dev, void *device, const void *host, size_t bytes);
gm_status gm_device_copy(gm_device *dev, void *to, const void *from, size_t bytes);
gm_status gm_device_synchronize(gm_device *dev); /* everything queued is done */

/* Copies that nobody waits for, where memory is not the host's (GM_EINVAL elsewhere): between the device and memory
 * out of gm_device_host_pool, which is to stay as it is until a mark set behind the copy has been passed. */
gm_status gm_device_host_pool(gm_device *dev, gm_pool **out);
gm_status gm_device_read_later(gm_device *dev, void *pinned, const void *device, size_t bytes);
gm_status gm_device_write_later(gm_device *dev, void *device, const void *pinned, size_t bytes);
/* Behind all that is queued; a mark that was made before (not NULL) is moved there. To be given back by unmark. */
gm_status gm_device_mark(gm_device *dev, void **mark);
gm_status gm_device_passed(gm_device *dev, void *mark, bool *passed); /* does not wait */
void      gm_device_unmark(gm_device *dev, void *mark);               /* NULL is allowed */

/* A tensor's elements where the host can touch them, with the tensor's strides: themselves on a backend that is
 * on_host, a copy elsewhere, on meta what is known of them, or NULL. gm_host_changed must follow a write: it sends the
 * copy back, as far as the strides reach. Bytes that rest elsewhere (gm_home) are here until gm_host_close. */
typedef struct gm_host_elements {
    void            *data; /* of the first element */
    void            *copy; /* NULL: data is the tensor's own memory */
    const gm_tensor *tensor;
    bool             changed;
} gm_host_elements;
size_t    gm_host_reach(const gm_tensor *t); /* bytes from its first element to the end of its last */
gm_status gm_host_open(const gm_tensor *t, gm_host_elements *out);
gm_status gm_host_changed(gm_host_elements *e);
void      gm_host_close(gm_host_elements *e);
/* One element, by its distance from the first in elements; the tensor has values. Where none are known (meta), nothing
 * is stored. */
gm_status gm_host_load(const gm_tensor *t, int64_t at, double *out);
gm_status gm_host_store(const gm_tensor *t, int64_t at, double v);

/* The call on another device: its tensors are copied there, with their gaps, it runs there, and what it wrote comes
 * back. How specs run the table of one device over the memory of another. dev: where the tensors are. */
gm_status gm_run_elsewhere(gm_device *dev, gm_device *there, const gm_call *call);

/* The table called name, or NULL. "cpu" is the best of the instruction sets this machine has;
 * "cpu-generic", "cpu-avx2", "cpu-avx512" name one, NULL where it cannot run. Not "cuda", which needs a device. */
const gm_backend *gm_backend_find(const char *name);

/* Checks the call (gm_infer), that outputs are as inferred, counts it, runs the device's kernel. */
gm_status gm_run(gm_device *dev, const gm_call *call);
/* The same with another backend's kernel over the same memory: the judge in specs. */
gm_status gm_run_with(gm_device *dev, const gm_backend *backend, const gm_call *call);
/* gm_run of an op of one output and at most one input. attrs NULL: defaults; in NULL: none. */
gm_status gm_run_one(gm_device *dev, gm_op op, const gm_attrs *attrs, gm_tensor *in, gm_tensor *out);

#endif
