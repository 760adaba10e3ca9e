/* philox.h - counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11, Random123).
 *
 * A value is a pure function of (key, counter). There is no state, so values can be drawn in any order and on any rank:
 *     key     = gm_stream_key(seed, purpose, site), 64 bits
 *     counter = { block_lo, block_hi, step_lo, step_hi }, block = element index / 4
 * Element i is word i % 4 of its block. The site is a hash of the module path and the index of the call. The element
 * index is that in the global tensor, so that serial and parallel runs draw the same numbers. Dropout draws 16 bits for
 * an element, by fewer rounds (drop.h). */
#ifndef GM_PHILOX_H
#define GM_PHILOX_H

#include <stdint.h>

#ifndef GM_INLINE /* kernels/cuda/common/kernel.cuh compiles this and sample.h for the GPU */
#define GM_INLINE static inline
#endif

typedef struct gm_philox {
    uint32_t v[4];
} gm_philox;

/* One round: words c0 to c3 of a block, and the two keys of the round. */
GM_INLINE void gm_philox_round(gm_philox *c, uint32_t k0, uint32_t k1)
{
    uint64_t p0 = (uint64_t)0xD2511F53u * c->v[0], p1 = (uint64_t)0xCD9E8D57u * c->v[2];
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c->v[1] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c->v[3] ^ k1;
    c->v[1] = (uint32_t)p1;
    c->v[3] = (uint32_t)p0;
    c->v[0] = n0;
    c->v[2] = n2;
}

/* The keys of round number `round`. */
GM_INLINE uint32_t gm_philox_key0(uint64_t key, int round) { return (uint32_t)key + (uint32_t)round * 0x9E3779B9u; }
GM_INLINE uint32_t gm_philox_key1(uint64_t key, int round)
{
    return (uint32_t)(key >> 32) + (uint32_t)round * 0xBB67AE85u;
}

/* The words of a block before the first round. */
GM_INLINE gm_philox gm_philox_counter(uint64_t block, uint64_t step)
{
    gm_philox c = {{(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)step, (uint32_t)(step >> 32)}};
    return c;
}

GM_INLINE gm_philox gm_philox_at(uint64_t key, uint64_t block, uint64_t step)
{
    gm_philox c = gm_philox_counter(block, step);
    for (int round = 0; round < 10; round++)
        gm_philox_round(&c, gm_philox_key0(key, round), gm_philox_key1(key, round));
    return c;
}

/* Word number i (0 to 3) of a block. It uses no array index, because an index would put the block into the memory of a
 * GPU instead of its registers. */
GM_INLINE uint32_t gm_philox_pick(gm_philox words, int i)
{
    uint32_t low = i & 1 ? words.v[1] : words.v[0], high = i & 1 ? words.v[3] : words.v[2];
    return i & 2 ? high : low;
}

/* The word of element `index`. */
GM_INLINE uint32_t gm_philox_word(uint64_t key, uint64_t index, uint64_t step)
{
    return gm_philox_pick(gm_philox_at(key, index / 4, step), (int)(index % 4));
}

/* A number in [0, 1) with 24 bits. It is exact in f32 and in f64, so both dtypes draw the same numbers. */
GM_INLINE float gm_uniform_of(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }

/* An event happens if its word is below this threshold: its probability is p to within 2^-32. */
GM_INLINE uint32_t gm_event_threshold(double p)
{
    double t = p * 4294967296.0;
    return t >= 4294967295.0 ? 4294967295u : t <= 0 ? 0u : (uint32_t)t;
}

GM_INLINE uint64_t gm_mix64(uint64_t x) /* splitmix64's finalizer */
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* FNV-1a of a text, continued from h (start with GM_HASH_START). */
#define GM_HASH_START 0xCBF29CE484222325u
GM_INLINE uint64_t gm_hash_text(uint64_t h, const char *text)
{
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001B3u;
    return h;
}

enum {
    GM_PURPOSE_INIT = 1,
    GM_PURPOSE_DROPOUT,
    GM_PURPOSE_SHUFFLE,
    GM_PURPOSE_AUGMENT,
    GM_PURPOSE_USER,
    GM_PURPOSE_NOISE
};

GM_INLINE uint64_t gm_stream_key(uint64_t seed, uint32_t purpose, uint64_t site)
{
    return gm_mix64(gm_mix64(gm_mix64(seed) ^ purpose) ^ site);
}

#endif
