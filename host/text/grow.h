/* grow.h - buffers of bytes and of token numbers that grow, for the files of host/text.
 *
 * A zeroed buffer is empty and valid. Adding may move `data`. Who owns the buffer frees it. */
#ifndef GM_TEXT_GROW_H
#define GM_TEXT_GROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../../kernels/status.h"

typedef struct gm_text_bytes {
    char  *data;
    size_t n, room;
    size_t most; /* 0: no limit; otherwise more bytes are GM_EINVAL */
} gm_text_bytes;

typedef struct gm_text_ids {
    uint32_t *data;
    size_t    n, room;
} gm_text_ids;

/* The most bytes that a text of n bytes may become: files of others say how texts change, and must not make them grow
 * without end. */
#define GM_TEXT_MOST(n) (((size_t)1 << 20) + 64 * (size_t)(n))

/* Makes room for `more` beyond n. GM_ENOMEM; GM_EINVAL: `most` forbids it. */
gm_status gm_text_room(gm_text_bytes *b, size_t more);
gm_status gm_text_add(gm_text_bytes *b, const char *text, size_t n);
gm_status gm_text_add_char(gm_text_bytes *b, uint32_t c); /* as UTF-8 */
gm_status gm_ids_room(gm_text_ids *b, size_t more);
gm_status gm_ids_add(gm_text_ids *b, uint32_t id);
gm_status gm_text_copy(const char *text, size_t n, char **out); /* with a zero behind it; to be freed */
void      gm_text_free(gm_text_bytes *b);
void      gm_ids_free(gm_text_ids *b);

#endif
