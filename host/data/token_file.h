/* token_file.h - streams of token numbers on disk.
 *
 *     "GMTOKENS" | version 1, u32 | bytes a token: 1, 2 or 4, u32 | tokens, u64 | vocabulary size, u64 | tokens
 *
 * All numbers are little-endian. A file may also hold the tokens alone (nanoGPT's .bin); the caller must then know
 * their width. Files are mapped, so a stream may be larger than memory. The file must be exactly as long as the header
 * says. */
#ifndef GM_TOKEN_FILE_H
#define GM_TOKEN_FILE_H

#include <stdint.h>
#include "../files/bytes.h"

#define GM_TOKEN_HEADER 32

typedef struct gm_token_file {
    gm_bytes bytes;
    size_t   header; /* bytes before the first token */
    int      width;  /* bytes of a token: 1, 2, 4 */
    int64_t  count;
    int64_t  vocab_size; /* 1 to 2^(8 width): tokens are below it */
} gm_token_file;

/* Opens a file; the caller closes *out. width 0: the file has a header. vocab_size 0: as the header says; without a
 * header 2^(8 width). GM_ECORRUPT: the header is missing or does not fit the file, or the last token is cut. */
gm_status gm_token_open(const char *path, int width, int64_t vocab_size, gm_token_file *out);
void      gm_token_close(gm_token_file *f); /* a zeroed one is allowed */

/* Reads tokens first .. first + n - 1. GM_ECORRUPT: a token is not below vocab_size; the message names its offset. */
gm_status gm_token_read(const gm_token_file *f, int64_t first, int64_t n, int64_t *to);

/* Writes a file with a header: beside `path` first, then renamed, so that a stop leaves nothing half done. */
gm_status gm_token_write(const char *path, int width, int64_t vocab_size, const int64_t *tokens, int64_t n);

/* The header of such a file: GM_TOKEN_HEADER bytes. */
void gm_token_header(unsigned char *to, int width, int64_t vocab_size, int64_t count);

#endif
