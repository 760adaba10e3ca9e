/* hash.h - FNV-1a of bytes, for tables whose keys are compared as bytes. */
#ifndef GM_CUDA_HASH_H
#define GM_CUDA_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline size_t gm_hash_bytes(const void *key, size_t n)
{
    const unsigned char *bytes = key;
    uint64_t             h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * 0x100000001B3u;
    return (size_t)(h ^ h >> 32);
}

#endif
