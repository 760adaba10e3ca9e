/* tensor.h - n-d arrays in the memory of one device: views over counted storage.
 *
 * A tensor is a view (dtype, shape, strides, offset) of a storage; the storage owns the bytes, which
 * go back to the device's pool the moment its last tensor is released. This file knows nothing of
 * Lua, MPI, layouts or gradients.
 *
 *     gm_tensor *x = NULL;
 *     GM_TRY(gm_tensor_new(dev, GM_F32, 2, (int64_t[]){4, 8}, &x));  // refs == 1
 *     ...
 *     gm_tensor_release(x);                                          // bytes are free now
 *
 * Ownership: functions named _new, _view and the like give the caller a reference through their last
 * pointer; every other function only borrows. Not thread safe: one thread per device, but kernels may
 * read headers from the device's worker threads. */
#ifndef GM_TENSOR_H
#define GM_TENSOR_H

#include "dtype.h"
#include "status.h"

#define GM_MAX_DIMS 8

typedef struct gm_device gm_device;

/* Where the bytes of a storage rest while its data is NULL: on a disk (host/tier), or as parts on several ranks
 * (host/gradients/stored.h). What reads or writes bytes opens the storage first; gm_run, gm_host_open and collectives do
 * so by themselves. Opens nest. */
typedef struct gm_home gm_home;
struct gm_home {
    gm_status (*open)(gm_home *h);           /* the bytes are at storage->data until the last close */
    void (*close)(gm_home *h, bool changed); /* changed: they are not what they were */
    void (*gone)(gm_home *h);                /* the storage is being freed; frees the home */
};

/* The bytes. Counted by the tensors that view it; `block` is the pool's. */
typedef struct gm_storage {
    int              refs;
    size_t           bytes; /* as asked for */
    void            *data;  /* NULL on the meta backend, and while the bytes rest elsewhere */
    gm_device       *device;
    struct gm_block *block;   /* NULL: its home keeps the bytes */
    gm_home         *home;    /* NULL: the bytes are always at data */
    int              opens;   /* of the home, and not closed */
    void            *known;   /* meta: the values in memory of the host, NULL where they are not known */
    unsigned         version; /* bumped by whoever writes in place after the bytes were handed out, so
                                 that a saved activation that changed is noticed */
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

/* Contiguous, values undefined. GM_ESHAPE: negative size or more than 2^47 bytes; GM_ENOMEM. */
gm_status gm_tensor_new(gm_device *dev, gm_dtype dtype, int ndim, const int64_t *shape, gm_tensor **out);
void      gm_tensor_retain(gm_tensor *t);
void      gm_tensor_release(gm_tensor *t); /* NULL is allowed */

/* The bytes alone: who holds a reference keeps them where they are, also without a tensor. */
void      gm_storage_retain(gm_storage *s);
void      gm_storage_release(gm_storage *s);
gm_status gm_storage_open(gm_storage *s);
void      gm_storage_close(gm_storage *s, bool changed);
/* For homes: the bytes go back to the pool; and room for them again, contents undefined (GM_ENOMEM). */
void      gm_storage_vacate(gm_storage *s);
gm_status gm_storage_occupy(gm_storage *s);

/* Views: a new header on the same storage. Dimensions count from 0. */
gm_status gm_tensor_view(gm_tensor *t, int ndim, const int64_t *shape, const int64_t *stride, int64_t offset,
                         gm_tensor **out); /* any; checked against the storage's end */
gm_status gm_tensor_reshape(gm_tensor *t, int ndim, const int64_t *shape, gm_tensor **out);
/* GM_ESHAPE if the strides cannot show it without a copy, or numel differs */
gm_status gm_tensor_permute(gm_tensor *t, const int *order, gm_tensor **out); /* order[ndim] */
gm_status gm_tensor_narrow(gm_tensor *t, int dim, int64_t start, int64_t length, gm_tensor **out);
gm_status gm_tensor_select(gm_tensor *t, int dim, int64_t index, gm_tensor **out);         /* drops dim */
gm_status gm_tensor_expand(gm_tensor *t, int ndim, const int64_t *shape, gm_tensor **out); /* 1 -> n */

int64_t gm_tensor_numel(const gm_tensor *t);
bool    gm_tensor_is_contiguous(const gm_tensor *t); /* row-major without gaps */
bool    gm_tensor_can_reshape(const gm_tensor *t, int ndim, const int64_t *shape);
bool    gm_tensor_same_shape(const gm_tensor *a, const gm_tensor *b);
/* Address of the first element; NULL on meta, and while the bytes rest elsewhere. */
void *gm_tensor_data(const gm_tensor *t);
bool  gm_tensor_has_data(const gm_tensor *t); /* here, or once its storage is opened */
/* Values without a device's memory, on meta: those of small constants, and what ops make of them alone (meta/known.c).
 * The address of the first element, which `know` makes room for, zeros at first, where the storage is small. */
#define GM_KNOWN_BYTES ((size_t)1 << 16)
void *gm_tensor_known(const gm_tensor *t); /* NULL: not known */
void *gm_tensor_know(gm_tensor *t);        /* NULL: too large, or this device has memory */
void  gm_tensor_forget(gm_tensor *t);
/* "f32 (4, 8)" into buf; returns buf. For messages. */
char *gm_tensor_describe(const gm_tensor *t, char *buf, size_t size);
char *gm_shape_describe(int ndim, const int64_t *shape, char *buf, size_t size); /* "(4, 8)" */
/* Row-major strides of a shape. */
void gm_shape_strides(int ndim, const int64_t *shape, int64_t *stride);

#endif
