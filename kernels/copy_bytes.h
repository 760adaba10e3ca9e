/* copy_bytes.h - memcpy where it would be slow.
 *
 * From some 2 KiB on, glibc copies by the instruction REP MOVSB. A Zen 3 does 3 GB/s with it in place of 28 if the
 * target lies 1 to 31 bytes behind the source, modulo 4,096: the processor takes each load for one of what was just
 * stored. Rows of tensors that begin at multiples of 2 MiB often lie so, where some columns are put before others
 * (cat, pad, roll). There, a loop over vectors copies as fast as elsewhere. */
#ifndef GM_COPY_BYTES_H
#define GM_COPY_BYTES_H

#include <stdint.h>
#include <string.h>

#define GM_COPY_LONG 2048 /* bytes; shorter copies have no such instruction */
#define GM_COPY_NEAR 32

static inline void gm_copy_bytes(void *to, const void *from, size_t n)
{
    typedef uint8_t vector __attribute__((vector_size(32), aligned(1), may_alias));
    const size_t    behind = ((uintptr_t)to - (uintptr_t)from) % 4096;
    size_t          i = 0;
    if (n >= GM_COPY_LONG && behind - 1 < GM_COPY_NEAR - 1)
        for (; i + sizeof(vector) <= n; i += sizeof(vector))
            *(vector *)((char *)to + i) = *(const vector *)((const char *)from + i);
    memcpy((char *)to + i, (const char *)from + i, n - i);
}

#endif
