/* bytes.h - the bytes of a data file: mapped, or inflated from gzip; read through a guarded copy.
 *
 * The trap: a mapped file that another process shortens raises SIGBUS on the next touch. Mapped bytes
 * are therefore only touched through gm_bytes_copy, which turns the signal into GM_ECORRUPT; any
 * thread may call it. The handler is installed on first use and passes on every SIGBUS that is not
 * ours to whoever was there before. */
#ifndef GM_BYTES_H
#define GM_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include "../../kernels/status.h"

typedef struct gm_bytes {
    char                *path;
    const unsigned char *data; /* size bytes; NULL when empty */
    size_t               size;
    bool                 mapped; /* else allocated */
} gm_bytes;

typedef enum gm_access { GM_ACCESS_SEQUENTIAL, GM_ACCESS_RANDOM } gm_access;

/* Maps a regular file for reading. GM_EIO names path and reason. */
gm_status gm_bytes_map(const char *path, gm_access access, gm_bytes *out);

/* Told the first `got` inflated bytes, says how many there must be in all, or fails. */
typedef gm_status (*gm_size_rule)(const char *path, const unsigned char *head, size_t got, size_t *total);

/* Inflates a .gz file whose whole size its own first `head` (at most 64) bytes tell. GM_ECORRUPT: not
 * gzip, bad CRC, shorter or longer than the rule says, or a size that no file this small can hold
 * (deflate expands at most 1032 times), so a bomb never gets its memory. */
gm_status gm_bytes_inflate(const char *path, size_t head, gm_size_rule rule, gm_bytes *out);

/* Copies [offset, offset + n) to `to`. GM_ECORRUPT: past the end, or the file shrank under us. */
gm_status gm_bytes_copy(const gm_bytes *b, size_t offset, size_t n, void *to);

void gm_bytes_close(gm_bytes *b); /* a zeroed one is allowed */

#endif
