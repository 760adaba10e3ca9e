/* random.c - uniform, normal and dropout: pure functions of (stream, global element index).
 *
 * Philox works on a vector of blocks at a time and fills a small buffer of words. The samplers of sample.h read these
 * words (normal.c: in vectors), so the bits are those of the reference. Dropout reads numbers of 16 bits (drop.h) in
 * them. The walk carries the index of an element in the global tensor (the box) as if it were one more tensor, whose
 * strides are those of the global shape. The "pointer" of this tensor is the index, a number; nothing reads memory
 * through it. */
#include "../drop.h"

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

/* The high halves, moved down; what is left above them is ignored. With AVX-512 shifts share a port with mul_low, and
 * shuffles do not. On a Zen 3 shifts make Philox 15 % faster than shuffles. */
CPU_INLINE vu64 high_down(vu64 a)
{
#if CPU_VECTOR == 64
    return (vu64)_mm512_shuffle_epi32((__m512i)a, _MM_PERM_DDBB);
#else
    return a >> 32;
#endif
}

/* The low halves of two, those of `high` above those of `low`. */
CPU_INLINE vu64 both_low(vu64 low, vu64 high)
{
#if CPU_VECTOR == 32
    return (vu64)_mm256_blend_epi32((__m256i)low, (__m256i)(high << 32), 0xaa);
#else
    return (low & 0xffffffffu) | high << 32;
#endif
}

CPU_INLINE vu64 xor3(vu64 a, vu64 b, vu64 c)
{
#if CPU_VECTOR == 64
    return (vu64)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, 0x96);
#else
    return a ^ (b ^ c); /* a comes last */
#endif
}

#define ROUNDS 10                         /* drop.h has fewer */
#define CHAINS (CPU_VECTOR == 64 ? 4 : 2) /* vectors of blocks side by side, to hide the latency of a round */

/* Words of blocks one after the other, from a vector each of words 0 to 3 in the low halves. */
CPU_INLINE void store_words(vu64 w0, vu64 w1, vu64 w2, vu64 w3, uint32_t *out)
{
    vu64 low = both_low(w0, w1), high = both_low(w2, w3);
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

/* Words of `blocks` blocks from number `first` on, and of as many more as make up a turn. keys: two a round. */
CPU_INLINE void philox_blocks(const vu64 *keys, int rounds, uint64_t step, uint64_t first, int64_t blocks,
                              uint32_t *out)
{
    vu64 block = {0};
    for (int i = 0; i < BLOCK_LANES; i++) block[i] = first + (uint64_t)i;
    for (int64_t b = 0; b < blocks; b += CHAINS * BLOCK_LANES, out += 4 * CHAINS * BLOCK_LANES) {
        philox_lanes c;
#pragma GCC unroll 4
        for (int k = 0; k < CHAINS; k++, block += BLOCK_LANES) c.w[0][k] = block;
        philox_vectors(keys, rounds, step, &c);
#pragma GCC unroll 4
        for (int k = 0; k < CHAINS; k++)
            store_words(c.w[0][k], c.w[1][k], c.w[2][k], c.w[3][k], out + 4 * k * BLOCK_LANES);
    }
}

/* Words of the blocks that hold elements [index, index + n), n <= WORDS; returns the word of `index`. */
static const uint32_t *philox_words(uint64_t key, uint64_t step, uint64_t index, int64_t n, uint32_t *out)
{
    vu64    keys[2 * ROUNDS];
    int64_t skip = (int64_t)(index % 4);
    for (int i = 0; i < ROUNDS; i++) {
        keys[2 * i] = (vu64){0} + gm_philox_key0(key, i);
        keys[2 * i + 1] = (vu64){0} + gm_philox_key1(key, i);
    }
    philox_blocks(keys, ROUNDS, step, index / 4, (skip + n + 3) / 4, out);
    return out + skip;
}

/* Numbers by which dropout decides about elements [index, index + n), n <= 2 WORDS; returns that of `index`. Low halves
 * come first, as these CPUs store them. keys: two a round of GM_DROP_ROUNDS. */
static const uint16_t *drop_numbers(const vu64 *keys, uint64_t step, uint64_t index, int64_t n, uint32_t *out)
{
    int64_t skip = (int64_t)(index % GM_DROP_EACH), blocks = (skip + n + GM_DROP_EACH - 1) / GM_DROP_EACH;
    philox_blocks(keys, GM_DROP_ROUNDS, step, index / GM_DROP_EACH, blocks, out);
    return (const uint16_t *)(void *)out + skip;
}

typedef struct random_job random_job;
/* n elements whose indices follow each other from `index`; words: those of `index` on. */
typedef void (*sample_row)(const random_job *j, int64_t n, uint64_t index, const uint32_t *words, void *y);
/* Dropout of n elements of x; numbers: of 16 bits, those of the first element on. */
typedef void (*drop_row)(const random_job *j, int64_t n, const uint16_t *numbers, const void *x, void *y);

struct random_job {
    const gm_attrs  *at;
    const gm_tensor *x; /* of dropout, else NULL */
    uint64_t         key, step;
    gm_truncated     cut;
    gm_drop          drop;
    sample_row       sample;
    drop_row         kept;
    int64_t          size;
    bool             stream;
    bool             direct; /* the row itself streams (base.c) */
};

#include "normal.c"

#define AS 32
#include "as.h"
#include "random_t.h"
#include "drop_t.h"
#define AS 64
#include "as.h"
#include "random_t.h"
#include "drop_t.h"
#define AS 16
#include "as.h"
#include "drop_t.h"
#define AS 0
#include "as.h"

#define ROOM (WORDS + 4 * CHAINS * BLOCK_LANES) /* words of a burst, and of the turn that ends behind it */

/* Bytes that dropout draws for at a time. What streams reads ahead: memory then works while Philox does, if bursts are
 * short. On a Zen 3, dropout of 50 MB takes 6.8 ms so and 7.8 in bursts of 4 KiB. */
#define DROP_BURST (CPU_DIRECT ? 1024 : CPU_BURST)

/* Elements of a burst of so many bytes. Indices that do not follow each other are taken one at a time. */
static int64_t burst_of(const random_job *j, int64_t bytes, int64_t index_stride)
{
    return index_stride == 1 ? bytes / j->size : 1;
}

/* Where a row of y is made: there, or in a room. Then the room is put to its place. */
static char *begin_row(const random_job *j, char *y, int64_t stride, char *room)
{
    return stride == 1 && (j->direct || !j->stream) ? y : room;
}

static void end_row(const random_job *j, int64_t n, char *y, int64_t stride, const char *room)
{
    if (stride == 1 && j->stream && !j->direct) gm_stream_out(y, room, n * j->size);
    else if (stride != 1) copy_strided(j->size, n, y, stride, room, 1);
}

/* Slots: y, index. */
static void random_row(const void *context, int64_t n, char *const *p, const int64_t *stride)
{
    const random_job *j = context;
    const uint64_t    index = (uint64_t)((uintptr_t)p[1] - INDEX_BASE);
    const int64_t     most = burst_of(j, CPU_BURST, stride[1]);
    uint32_t          words[ROOM] __attribute__((aligned(64)));
    char              room[CPU_BURST] __attribute__((aligned(64)));
    for (int64_t i = 0; i < n; i += most) {
        const int64_t   m = n - i < most ? n - i : most;
        const uint64_t  first = index + (uint64_t)(i * stride[1]);
        const uint32_t *at = philox_words(j->key, j->step, first, m, words);
        char           *y = p[0] + i * stride[0] * j->size;
        j->sample(j, m, first, at, begin_row(j, y, stride[0], room));
        end_row(j, m, y, stride[0], room);
    }
}

/* Slots: y, x, index. */
static void dropout_row(const void *context, int64_t n, char *const *p, const int64_t *stride)
{
    const random_job *j = context;
    const uint64_t    index = (uint64_t)((uintptr_t)p[2] - INDEX_BASE);
    const int64_t     most = burst_of(j, DROP_BURST, stride[2]);
    uint32_t          words[ROOM] __attribute__((aligned(64)));
    char              room[2][CPU_BURST] __attribute__((aligned(64)));
    const bool        one = stride[1] == 0; /* the gradient of a sum */
    vu64              keys[2 * GM_DROP_ROUNDS];
    for (int i = 0; i < 2 * GM_DROP_ROUNDS; i++) keys[i] = (vu64){0} + j->drop.round_keys[i];
    if (one) copy_strided(j->size, n < most ? n : most, room[1], 1, p[1], 0);
    for (int64_t i = 0; i < n; i += most) {
        const int64_t   m = n - i < most ? n - i : most;
        const uint16_t *numbers = drop_numbers(keys, j->step, index + (uint64_t)(i * stride[2]), m, words);
        char           *y = p[0] + i * stride[0] * j->size, *x = p[1] + i * stride[1] * j->size;
        if (stride[1] != 1 && !one) copy_strided(j->size, m, room[1], 1, x, stride[1]);
        j->kept(j, m, numbers, stride[1] == 1 ? x : room[1], begin_row(j, y, stride[0], room[0]));
        end_row(j, m, y, stride[0], room[0]);
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
    for (const gm_tensor *t = y; t; t = ++tensors == 1 ? j->x : NULL) {
        w.size[tensors] = j->size;
        w.data[tensors] = gm_tensor_data(t);
        walk_strides(t, y->ndim, w.stride[tensors]);
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
    cpu_walk_run(dev, &w, weight, j->x ? dropout_row : random_row, j);
    return GM_OK;
}

static gm_status cpu_uniform(gm_device *dev, const gm_call *call)
{
    random_job j = {.sample = BY_TYPE(call->out[0], uniform_row)};
    return run_random(dev, call, 2, &j);
}

static gm_status cpu_normal(gm_device *dev, const gm_call *call)
{
    const gm_attrs *at = call->attrs;
    random_job      j = {.sample = BY_TYPE(call->out[0], normal_row)};
    if (at->truncated) {
        j.cut = gm_truncated_of(at->mean, at->std, at->low, at->high);
        j.sample = BY_TYPE(call->out[0], truncated_row);
    }
    return run_random(dev, call, 32, &j);
}

static gm_status cpu_dropout(gm_device *dev, const gm_call *call)
{
    random_job j = {.kept = BY_ELEMENT(call->out[0], kept_row), .x = call->in[0], .direct = CPU_DIRECT};
    j.drop = gm_drop_of(call->attrs->stream.key, call->attrs->p);
    return run_random(dev, call, 2, &j);
}
