/* transform_kernel.h - transforms of samples that you write in C: what your shared library and Ganymede agree on. This
 * file needs no other, in C99 and C++.
 *
 *     #include "transform_kernel.h"
 *
 *     static int invert(const gm_kernel_call *c)
 *     {
 *         const uint8_t *in = (const uint8_t *)c->in;
 *         uint8_t       *out = (uint8_t *)c->out;
 *         for (int64_t i = 0; i < gm_kernel_elements(c); i++) out[i] = (uint8_t)(255 - in[i]);
 *         return 0;
 *     }
 *     GM_TRANSFORM_KERNEL(inverted, invert) // the name for Lua, the function
 *
 *     cc -O2 -shared -fPIC -I host/data invert.c -o libinvert.so
 *
 *     transforms = { { type = "NativeTransform", library = "./libinvert.so", symbol = "inverted", dtype = "u8" } }
 *
 * The threads of the loader call the function once for each sample, several at a time. It must depend on nothing but
 * its call, so that a sample is the same on any number of threads and ranks: what is random comes from
 * gm_kernel_uniform. It calls nothing of Lua or MPI, and changes no signal handler. It fills all of `out`. A result
 * other than 0 ends the run: the message names the sample, its file and what the function has put into `error`. */
#ifndef GM_TRANSFORM_KERNEL_H
#define GM_TRANSFORM_KERNEL_H

#include <stdint.h>

#define GM_KERNEL_MAGIC UINT64_C(0x314c4e524b594d47) /* "GMYKRNL1": another number means another agreement */
#define GM_KERNEL_DIMS  8
#define GM_KERNEL_ERROR 256 /* bytes of a message, its end included */

typedef enum gm_kernel_dtype {
    GM_KERNEL_U8, /* uint8_t: bytes of pictures, 0 to 255 */
    GM_KERNEL_F64 /* double */
} gm_kernel_dtype;

/* One sample. Elements lie one behind the other, the last dimension first; pictures are (channels, height, width). */
typedef struct gm_kernel_call {
    const void   *in;
    void         *out;   /* elsewhere than in */
    int32_t       dtype; /* gm_kernel_dtype of both */
    int32_t       ndim, out_ndim;
    int32_t       n_parameters;
    int64_t       shape[GM_KERNEL_DIMS], out_shape[GM_KERNEL_DIMS];
    const double *parameters; /* those of the transform in Lua */
    void         *user;       /* likewise; the same in all calls, of all threads */
    int64_t       sample;     /* its number in the dataset, from 0 */
    uint64_t      epoch;
    uint64_t      seed;  /* a function of the run's seed, the transform's place in the list, epoch and sample */
    char         *error; /* GM_KERNEL_ERROR bytes, empty: why the call has failed */
} gm_kernel_call;

/* What a library gives: GM_TRANSFORM_KERNEL makes it. */
typedef struct gm_transform_kernel {
    uint64_t magic;
    uint64_t call_size;                     /* of gm_kernel_call, as the library was compiled */
    int (*run)(const gm_kernel_call *call); /* 0: out is made */
} gm_transform_kernel;

#ifdef __cplusplus
#define GM_KERNEL_EXTERN extern "C"
#else
#define GM_KERNEL_EXTERN extern
#endif

#define GM_TRANSFORM_KERNEL(name, function)                                                 \
    GM_KERNEL_EXTERN const gm_transform_kernel name __attribute__((visibility("default"))); \
    const gm_transform_kernel                  name = {GM_KERNEL_MAGIC, sizeof(gm_kernel_call), function};

/* How many elements come in, and go out. */
static inline int64_t gm_kernel_elements(const gm_kernel_call *c)
{
    int64_t n = 1;
    for (int d = 0; d < c->ndim; d++) n *= c->shape[d];
    return n;
}

static inline int64_t gm_kernel_out_elements(const gm_kernel_call *c)
{
    int64_t n = 1;
    for (int d = 0; d < c->out_ndim; d++) n *= c->out_shape[d];
    return n;
}

/* Random number i of this sample, in [0, 1) with 53 bits: SplitMix64 (Steele, Lea and Flood 2014) from the seed. */
static inline double gm_kernel_uniform(const gm_kernel_call *c, uint64_t i)
{
    uint64_t z = c->seed + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) * (1.0 / 9007199254740992.0);
}

#endif
