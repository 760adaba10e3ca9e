/* sentencepiece_normal.c - SentencePiece's normalization (normalizer.h): its table, then what it does with spaces. */
#include <string.h>

#include "normalizer.h"
#include "unicode.h"

#define MARK "\xe2\x96\x81" /* U+2581 stands for a space */

/* What the text begins with becomes *to, of *n_to bytes; gives the bytes that it was. */
static size_t prefix(const gm_normal *s, const char *text, size_t n, const char **to, size_t *n_to)
{
    size_t   taken = 0;
    uint32_t node = GM_NO_ID;
    for (size_t i = 0; i < n && (node = gm_trie_next(&s->user, node, (unsigned char)text[i])) != GM_NO_ID; i++)
        if (s->user.values[node] != GM_NO_ID) taken = i + 1;
    if (taken) return *to = text, *n_to = taken;
    *to = gm_charsmap_find(&s->map, text, n, true, &taken, n_to);
    if (*to) return taken;
    return *to = text, *n_to = (size_t)gm_char_bytes((unsigned char)*text);
}

static gm_status add(const gm_normal *s, const char *text, size_t n, gm_text_bytes *out)
{
    for (size_t i = 0; i < n; i++) {
        bool space = s->escape && text[i] == ' ';
        GM_TRY(gm_text_add(out, space ? MARK : text + i, space ? 3 : 1));
    }
    return GM_OK;
}

static void drop_end(const gm_normal *s, gm_text_bytes *out)
{
    const char *space = s->escape ? MARK : " ";
    size_t      k = strlen(space);
    while (out->n >= k && !memcmp(out->data + out->n - k, space, k)) out->n -= k;
}

gm_status gm_sentencepiece_normalize(const gm_normal *s, const char *text, size_t n, gm_text_bytes *out)
{
    const char *to;
    size_t      n_to = 0, at = 0, k;
    bool        spaced = s->single_spaces;
    while (s->single_spaces && at < n) {
        k = prefix(s, text + at, n - at, &to, &n_to);
        if (n_to != 1 || *to != ' ') break;
        at += k;
    }
    if (at == n) return GM_OK;
    if (s->dummy_prefix && !s->suffix) GM_TRY(add(s, " ", 1, out));
    while (at < n) {
        k = prefix(s, text + at, n - at, &to, &n_to);
        while (spaced && n_to && *to == ' ') to++, n_to--;
        if (n_to) {
            GM_TRY(add(s, to, n_to, out));
            spaced = to[n_to - 1] == ' ';
        }
        at += k;
        spaced = spaced && s->single_spaces;
    }
    if (s->single_spaces) drop_end(s, out);
    return s->dummy_prefix && s->suffix ? add(s, " ", 1, out) : GM_OK;
}
