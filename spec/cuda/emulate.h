/* emulate.h - what kernel.cuh needs to be compiled for the CPU, by g++: each kernel becomes a function in a table
 * that the fake driver launches from. How blocks run: emulate.c. */
#ifndef GM_EMULATE_H
#define GM_EMULATE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../../kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The thread that is running. */
typedef struct gm_emulated_thread {
    int            thread, block_size;
    int64_t        block_x, block_y, block_z, grid_x, grid_y, grid_z;
    unsigned char *shared;
    uint64_t       launch; /* its number */
} gm_emulated_thread;
extern gm_emulated_thread gm_emulated;

void gm_emulated_add(const char *name, void (*run)(const void *args), size_t args);

/* All threads of the block meet, at the same line. */
void gm_emulated_sync(const char *file, int line);
/* All lanes of the warp meet at the same line, each with so many bytes (at most GM_EMULATED_SLOT): gives what they
 * brought, lane l at l * GM_EMULATED_SLOT, until the next meeting. */
#define GM_EMULATED_SLOT 48
const unsigned char *gm_emulated_gather(const void *value, size_t bytes, const char *file, int line);
/* The same, for the bytes of one lane. */
void gm_emulated_shuffle(void *value, size_t bytes, int lane, const char *file, int line);

/* The thread waits until passed(of, value) is true, which another thread of its block sees to. */
void gm_emulated_wait(bool (*passed)(const void *of, int value), const void *of, int value, const char *file, int line);
/* So many threads of the block meet, those that name the same number, 0 to 15. */
void gm_emulated_meet(int number, int threads, const char *file, int line);

/* What cuTensorMapEncodeTiled of the fake driver writes: a matrix of numbers of 16 bits, and the box that is copied. */
typedef struct gm_emulated_map {
    unsigned char *data;
    int64_t        size[2], step; /* columns, rows; bytes between rows */
    uint32_t       box[2];        /* columns, rows */
} gm_emulated_map;

float    gm_emulated_get_f16(uint16_t bits);
uint16_t gm_emulated_put_f16(float x);

#ifdef __cplusplus
}
#endif

#ifdef __cplusplus
/* Functions of CUDA that the C library has not. */
static inline void sincospi(double x, double *s, double *c) { sincos(x * 3.14159265358979323846, s, c); }
static inline void sincospif(float x, float *s, float *c)
{
    double sine, cosine;
    sincospi((double)x, &sine, &cosine);
    *s = (float)sine;
    *c = (float)cosine;
}
#endif

#define GM_KERNEL(name, type)                                                                                       \
    static void name##_body(const type a __attribute__((unused)));                                                  \
    static void name##_run(const void *args)                                                                        \
    {                                                                                                               \
        type a;                                                                                                     \
        memcpy(&a, args, sizeof a);                                                                                 \
        name##_body(a);                                                                                             \
    }                                                                                                               \
    __attribute__((constructor)) static void name##_add(void) { gm_emulated_add(#name, name##_run, sizeof(type)); } \
    static void                              name##_body(const type a __attribute__((unused)))
#define GM_DEVICE             __attribute__((unused)) static inline
#define GM_SHARED(type, name) type *name = (type *)(void *)gm_emulated.shared
#define GM_SYNC()             gm_emulated_sync(__FILE__, __LINE__)
#define gm_thread             (gm_emulated.thread)
#define gm_block_size         (gm_emulated.block_size)
#define gm_block_x            (gm_emulated.block_x)
#define gm_block_y            (gm_emulated.block_y)
#define gm_block_z            (gm_emulated.block_z)
#define gm_grid_x             (gm_emulated.grid_x)
#define gm_shuffle(v, l)                                                            \
    __extension__({                                                                 \
        __typeof__(v) shuffled_ = (v);                                              \
        gm_emulated_shuffle(&shuffled_, sizeof shuffled_, (l), __FILE__, __LINE__); \
        shuffled_;                                                                  \
    })
#define gm_shuffle_xor(v, l) gm_shuffle(v, (gm_thread % 32) ^ (l))
/* One thread runs at a time. */
#define gm_add_i32(p, v)               \
    __extension__({                    \
        __typeof__(p)  at_ = (p);      \
        __typeof__(*p) before_ = *at_; \
        *at_ += (v);                   \
        before_;                       \
    })

#endif
