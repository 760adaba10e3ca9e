/* random.c - uniform, normal and dropout: pure functions of (stream, global element index).
 *
 * Philox works on a vector of blocks at a time and fills a small buffer of words. The samplers of sample.h read these
 * words, so the bits are those of the reference. The walk carries the index of an element in the global tensor (the
 * box) as if it were one more tensor, whose strides are those of the global shape. The "pointer" of this tensor is the
 * index, a number; nothing reads memory through it. */
#include "../sample.h"

#define WORDS      (CPU_BURST / 4) /* made at a time, at most */
#define INDEX_BASE 64              /* so that the pointer that carries an index is never null */

typedef unsigned_f64 vu64;
typedef vu64         any_u64 __attribute__((aligned(4), may_alias));
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

/* The high halves, moved down; what is left above them is ignored. Shuffles, since shifts share a port with mul_low. */
CPU_INLINE vu64 high_down(vu64 a)
{
#if CPU_VECTOR == 64
    return (vu64)_mm512_shuffle_epi32((__m512i)a, _MM_PERM_DDBB);
#elif CPU_VECTOR == 32
    return (vu64)_mm256_shuffle_epi32((__m256i)a, 0xf5);
#else
    return a >> 32;
#endif
}

CPU_INLINE vu64 xor3(vu64 a, vu64 b, vu64 c)
{
#if CPU_VECTOR == 64
    return (vu64)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, 0x96);
#else
    return a ^ b ^ c;
#endif
}

#define ROUNDS 10                         /* kernels/weight_drop.h has fewer */
#define CHAINS (CPU_VECTOR == 64 ? 4 : 2) /* vectors of blocks side by side, to hide the latency of a round */

/* Words of blocks one after the other, from a vector each of words 0 to 3 in the low halves. */
CPU_INLINE void store_words(vu64 w0, vu64 w1, vu64 w2, vu64 w3, uint32_t *out)
{
    vu64 low = (w0 & 0xffffffffu) | (w1 << 32), high = (w2 & 0xffffffffu) | (w3 << 32);
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

/* CHAINS vectors of blocks, lane by lane: words 0 to 3 in the low halves. */
typedef struct philox_lanes {
    vu64 w[4][CHAINS];
} philox_lanes;

/* The words of the blocks whose numbers are in c->w[0], as philox.h makes them; keys: two a round. */
CPU_INLINE void philox_vectors(const vu64 *keys, int rounds, uint64_t step, philox_lanes *c)
{
    const vu64 m0 = (vu64){0} + 0xD2511F53u, m1 = (vu64){0} + 0xCD9E8D57u;
#pragma GCC unroll 4
    for (int k = 0; k < CHAINS; k++) {
        c->w[1][k] = c->w[0][k] >> 32;
        c->w[2][k] = (vu64){0} + (uint32_t)step;
        c->w[3][k] = (vu64){0} + (step >> 32);
    }
    for (int round = 0; round < rounds; round++) {
        vu64 k0 = keys[2 * round], k1 = keys[2 * round + 1];
#pragma GCC unroll 4
        for (int k = 0; k < CHAINS; k++) {
            vu64 p0 = mul_low(c->w[0][k], m0), p1 = mul_low(c->w[2][k], m1);
            c->w[0][k] = xor3(high_down(p1), c->w[1][k], k0);
            c->w[2][k] = xor3(high_down(p0), c->w[3][k], k1);
            c->w[1][k] = p1;
            c->w[3][k] = p0;
        }
    }
}

/* Words of the blocks from `block` on, CHAINS * BLOCK_LANES of them. */
CPU_INLINE void philox_blocks(const vu64 *keys, uint64_t step, vu64 block, uint32_t *out)
{
    philox_lanes c;
#pragma GCC unroll 4
    for (int k = 0; k < CHAINS; k++) c.w[0][k] = block + (uint64_t)(k * BLOCK_LANES);
    philox_vectors(keys, ROUNDS, step, &c);
#pragma GCC unroll 4
    for (int k = 0; k < CHAINS; k++) store_words(c.w[0][k], c.w[1][k], c.w[2][k], c.w[3][k], out + 4 * k * BLOCK_LANES);
}

/* Words of the blocks that hold elements [index, index + n), n <= WORDS; returns the word of `index`. */
static const uint32_t *philox_words(uint64_t key, uint64_t step, uint64_t index, int64_t n, uint32_t *out)
{
    vu64    block = {0}, keys[2 * ROUNDS];
    int64_t skip = (int64_t)(index % 4), blocks = (skip + n + 3) / 4;
    for (int i = 0; i < ROUNDS; i++) {
        keys[2 * i] = (vu64){0} + gm_philox_key0(key, i);
        keys[2 * i + 1] = (vu64){0} + gm_philox_key1(key, i);
    }
    for (int i = 0; i < BLOCK_LANES; i++) block[i] = index / 4 + (uint64_t)i;
    for (int64_t b = 0; b < blocks; b += CHAINS * BLOCK_LANES) {
        philox_blocks(keys, step, block, out + 4 * b);
        block += CHAINS * BLOCK_LANES;
    }
    return out + skip;
}

/* x / d for doubles that were f32: q = x / d by the reciprocal, then one correction, which gives the quotient
 * exactly rounded (Markstein 1990) where the machine has FMA; f32 keeps the remainder out of the subnormals. */
CPU_INLINE vf64 quotient(vf64 x, double d)
{
#if defined(__FMA__) && CPU_VECTOR >= 32
    vf64 inverse = splat_f64(1 / d), q = x * inverse;
    vf64 remainder = max_v_f64(fused_add(-q, splat_f64(d), x), splat_f64(-1e300)); /* of infinite x: not NaN */
    return fused_add(remainder, inverse, q);
#else
    return x / d;
#endif
}

typedef unsigned_f32 any_u32 __attribute__((aligned(4), may_alias));
typedef uint32_t     half_u32 __attribute__((vector_size(CPU_VECTOR / 2)));
typedef half_u32     any_half_u32 __attribute__((aligned(4), may_alias));

typedef struct random_job random_job;
/* n elements whose indices follow each other from `index`; words: those of `index` on. x is NULL or the input. */
typedef void (*sample_row)(const random_job *j, int64_t n, uint64_t index, const uint32_t *words, const void *x,
                           void *y);

struct random_job {
    const gm_attrs *at;
    uint64_t        key, step;
    gm_truncated    cut;
    sample_row      row;
    bool            has_x, stream;
    bool            direct; /* the row itself streams (base.c) */
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
    uint32_t          words[WORDS + 4 * CHAINS * BLOCK_LANES] __attribute__((aligned(64)));
    bool              even = stride[k] == 1;
    int64_t           most = even ? CPU_BURST / j->size : 1; /* indices that do not follow each other: one at a time */
    char              room[2][CPU_BURST] __attribute__((aligned(64)));
    bool              one = j->has_x && stride[1] == 0; /* the gradient of a sum */
    if (one) copy_strided(j->size, n < most ? n : most, room[1], 1, p[1], 0);
    for (int64_t i = 0; i < n; i += most) {
        int64_t         m = n - i < most ? n - i : most;
        uint64_t        first = index + (uint64_t)(i * stride[k]);
        char           *y = p[0] + i * stride[0] * j->size, *x = j->has_x ? p[1] + i * stride[1] * j->size : NULL;
        const uint32_t *at = philox_words(j->key, j->step, first, m, words);
        if (x && stride[1] != 1) {
            if (!one) copy_strided(j->size, m, room[1], 1, x, stride[1]);
            x = room[1];
        }
        j->row(j, m, first, at, x, stride[0] == 1 && (j->direct || !j->stream) ? y : room[0]);
        if (stride[0] == 1 && j->stream && !j->direct) gm_stream_out(y, room[0], m * j->size);
        else if (stride[0] != 1) copy_strided(j->size, m, y, stride[0], room[0], 1);
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
    j->stream = cpu_streams(w.numel * j->size);
    j->direct = j->direct && j->stream && w.stride[0][w.ndim - 1] == 1;
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
    random_job j = {.row = BY_TYPE(call->out[0], dropout_row), .has_x = true, .direct = CPU_DIRECT};
    j.threshold = gm_drop_threshold(call->attrs->p);
    return run_random(dev, call, 2, &j);
}
