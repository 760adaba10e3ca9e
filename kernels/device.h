/* device.h - where tensors live and ops run: a backend, its memory pool, threads and step block.
 *
 * If a backend is not on_host, the host cannot touch the bytes of its tensors. gm_tensor_data then gives an address for
 * kernels, and gm_device_read, gm_device_write and gm_device_copy move bytes. These three work on every backend with
 * data, so their callers need not know which one they have. The device runs its work in the order in which it was
 * queued. gm_device_read waits for the work queued before it; the other two do not. */
#ifndef GM_DEVICE_H
#define GM_DEVICE_H

#include "memory.h"
#include "op.h"
#include "tensor.h"
#include "threads.h"

/* Numbers that change from step to step. Kernels read them when they run, not when they are recorded, so that a
 * recorded graph can run again. On the CPU this is plain memory; a GPU has a copy of it. */
typedef struct gm_step_block {
    uint64_t rng_step;   /* the step coordinate of random streams: optimizer steps done so far */
    int64_t  step;       /* the number of the current optimizer step, from 1: Adam's t */
    double   lr;         /* learning rate of this step */
    double   clip;       /* gradients are multiplied by this in the optimizer; 1: no clipping */
    double   loss_scale; /* gradients carry this factor; the optimizer divides by it */
    double   momentum;   /* SGD's, or Adam's beta1, in place of the attribute where has_momentum says so */
    int64_t  has_momentum;
} gm_step_block;

typedef struct gm_op_counter {
    uint64_t calls;
    double   flops, bytes;
    double   products; /* the part of flops in matrix products and attention */
} gm_op_counter;

/* Whether ways to make a product are timed (gm_device_time_products). */
typedef enum gm_timing {
    GM_TIMING_NONE,     /* no: a fixed rule decides, or what gm_choices_take was given */
    GM_TIMING_ALONE,    /* yes, and the fastest is taken at once */
    GM_TIMING_TOGETHER, /* yes, and the fastest is taken when gm_choices_take is given it */
} gm_timing;

struct gm_device {
    const gm_backend  *backend;
    gm_pool           *pool;
    gm_pool           *host;    /* page-locked memory of the host (gm_device_host_pool); NULL until it is asked for */
    gm_threads        *threads; /* NULL on meta */
    gm_step_block      step;
    gm_op_counter      counters[GM_OP_COUNT];
    struct gm_graph   *capture;       /* the graph that is being recorded (graph.h); NULL: nothing is recorded */
    void              *state;         /* made by the backend's `open`, for the backend alone */
    gm_timing          timing;        /* gm_device_time_products */
    bool               deterministic; /* gm_device_set_deterministic */
    bool               tf32; /* products of f32 may round their operands to 11 significant bits (gm_device_set_tf32) */
    struct gm_profile *profile; /* profile.h; NULL until one is started */
    struct gm_arena   *arena;   /* gm_device_share; NULL: none so far */
    struct gm_journal *journal; /* journal.h: owned; NULL: none */
    struct gm_notes   *notes;   /* gm_device_note; NULL: none so far */
    /* Called again and again while the host waits for the device, if operations between devices may be queued
     * (queues.h). If it does not return GM_OK, these operations would never end and have been stopped; the wait then
     * fails with this status. *idle: no such operation is left. NULL: there are none. */
    gm_status (*attend)(void *context, bool *idle);
    void *attend_context;
};

/* How often this process used its GPUs since it began. A graph that runs again counts in `graphs` only. */
typedef struct gm_device_counts {
    uint64_t launches;    /* launches of our kernels */
    uint64_t libraries;   /* calls of cuBLASLt and cuDNN that compute */
    uint64_t graphs;      /* launches of graphs */
    uint64_t copies;      /* copies in any direction, and fills */
    uint64_t waits;       /* times that the host had to wait for the device */
    uint64_t allocations; /* allocations of device memory by the driver */
} gm_device_counts;

/* A backend: a table of kernels, which each backend fills from ops.def, and a source of memory. The functions below are
 * those that gm_device_* calls; the contracts are there. */
struct gm_backend {
    const char   *name;     /* "ref", "cpu", "cuda", "meta" */
    bool          has_data; /* false: storages have no bytes, kernels compute nothing */
    bool          on_host;  /* the bytes are memory of this process; the functions below are then NULL */
    gm_raw_memory memory;   /* its context is the device */
    gm_kernel     kernel[GM_OP_COUNT];

    gm_status (*open)(gm_device *dev, int ordinal); /* called before the first allocation */
    void (*close)(gm_device *dev);                  /* called after the last release, also when open failed */
    gm_status (*read)(gm_device *dev, void *host, const void *device, size_t bytes);
    gm_status (*write)(gm_device *dev, void *device, const void *host, size_t bytes);
    gm_status (*copy)(gm_device *dev, void *to, const void *from, size_t bytes);
    gm_status (*synchronize)(gm_device *dev);
    gm_raw_memory pinned; /* page-locked memory of the host; its context is the device */
    gm_status (*read_later)(gm_device *dev, void *pinned, const void *device, size_t bytes);
    gm_status (*write_later)(gm_device *dev, void *device, const void *pinned, size_t bytes);
    gm_status (*mark)(gm_device *dev, void **mark);
    gm_status (*passed)(gm_device *dev, void *mark, bool *passed);
    void (*unmark)(gm_device *dev, void *mark);
    /* A stamp is a mark that keeps the time at which the device passed it. NULL where work is done at once. */
    gm_status (*stamp)(gm_device *dev, void **stamp);
    /* Gives the time between two stamps; waits until the device has passed `to`. */
    gm_status (*elapsed)(gm_device *dev, void *from, void *to, double *seconds);
    void (*counts)(const gm_device *dev, gm_device_counts *out); /* NULL: nothing is queued, nothing counted */

    /* graph.h; NULL where there are no graphs. After begin, work is recorded instead of run, until end or drop. end:
     * *graph is what replay queues, *nodes the number of pieces of work in it. If end fails, it drops the recording. */
    gm_status (*capture_begin)(gm_device *dev);
    gm_status (*capture_end)(gm_device *dev, void **graph, int *nodes);
    void (*capture_drop)(gm_device *dev);
    gm_status (*replay)(gm_device *dev, void *graph);
    void (*graph_free)(gm_device *dev, void *graph);
    /* Writes "NVIDIA H200, sm_90, 139 GiB" into buf, for people; returns buf. */
    char *(*describe)(const gm_device *dev, char *buf, size_t size);
    /* Writes "GPU-8f0c1d2e-..." into buf, the name that the driver's tools give the device, or ""; returns buf. */
    char *(*identify)(const gm_device *dev, char *buf, size_t size);
    const struct gm_queues  *queues;  /* queues.h; NULL: such devices have no further queues */
    const struct gm_choices *choices; /* choices.h; NULL: there is nothing to choose from */
};

/* Makes a device, freed by gm_device_free. backend: "cpu", "ref", "meta", "cuda", or "cuda:1" for the second GPU.
 * threads: 0 means one for each core that this process may use. GM_EINVAL: there is no such backend or device, or
 * something that it needs is missing; the message says what to try. */
gm_status gm_device_new(const char *backend, int threads, gm_device **out);
/* Makes a device of the host's CPU that works for `dev`, a device with memory of its own: its tensors lie in
 * page-locked memory, so that copies between both (queues.h) run beside the host. For a dev on meta it is on meta, too.
 * Freed before dev. GM_EINVAL: dev's memory is the host's. */
gm_status gm_device_new_beside(gm_device *dev, int threads, gm_device **out);
/* Tells what this machine has for GPUs (driver, devices, libraries), for people. Writes at most n facts; *found: how
 * many it wrote. GM_EINVAL: this build has no CUDA. */
typedef struct gm_device_fact {
    char name[16]; /* "driver", "device", "cublaslt", "cudnn" */
    bool found;
    char text[240]; /* what was found, or why nothing was found */
} gm_device_fact;
gm_status gm_device_facts(gm_device_fact *out, int n, int *found);

/* From here on tensors that are made by gm_tensor_new_shared lie in the arena (arena.h), which must outlive the device;
 * NULL: from here on they lie where all do. Where the arena has no more room, they do so too, and a note says it. On
 * devices whose memory is not the host's it has no effect. */
void gm_device_share(gm_device *dev, struct gm_arena *arena);
/* Notes: a kernel that chooses something for the user, such as a slow way because a library is missing, leaves a text.
 * The device keeps each text once in its life. gm_device_next_note copies the oldest text into buf and forgets it;
 * false: none is left. */
void gm_device_note(gm_device *dev, const char *text);
bool gm_device_next_note(gm_device *dev, char *buf, size_t size);
/* false: this device does its work at once, and there is nothing to count. */
bool gm_device_count(const gm_device *dev, gm_device_counts *out);
/* Says whether later products of f32 may use TF32 (8 bits of exponent, 10 of mantissa, sums in f32). They use it where
 * the device has it and cuBLASLt computes the product. *effect: whether this device has it. */
void gm_device_set_tf32(gm_device *dev, bool wanted, bool *effect);
/* Says whether the ways to make a product are timed when a product of this kind is first met, so that the fastest is
 * taken (choices.h). What is fastest, and so the last bits of products, may differ from run to run and from rank to
 * rank. *effect: whether this setting has an effect on this device. */
void gm_device_time_products(gm_device *dev, gm_timing timing, bool *effect);
/* Says whether an op must give the same bits whenever it is called with the same values. Our kernels always do.
 * Libraries have faster algorithms that add numbers in the order in which blocks end; this setting excludes them.
 * *effect: whether this setting has an effect on this device. */
void gm_device_set_deterministic(gm_device *dev, bool wanted, bool *effect);

bool gm_device_exists(const char *backend); /* false: gm_last_error says why it could not be opened */
void gm_device_free(gm_device *dev);        /* call it after the last tensor is released; NULL is allowed */

/* These move bytes from the device, to it, and inside of it, in order with the queued work. Read returns when the bytes
 * are there; write returns when the caller may change `host`; copy does not wait. On meta they do nothing. */
gm_status gm_device_read(gm_device *dev, void *host, const void *device, size_t bytes);
gm_status gm_device_write(gm_device *dev, void *device, const void *host, size_t bytes);
gm_status gm_device_copy(gm_device *dev, void *to, const void *from, size_t bytes);
gm_status gm_device_synchronize(gm_device *dev); /* returns when all queued work is done */

/* Copies that nobody waits for, between the device and memory from gm_device_host_pool (owned by dev). The caller must
 * leave this memory alone until the device has passed a mark set behind the copy. GM_EINVAL: the device's memory is the
 * host's. */
gm_status gm_device_host_pool(gm_device *dev, gm_pool **out);
gm_status gm_device_read_later(gm_device *dev, void *pinned, const void *device, size_t bytes);
gm_status gm_device_write_later(gm_device *dev, void *device, const void *pinned, size_t bytes);
/* Sets a mark behind all queued work. *mark: NULL, or an earlier mark, which then moves there. The caller gives the
 * mark back by gm_device_unmark. */
gm_status gm_device_mark(gm_device *dev, void **mark);
/* Tells whether the device has done all work before the mark; does not wait. */
gm_status gm_device_passed(gm_device *dev, void *mark, bool *passed);
void      gm_device_unmark(gm_device *dev, void *mark); /* NULL is allowed */

/* Gives the host access to a tensor's elements, with the tensor's strides. On a backend that is on_host, these are the
 * elements themselves; on another backend they are a copy; on meta they are the known values, or data is NULL.
 * gm_host_changed must follow a write: it sends a copy back to the device. Bytes that rest elsewhere (gm_home) are here
 * until gm_host_close. */
typedef struct gm_host_elements {
    void            *data; /* address of the first element */
    void            *copy; /* NULL: data is the tensor's own memory */
    const gm_tensor *tensor;
    bool             changed;
} gm_host_elements;
size_t    gm_host_reach(const gm_tensor *t); /* bytes from the start of its first element to the end of its last */
gm_status gm_host_open(const gm_tensor *t, gm_host_elements *out);
gm_status gm_host_changed(gm_host_elements *e);
void      gm_host_close(gm_host_elements *e);
/* Reads or writes one element; at: its distance from the first element, in elements of memory. A load on meta needs
 * known values; a store on meta does nothing where none are known. */
gm_status gm_host_load(const gm_tensor *t, int64_t at, double *out);
gm_status gm_host_store(const gm_tensor *t, int64_t at, double v);

/* Runs a call on the device `there`; its tensors are on dev. Copies the storages to `there` with their gaps, runs the
 * call, and copies back what it wrote. Specs compare the kernels of two devices in this way. */
gm_status gm_run_elsewhere(gm_device *dev, gm_device *there, const gm_call *call);

/* Finds the table of a backend; NULL: there is none, or this machine cannot run it. "cpu" is the table for the best
 * instruction set that this machine has; "cpu-generic", "cpu-avx2", "cpu-avx512", "cpu-avx512bf16", "cpu-amx" and
 * "cpu-amx-emulated" name one (cpu/cpu.h). "cuda" is not found here, because it needs a device. */
const gm_backend *gm_backend_find(const char *name);

/* Checks the call (gm_infer) and that its outputs are as inferred; counts it; runs the device's kernel. */
gm_status gm_run(gm_device *dev, const gm_call *call);
/* The same with the kernel of another backend over the same memory, by which specs judge kernels. */
gm_status gm_run_with(gm_device *dev, const gm_backend *backend, const gm_call *call);
/* gm_run for an op with one output and at most one input. attrs NULL: the defaults; in NULL: no input. */
gm_status gm_run_one(gm_device *dev, gm_op op, const gm_attrs *attrs, gm_tensor *in, gm_tensor *out);

#endif
