/* bytes.h - the bytes of a data file, mapped or inflated from gzip, and a safe way to copy them.
 *
 * The trap: if another process shortens a mapped file, the next access raises SIGBUS. All access to mapped bytes
 * therefore goes through gm_bytes_copy, which turns the signal into GM_ECORRUPT. Any thread may call it. Its first use
 * installs the signal handler. A SIGBUS that has another cause is passed on to the handler that was there before. */
#ifndef GM_BYTES_H
#define GM_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include "../../kernels/status.h"

typedef struct gm_bytes {
    char                *path;
    const unsigned char *data; /* size bytes; NULL when empty */
    size_t               size;
    bool                 mapped; /* false: allocated */
} gm_bytes;

typedef enum gm_access { GM_ACCESS_SEQUENTIAL, GM_ACCESS_RANDOM } gm_access;

/* Maps a regular file for reading. GM_EIO names path and reason. */
gm_status gm_bytes_map(const char *path, gm_access access, gm_bytes *out);

/* Receives the first `got` inflated bytes and gives the size that the inflated file must have, or fails. */
typedef gm_status (*gm_size_rule)(const char *path, const unsigned char *head, size_t got, size_t *total);

/* Inflates a .gz file. `rule` tells its inflated size from its first `head` (at most 352) bytes. GM_ECORRUPT: it is not
 * gzip, its CRC is wrong, it is shorter or longer than the rule says, or the size is more than a file this small can
 * hold. Deflate expands at most 1032 times, so a decompression bomb is refused before memory is allocated. */
gm_status gm_bytes_inflate(const char *path, size_t head, gm_size_rule rule, gm_bytes *out);

/* Copies [offset, offset + n) to `to`. GM_ECORRUPT: the range goes past the end, or the file has become shorter. */
gm_status gm_bytes_copy(const gm_bytes *b, size_t offset, size_t n, void *to);

/* Lets the system take back the memory that what was read of a mapped file occupies; it is read again when needed. */
void gm_bytes_forget(const gm_bytes *b);

void gm_bytes_close(gm_bytes *b); /* a zeroed one is allowed */

#endif
