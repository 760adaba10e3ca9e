/* driver.h - the CUDA driver, loaded when the first device is opened, and the state of an opened device. For files that
 * call the driver themselves; ops need cuda.h only.
 *
 * The environment variable GANYMEDE_CUDA_DRIVER names the library to load in place of libcuda.so.1. GANYMEDE_CUDA_BLAS
 * and GANYMEDE_CUDA_DNN name those of cuBLASLt and cuDNN. Specs use them to load an emulation. They are read once, when
 * the driver is loaded. A run names them in its first line. */
#ifndef GM_CUDA_DRIVER_H
#define GM_CUDA_DRIVER_H

/* <>: the toolkit's header, not ours of the same name. This folder must never be on the search path. */
#include <cuda.h>

#include "cuda.h"
#include "module.h"

typedef struct gm_driver {
#define GM_DRIVER(name) __typeof__(name) *name;
#include "driver_functions.def"
#undef GM_DRIVER
    char path[256], blas[256], dnn[256]; /* the libraries of driver, cuBLASLt and cuDNN */
    bool dnn_named;                      /* GANYMEDE_CUDA_DNN names the library of cuDNN */
} gm_driver;

/* Gives the driver's functions; the first call loads them. GM_EINVAL: there is no driver, it is too old, or it does not
 * start. */
gm_status gm_cuda_driver(const gm_driver **out);

/* Returns GM_EIO (GM_ENOMEM if memory is short) with a message: what was done, and the driver's name and text of the
 * error. */
gm_status gm_cuda_failed(CUresult r, const char *file, int line, const char *what);
#define GM_CU(d, call)                                                                \
    do {                                                                              \
        CUresult r_ = (d)->call;                                                      \
        if (r_ != CUDA_SUCCESS) return gm_cuda_failed(r_, __FILE__, __LINE__, #call); \
    } while (0)

/* A piece of page-locked memory through which copies go. The event `done` is recorded after the copy that uses it. */
typedef struct gm_pinned {
    void   *data;
    CUevent done;
    bool    busy;
} gm_pinned;

#define GM_CUDA_STAGING   64        /* the most pieces for reads and writes; a new one is made when all are in use */
#define GM_CUDA_PIECE     (1 << 20) /* bytes of a piece */
#define GM_CUDA_STEPS     8         /* the most copies of step blocks under way */
#define GM_CUDA_FUNCTIONS 1024      /* slots of the table of kernels: more than twice as many as there are kernels */
#define GM_CUDA_TICKETS   256       /* the most free tickets (queues.c) that are kept for later use */

struct gm_cuda {
    const gm_driver *driver;
    CUdevice         device;
    CUcontext        context;
    CUstream         stream;
    CUstream         launches; /* the stream of kernels, copies and fills: `stream`, or that of another queue */
    CUmodule        *modules;
    int              n_modules;
    int              multiprocessors, shared_most; /* shared_most: bytes of shared memory a block may ask for */
    struct gm_cuda_function {
        char      *name;
        CUfunction function;
        size_t     shared; /* bytes of shared memory that it may use so far */
        size_t     args;   /* bytes of its only argument */
    } functions[GM_CUDA_FUNCTIONS];
    gm_pinned             staging[GM_CUDA_STAGING];
    unsigned              n_staging;
    unsigned              next_staging;
    gm_pinned             steps[GM_CUDA_STEPS];
    unsigned              next_step;
    CUdeviceptr           step;      /* the step block on the device */
    gm_step_block         step_sent; /* its content, if has_step */
    bool                  has_step;
    CUdeviceptr           refusal;  /* refusal.h; 0 until a kernel that may refuse is launched */
    void                 *refused;  /* page-locked: the content of `refusal` at the last wait */
    struct gm_blas       *blas;     /* blas.h; NULL until the first product */
    int                   wgmma;    /* wgmma.c: 1: this GPU has its kernels, -1: it has not, 0: nobody asked yet */
    struct gm_dnn        *dnn;      /* dnn.c; NULL until attention asks for cuDNN */
    struct gm_products   *products; /* products/choose.h; NULL until the first product */
    struct gm_tables     *tables;   /* optimizer_table.h; NULL until the first call of many tensors */
    struct gm_cuda_graph *graph;    /* graph.h; NULL: none is being captured */
    struct gm_ticket     *spare_tickets[GM_CUDA_TICKETS]; /* queues.c */
    int                   n_spare_tickets;
};

/* Makes the context of the device that of the calling thread. */
gm_status gm_cuda_enter(const gm_device *dev, gm_cuda **out);

/* Allocates page-locked memory for copies, and its event. */
gm_status gm_cuda_new_pinned(gm_cuda *cu, gm_pinned *p, size_t bytes);

/* Refusals of kernels (refusal.c): `ask` queues a copy of the record before a wait; after the wait, `hear` returns an
 * error if a kernel has refused something. */
gm_status gm_cuda_ask_refusal(gm_cuda *cu);
gm_status gm_cuda_hear_refusal(gm_cuda *cu);
void      gm_cuda_forget_refusal(gm_cuda *cu);

/* Lets the host wait for all work that is queued on the device's stream (wait.c). If operations between devices are
 * queued, the failure of another rank ends the wait: GM_EPEER, GM_EHANG, GM_EMISMATCH, GM_ECOMM, GM_EINTERRUPT, as
 * gm_comm_wait returns them. */
gm_status gm_cuda_wait(gm_device *dev, gm_cuda *cu);
gm_status gm_cuda_wait_event(gm_device *dev, gm_cuda *cu, CUevent event); /* the same for the work before the event */
/* Waits until no operation between devices is queued, or they were stopped. For use before calls of the driver that
 * block. */
void gm_cuda_wait_for_links(gm_device *dev, gm_cuda *cu);

extern const struct gm_queues  gm_cuda_queues;  /* queues.c */
extern const struct gm_choices gm_cuda_choices; /* products/choose.c */
void                           gm_cuda_free_tickets(gm_cuda *cu);

/* A compiled file of kernels, in the module's own data (images.c, which the build writes). */
typedef struct gm_cuda_image {
    const char          *name;
    const unsigned char *data, *end;
} gm_cuda_image;
extern const gm_cuda_image gm_cuda_images[];
extern const int           gm_cuda_image_count;

/* 9.19: the oldest cuDNN that was tried. Older ones take other graphs (dnn/). */
#define GM_DNN_OLDEST 91900

/* The entries of the backend's table (module.c). */
gm_status gm_cuda_start(gm_device *dev, int ordinal);
void      gm_cuda_stop(gm_device *dev);
gm_status gm_cuda_take(void *device, size_t bytes, void **out);
void      gm_cuda_give(void *device, void *p, size_t bytes);
char     *gm_cuda_describe(const gm_device *dev, char *buf, size_t size);
char     *gm_cuda_identify(const gm_device *dev, char *buf, size_t size);
gm_status gm_cuda_probe(void);
int       gm_cuda_facts(gm_device_fact *out, int n);

#endif
