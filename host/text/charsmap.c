/* charsmap.c - see charsmap.h. The array is that of darts-clone: a unit holds its label, an offset to its children, and
 * whether a child 0 holds a value. */
#include "charsmap.h"

#include <stdlib.h>
#include <string.h>

#include "unicode.h"

gm_status gm_charsmap_read(const unsigned char *bytes, size_t n, gm_charsmap *out)
{
    gm_charsmap m = {0};
    *out = m;
    if (!n) return GM_OK;
    uint32_t size = n < 4 ? 0
                          : (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                                (uint32_t)bytes[3] << 24;
    if (n < 4 || size > n - 4 || size % 4 || !size)
        return GM_FAIL(GM_EINVAL, "the table of characters says that its array has %u bytes; it has %zu", size, n);
    m.n_units = size / 4, m.n_texts = n - 4 - size;
    m.units = malloc(size);
    m.texts = malloc(m.n_texts + 1);
    if (!m.units || !m.texts) {
        gm_charsmap_free(&m);
        return GM_FAIL(GM_ENOMEM, "no memory for a table of characters");
    }
    for (size_t i = 0; i < m.n_units; i++) {
        const unsigned char *p = bytes + 4 + 4 * i;
        m.units[i] = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }
    memcpy(m.texts, bytes + 4 + size, m.n_texts);
    m.texts[m.n_texts] = 0;
    size_t good = gm_utf8_valid(m.texts, m.n_texts);
    if (good < m.n_texts) {
        gm_charsmap_free(&m);
        return GM_FAIL(GM_EINVAL, "the table of characters has what is no UTF-8, at byte %zu of its texts", good);
    }
    *out = m;
    return GM_OK;
}

void gm_charsmap_free(gm_charsmap *m)
{
    free(m->units);
    free(m->texts);
    *m = (gm_charsmap){0};
}

static size_t children(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }

const char *gm_charsmap_find(const gm_charsmap *m, const char *text, size_t n, bool longest, size_t *taken,
                             size_t *size)
{
    const char *found = NULL;
    if (!m->n_units) return NULL;
    size_t at = children(m->units[0]);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        at ^= c;
        if (!c || at >= m->n_units || (m->units[at] & (1u << 31 | 0xff)) != c) break;
        uint32_t unit = m->units[at];
        at ^= children(unit);
        if (!(unit >> 8 & 1)) continue;
        size_t value = at < m->n_units ? m->units[at] & ~(1u << 31) : SIZE_MAX;
        if (value >= m->n_texts || ((unsigned char)m->texts[value] & 0xc0) == 0x80) break; /* inside of a character */
        found = m->texts + value, *taken = i + 1, *size = strlen(found);
        if (!longest) break;
    }
    return found;
}
