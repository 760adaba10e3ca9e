/* tensor.h - n-dimensional arrays in the memory of one device: views over counted storage.
 *
 * A tensor is a view (dtype, shape, strides, offset) of a storage. The storage owns the bytes. They go back to the
 * device's pool when the last reference to the storage is released. This file knows nothing of Lua, MPI, layouts or
 * gradients.
 *
 *     gm_tensor *x = NULL;
 *     GM_TRY(gm_tensor_new(dev, GM_F32, 2, (int64_t[]){4, 8}, &x));  // refs == 1
 *     ...
 *     gm_tensor_release(x);                                          // the bytes are free now
 *
 * Ownership: functions with a `gm_tensor **out` (_new and the views) give the caller a reference. Every other function
 * only borrows. Only one thread per device may call these functions; the device's worker threads may read headers while
 * a kernel runs. */
#ifndef GM_TENSOR_H
#define GM_TENSOR_H

#include "dtype.h"
#include "status.h"

#define GM_MAX_DIMS 8

typedef struct gm_device gm_device;

/* Keeps the bytes of a storage elsewhere while nobody uses them: on a disk (host/tier), or as parts on several ranks
 * (host/gradients/stored.h). The storage's data is then NULL; its tensors and their views stay valid. Code that reads
 * or writes bytes opens the storage first; gm_run, gm_host_open and collectives do so by themselves. Opens nest. */
typedef struct gm_home gm_home;
struct gm_home {
    gm_status (*open)(gm_home *h);           /* the bytes are at storage->data until the last close */
    void (*close)(gm_home *h, bool changed); /* changed: the bytes are not what they were */
    void (*gone)(gm_home *h);                /* the storage is being freed; frees the home */
};

/* The bytes of one or several tensors. */
typedef struct gm_storage {
    int              refs;
    size_t           bytes; /* as the caller asked for */
    void            *data;  /* NULL on the meta backend, and while the bytes rest elsewhere */
    gm_device       *device;
    struct gm_block *block;   /* the pool's block of these bytes; NULL: the home keeps the bytes */
    gm_home         *home;    /* NULL: the bytes are always at data */
    int              opens;   /* that have not been closed; also of a storage without a home */
    void            *known;   /* on meta: the values, in memory of the host; NULL where they are not known */
    unsigned         version; /* goes up with each write in place after the bytes were handed out; autograd compares it
                                 to notice that a saved tensor has changed */
} gm_storage;

typedef struct gm_tensor {
    int         refs;
    gm_dtype    dtype;
    int         ndim;
    int64_t     shape[GM_MAX_DIMS];
    int64_t     stride[GM_MAX_DIMS]; /* in elements, never negative; 0 repeats (expand) */
    int64_t     offset;              /* in elements, from the start of the storage */
    gm_storage *storage;
} gm_tensor;

/* Makes a contiguous tensor; its values are undefined. GM_ESHAPE: a size is negative, or the tensor has more than 2^47
 * bytes. GM_ENOMEM: see memory.h. */
gm_status gm_tensor_new(gm_device *dev, gm_dtype dtype, int ndim, const int64_t *shape, gm_tensor **out);
/* The same in memory that the other ranks of the machine can read and write (memory.h, gm_pool_lend), where the device
 * has such: collectives then need no copy by the system. Products over it are slower where the system has no huge pages
 * for such memory. */
gm_status gm_tensor_new_shared(gm_device *dev, gm_dtype dtype, int ndim, const int64_t *shape, gm_tensor **out);
/* The same without bytes, which a home must bring before the first use. */
gm_status gm_tensor_new_absent(gm_device *dev, gm_dtype dtype, int ndim, const int64_t *shape, gm_tensor **out);
void      gm_tensor_retain(gm_tensor *t);
void      gm_tensor_release(gm_tensor *t); /* NULL is allowed */

/* References to the bytes alone: they keep the bytes where they are, also when no tensor is left. */
void gm_storage_retain(gm_storage *s);
void gm_storage_release(gm_storage *s);

/* Brings bytes that rest elsewhere, until gm_storage_close. Of a storage without a home opens are only counted. */
gm_status gm_storage_open(gm_storage *s);
void      gm_storage_close(gm_storage *s, bool changed);
/* For homes: gives the bytes back to the pool; and takes bytes from it again, with undefined values (GM_ENOMEM). */
void      gm_storage_vacate(gm_storage *s);
gm_status gm_storage_occupy(gm_storage *s);

/* Views: each makes a new header for the same storage. Dimensions count from 0. GM_ESHAPE or GM_EINVAL: the arguments
 * do not fit t. */

/* A view of any shape, strides and offset (in elements). GM_ESHAPE: it reaches past the end of the storage. */
gm_status gm_tensor_view(gm_tensor *t, int ndim, const int64_t *shape, const int64_t *stride, int64_t offset,
                         gm_tensor **out);
/* GM_ESHAPE: the number of elements differs, or no strides give this shape without a copy. */
gm_status gm_tensor_reshape(gm_tensor *t, int ndim, const int64_t *shape, gm_tensor **out);
/* order[ndim]: dimension d of the view is dimension order[d] of t. */
gm_status gm_tensor_permute(gm_tensor *t, const int *order, gm_tensor **out);
gm_status gm_tensor_narrow(gm_tensor *t, int dim, int64_t start, int64_t length, gm_tensor **out);
/* One place along dim; the view lacks this dimension. */
gm_status gm_tensor_select(gm_tensor *t, int dim, int64_t index, gm_tensor **out);
/* Repeats t along dimensions of size 1, by stride 0; shapes are aligned at the last dimension. */
gm_status gm_tensor_expand(gm_tensor *t, int ndim, const int64_t *shape, gm_tensor **out);

int64_t gm_tensor_numel(const gm_tensor *t);
bool    gm_tensor_is_contiguous(const gm_tensor *t); /* row-major without gaps */
bool    gm_tensor_can_reshape(const gm_tensor *t, int ndim, const int64_t *shape);
bool    gm_tensor_same_shape(const gm_tensor *a, const gm_tensor *b);
/* Address of the first element; NULL on meta, and while the bytes rest elsewhere. */
void *gm_tensor_data(const gm_tensor *t);
bool  gm_tensor_has_data(const gm_tensor *t); /* now, or once its storage is opened */
/* Values on the meta device: small constants, and what ops compute from them alone, have values in memory of the host
 * (meta/known.c). `known` and `know` return the address of t's first element. `know` allocates the values, zeros at
 * first, for a storage of at most GM_KNOWN_BYTES bytes. `forget` frees the values of the storage. */
#define GM_KNOWN_BYTES ((size_t)1 << 16)
void *gm_tensor_known(const gm_tensor *t); /* NULL: not known */
void *gm_tensor_know(gm_tensor *t);        /* NULL: the storage is too large, or the device has memory of its own */
void  gm_tensor_forget(gm_tensor *t);
/* Writes "f32 (4, 8)" into buf, for messages; returns buf. */
char *gm_tensor_describe(const gm_tensor *t, char *buf, size_t size);
char *gm_shape_describe(int ndim, const int64_t *shape, char *buf, size_t size); /* "(4, 8)" */
/* Gives the row-major strides of a shape. */
void gm_shape_strides(int ndim, const int64_t *shape, int64_t *stride);

#endif
