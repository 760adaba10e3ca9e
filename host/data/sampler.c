/* sampler.c - see sampler.h. One round of swap-or-not: x and its partner (pivot - x) mod n change
 * places or stay, as a bit that depends on the round and the larger of the two says. */
#include "sampler.h"

#include "../../kernels/philox.h"

static int rounds_for(int64_t n)
{
    int bits = 1;
    while (bits < 62 && (int64_t)1 << bits < n) bits++;
    return 6 * bits + 32; /* the paper's 6 lg n, and some for small n */
}

void gm_sampler_init(gm_sampler *s, int64_t n, bool shuffle, uint64_t seed, uint64_t epoch)
{
    *s = (gm_sampler){.n = n, .shuffle = shuffle && n > 1};
    if (!s->shuffle) return;
    uint64_t stream = gm_stream_key(seed, GM_PURPOSE_SHUFFLE, 0);
    s->rounds = rounds_for(n);
    for (int r = 0; r < s->rounds; r++) {
        gm_philox p = gm_philox_at(stream, (uint64_t)r, epoch);
        uint64_t  wide = (uint64_t)p.v[0] << 32 | p.v[1];
        s->pivot[r] = (uint64_t)((unsigned __int128)wide * (uint64_t)n >> 64); /* bias below n / 2^64 */
        s->key[r] = (uint64_t)p.v[2] << 32 | p.v[3];
    }
}

/* Without branches: which way the bit falls cannot be predicted, and a miss costs more than the round. */
static void round_of(uint64_t pivot, uint64_t key, uint64_t n, int64_t count, int64_t *samples)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t x = (uint64_t)samples[i], y = pivot - x + (n & -(uint64_t)(x > pivot));
        uint64_t larger = x ^ ((x ^ y) & -(uint64_t)(x < y));
        uint64_t swap = -(gm_mix64(larger ^ key) & 1);
        samples[i] = (int64_t)(x ^ ((x ^ y) & swap));
    }
}

gm_status gm_sampler_take(const gm_sampler *s, int64_t first, int64_t count, int64_t *samples)
{
    if (first < 0 || count < 0 || count > s->n || first > s->n - count)
        return GM_FAIL(GM_EINVAL, "positions %lld to %lld of %lld samples", (long long)first,
                       (long long)(first + count), (long long)s->n);
    for (int64_t i = 0; i < count; i++) samples[i] = first + i;
    for (int r = 0; r < s->rounds; r++) /* rounds outside: the samples of a round are independent */
        round_of(s->pivot[r], s->key[r], (uint64_t)s->n, count, samples);
    return GM_OK;
}
