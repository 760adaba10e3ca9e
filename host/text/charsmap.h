/* charsmap.h - SentencePiece's table of characters and what they become: a double array over bytes, and texts.
 *
 * The table comes from a file: every step in it is checked against its bounds. */
#ifndef GM_TEXT_CHARSMAP_H
#define GM_TEXT_CHARSMAP_H

#include "grow.h"

typedef struct gm_charsmap {
    uint32_t *units;
    size_t    n_units;
    char     *texts; /* each ends with NUL, and so does the block */
    size_t    n_texts;
} gm_charsmap;

/* Reads the bytes: the size of the array (u32), the array, the texts. None at all is a table that changes nothing. */
gm_status gm_charsmap_read(const unsigned char *bytes, size_t n, gm_charsmap *out);
void      gm_charsmap_free(gm_charsmap *m);
/* What the shortest or the longest entry that begins text becomes, and its bytes; NULL: there is none. */
const char *gm_charsmap_find(const gm_charsmap *m, const char *text, size_t n, bool longest, size_t *taken,
                             size_t *size);

#endif
