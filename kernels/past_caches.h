/* past_caches.h - copies whose output goes past the caches.
 *
 * A store to memory first reads the line it goes to; for outputs far larger than the caches that read is a third of a
 * copy's traffic. The stores of gm_stream_out do not read. They are seen by others in any order: whoever used them
 * calls gm_stream_end before it tells anybody that the bytes are there, and before it stores to the same lines. */
#ifndef GM_PAST_CACHES_H
#define GM_PAST_CACHES_H

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static inline void gm_stream_out(void *to, const void *from, int64_t bytes)
{
#if defined(__x86_64__)
    int64_t i = (int64_t)(-(uintptr_t)to & 63);
    if (i > bytes) i = bytes;
    memcpy(to, from, (size_t)i);
    for (; i + 64 <= bytes; i += 64) {
        char       *t = (char *)to + i;
        const char *f = (const char *)from + i;
#if defined(__AVX512F__) || defined(GM_EMULATED_AVX512)
        _mm512_stream_si512((__m512i *)t, _mm512_loadu_si512(f));
#elif defined(__AVX__) /* on a Zen 3 a copy by stores of 16 bytes takes a tenth to a fifth longer */
        _mm256_stream_si256((__m256i *)t, _mm256_loadu_si256((const __m256i *)f));
        _mm256_stream_si256((__m256i *)(t + 32), _mm256_loadu_si256((const __m256i *)(f + 32)));
#else
        for (int k = 0; k < 64; k += 16)
            _mm_stream_si128((__m128i *)(t + k), _mm_loadu_si128((const __m128i *)(f + k)));
#endif
    }
    memcpy((char *)to + i, (const char *)from + i, (size_t)(bytes - i));
#else
    memcpy(to, from, (size_t)bytes);
#endif
}

static inline void gm_stream_end(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

#endif
