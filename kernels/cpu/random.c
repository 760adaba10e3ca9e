/* random.c - uniform, normal and dropout: pure functions of (stream, global element index).
 *
 * Philox runs on a vector of blocks at a time and fills a small buffer of words, which the samplers of
 * sample.h then read, so the bits are those of the reference. The index of an element in the global tensor
 * (the box) is carried through the walk as one more "tensor" whose strides are those of the global shape:
 * its pointer is a number and is never followed. */
#include "../sample.h"

#define WORDS      1024 /* made at a time */
#define INDEX_BASE 64   /* so that the pointer that carries an index is never null */

typedef uint64_t vu64 __attribute__((vector_size(CPU_VECTOR)));
typedef vu64 any_u64 __attribute__((aligned(4), may_alias));
#define BLOCK_LANES (CPU_VECTOR / 8)

/* Low halves multiplied to 64 bits; what stands in the high halves is ignored. */
#if CPU_VECTOR == 64
CPU_INLINE vu64 mul_low(vu64 a, vu64 b) { return (vu64)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
#elif CPU_VECTOR == 32
CPU_INLINE vu64 mul_low(vu64 a, vu64 b) { return (vu64)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
#elif defined(__x86_64__)
CPU_INLINE vu64 mul_low(vu64 a, vu64 b) { return (vu64)_mm_mul_epu32((__m128i)a, (__m128i)b); }
#else
CPU_INLINE vu64 mul_low(vu64 a, vu64 b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
#endif

/* Words 4 b .. of the blocks b = block .. block + BLOCK_LANES - 1 as philox.h makes them. */
CPU_INLINE void philox_lanes(uint64_t key, uint64_t step, vu64 block, uint32_t *out)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    vu64     c0 = block, c1 = block >> 32, c2 = (vu64){0} + (uint32_t)step, c3 = (vu64){0} + (step >> 32);
    vu64     m0 = (vu64){0} + 0xD2511F53u, m1 = (vu64){0} + 0xCD9E8D57u;
    for (int round = 0; round < 10; round++) {
        vu64 p0 = mul_low(c0, m0), p1 = mul_low(c2, m1);
        c0 = (p1 >> 32) ^ c1 ^ ((vu64){0} + k0);
        c2 = (p0 >> 32) ^ c3 ^ ((vu64){0} + k1);
        c1 = p1;
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    vu64 low = (c0 & 0xffffffffu) | (c1 << 32), high = (c2 & 0xffffffffu) | (c3 << 32); /* words 0 1 and 2 3 */
#if CPU_VECTOR == 64
    *(any_u64 *)out = __builtin_shuffle(low, high, (vu64){0, 8, 1, 9, 2, 10, 3, 11});
    *(any_u64 *)(out + 16) = __builtin_shuffle(low, high, (vu64){4, 12, 5, 13, 6, 14, 7, 15});
#elif CPU_VECTOR == 32
    *(any_u64 *)out = __builtin_shuffle(low, high, (vu64){0, 4, 1, 5});
    *(any_u64 *)(out + 8) = __builtin_shuffle(low, high, (vu64){2, 6, 3, 7});
#else
    *(any_u64 *)out = __builtin_shuffle(low, high, (vu64){0, 2});
    *(any_u64 *)(out + 4) = __builtin_shuffle(low, high, (vu64){1, 3});
#endif
}

/* Words of the blocks that hold elements [index, index + n), n <= WORDS - 8; returns the word of `index`. */
static const uint32_t *philox_words(uint64_t key, uint64_t step, uint64_t index, int64_t n, uint32_t *out)
{
    vu64    block = {0};
    int64_t skip = (int64_t)(index % 4), blocks = (skip + n + 3) / 4;
    for (int i = 0; i < BLOCK_LANES; i++) block[i] = index / 4 + (uint64_t)i;
    for (int64_t b = 0; b < blocks; b += 2 * BLOCK_LANES) { /* two chains hide each other's latency */
        philox_lanes(key, step, block, out + 4 * b);
        philox_lanes(key, step, block + BLOCK_LANES, out + 4 * (b + BLOCK_LANES));
        block += 2 * BLOCK_LANES;
    }
    return out + skip;
}

typedef struct random_job random_job;
/* n elements whose indices follow each other from `index`; words: those of `index` on. x is NULL or the input. */
typedef void (*sample_row)(const random_job *j, int64_t n, uint64_t index, const uint32_t *words, const void *x, void *y);

struct random_job {
    const gm_attrs *at;
    uint64_t        key, step;
    gm_truncated    cut;
    sample_row      row;
    bool            has_x;
    int64_t         size;
    uint32_t        threshold;
};

#define AS 32
#include "as.h"
#include "random_t.h"
#define AS 64
#include "as.h"
#include "random_t.h"
#define AS 0
#include "as.h"

static void random_row(const void *context, int64_t n, char *const *p, const int64_t *stride)
{
    const random_job *j = context;
    int               k = j->has_x ? 2 : 1; /* the slot of the index */
    uint64_t          index = (uint64_t)((uintptr_t)p[k] - INDEX_BASE);
    uint32_t          words[WORDS + 16 * BLOCK_LANES] __attribute__((aligned(64)));
    bool              even = stride[k] == 1;
    int64_t           most = even ? WORDS - 8 : 1; /* indices that do not follow each other: one at a time */
    for (int64_t i = 0; i < n; i += most) {
        int64_t         m = n - i < most ? n - i : most;
        uint64_t        first = index + (uint64_t)(i * stride[k]);
        char            room[2][WORDS * 8] __attribute__((aligned(64)));
        char           *y = p[0] + i * stride[0] * j->size, *x = j->has_x ? p[1] + i * stride[1] * j->size : NULL;
        const uint32_t *at = philox_words(j->key, j->step, first, m, words);
        if (x && stride[1] != 1) {
            copy_strided(j->size, m, room[1], 1, x, stride[1]);
            x = room[1];
        }
        j->row(j, m, first, at, x, stride[0] == 1 ? y : room[0]);
        if (stride[0] != 1) copy_strided(j->size, m, y, stride[0], room[0], 1);
    }
}

/* The walk over y (and x), with the global index as its last "tensor". */
static gm_status run_random(gm_device *dev, const gm_call *call, int weight, random_job *j)
{
    const gm_attrs *at = call->attrs;
    const gm_box   *box = &at->box;
    gm_tensor      *y = call->out[0];
    cpu_walk        w;
    int             tensors = 0;
    int64_t         origin = 0, step = 1;
    j->at = at;
    j->key = at->stream.key;
    j->step = at->stream.step < 0 ? dev->step.rng_step : (uint64_t)at->stream.step;
    j->size = (int64_t)gm_dtype_size(y->dtype);
    w.ndim = y->ndim;
    for (int k = 0; k < 1 + j->has_x; k++, tensors++) {
        gm_tensor *t = k ? call->in[0] : y;
        w.size[k] = j->size;
        w.data[k] = gm_tensor_data(t);
        walk_strides(t, y->ndim, w.stride[k]);
    }
    for (int d = y->ndim - 1; d >= 0; d--) {
        w.shape[d] = y->shape[d];
        w.stride[tensors][d] = step;
        origin += box->ndim ? box->offset[d] * step : 0;
        step *= box->ndim ? box->shape[d] : y->shape[d];
    }
    w.size[tensors] = 1;
    w.data[tensors] = (char *)(uintptr_t)(INDEX_BASE + origin);
    w.tensors = tensors + 1;
    walk_simplify(&w);
    cpu_walk_run(dev, &w, weight, random_row, j);
    return GM_OK;
}

static gm_status cpu_uniform(gm_device *dev, const gm_call *call)
{
    random_job j = {.row = BY_TYPE(call->out[0], uniform_row)};
    return run_random(dev, call, 2, &j);
}

static gm_status cpu_normal(gm_device *dev, const gm_call *call)
{
    const gm_attrs *at = call->attrs;
    random_job      j = {.row = BY_TYPE(call->out[0], normal_row)};
    if (at->truncated) {
        j.cut = gm_truncated_of(at->mean, at->std, at->low, at->high);
        j.row = BY_TYPE(call->out[0], truncated_row);
    }
    return run_random(dev, call, 32, &j);
}

static gm_status cpu_dropout(gm_device *dev, const gm_call *call)
{
    random_job j = {.row = BY_TYPE(call->out[0], dropout_row), .has_x = true};
    j.threshold = gm_drop_threshold(call->attrs->p);
    return run_random(dev, call, 2, &j);
}
