/* random.cu - uniform, normal and dropout: functions of the stream and of each element's index in the global tensor
 * (kernels/sample.h). Initial values are drawn once, an element a thread, in f64; dropout runs in every step: items of
 * 16 bytes, and one philox block (10 rounds, some 60 instructions) for four elements. That is 15 of the 49 issue slots
 * that an element of f32 has at full bandwidth, and 15 of 24 in 16 bits. */
#include "../../common/map.cuh"
#include "random_args.h"

/* The two of a pair share their words: elements 2k and 2k + 1. */
GM_DEVICE double gm_random_normal(const gm_random_args *a, uint64_t index, uint64_t step)
{
    uint64_t pair = index & ~(uint64_t)1;
    double   even, odd;
    gm_philox w = gm_philox_at(a->key, pair / 4, step);
    gm_sample_normal(a->mean, a->std, pair % 4 ? w.v[2] : w.v[0], pair % 4 ? w.v[3] : w.v[1], &even, &odd);
    return index & 1 ? odd : even;
}

#define GM_BODY "../ops/random/random_t.cuh"
#include "../../common/each_dtype.cuh"
