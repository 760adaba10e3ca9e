/* normal.c - the steps of normalization (normalizer.h), as Python's `tokenizers` makes them. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "normalizer.h"
#include "unicode.h"

/* Text without characters of U+0300 and on is in NFC; plain ASCII is in all forms. */
static bool is_normal(const char *text, size_t n, bool composed)
{
    unsigned char most = composed ? 0xcb : 0x7f;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] > most) return false;
    return true;
}

static gm_status form_part(const char *text, size_t n, int flags, gm_text_bytes *out)
{
    bool composed = flags == (UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (is_normal(text, n, composed)) return gm_text_add(out, text, n);
    utf8proc_uint8_t *made = NULL;
    utf8proc_ssize_t  size = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &made,
                                          (utf8proc_option_t)flags);
    if (size < 0) return GM_FAIL(GM_ENOMEM, "a text of %zu bytes: %s", n, utf8proc_errmsg(size));
    gm_status st = gm_text_add(out, (char *)made, (size_t)size);
    free(made);
    return st;
}

/* A normal form as `tokenizers` knows it: what is later than its tables stays, and nothing moves past it. */
static gm_status form(const char *text, size_t n, int flags, gm_text_bytes *out)
{
    size_t   from = 0;
    uint32_t c;
    for (size_t i = 0; i < n;) {
        size_t k = (size_t)gm_char_read(text + i, &c);
        i += k;
        if (!gm_char_formless(c, flags & UTF8PROC_COMPAT)) continue;
        GM_TRY(form_part(text + from, i - k - from, flags, out));
        GM_TRY(gm_text_add(out, text + i - k, k));
        from = i;
    }
    return form_part(text + from, n - from, flags, out);
}

static gm_status lowercase(const char *text, size_t n, gm_text_bytes *out)
{
    uint32_t c, lower[3];
    GM_TRY(gm_text_room(out, n));
    for (size_t i = 0; i < n;) {
        i += (size_t)gm_char_read(text + i, &c);
        if (c < 0x80) {
            GM_TRY(gm_text_add_char(out, c >= 'A' && c <= 'Z' ? c + 32 : c));
            continue;
        }
        int k = gm_char_lower(c, lower);
        for (int j = 0; j < k; j++) GM_TRY(gm_text_add_char(out, lower[j]));
    }
    return GM_OK;
}

static gm_status strip(const gm_normal *s, const char *text, size_t n, gm_text_bytes *out, bool *leading)
{
    size_t   from = 0, to = n;
    uint32_t c;
    while (s->left && from < to) {
        int k = gm_char_read(text + from, &c);
        if (!gm_char_space(c)) break;
        from += (size_t)k, *leading = false;
    }
    while (s->right && to > from) {
        int k = gm_char_before(text, to, &c);
        if (!gm_char_space(c)) break;
        to -= (size_t)k;
    }
    return gm_text_add(out, text + from, to - from);
}

/* Leaves characters out. */
static gm_status without(const char *text, size_t n, bool (*bad)(uint32_t c), gm_text_bytes *out, bool *leading)
{
    uint32_t c;
    for (size_t i = 0; i < n;) {
        int k = gm_char_read(text + i, &c);
        if (!bad(c)) GM_TRY(gm_text_add(out, text + i, (size_t)k));
        else if (!out->n) *leading = false;
        i += (size_t)k;
    }
    return GM_OK;
}

static gm_status clean(const char *text, size_t n, gm_text_bytes *out, bool *leading)
{
    uint32_t c;
    for (size_t i = 0; i < n;) {
        int k = gm_char_read(text + i, &c);
        if (c == 0 || c == 0xfffd || gm_char_control(c)) *leading = *leading && out->n;
        else if (gm_char_space(c)) GM_TRY(gm_text_add(out, " ", 1));
        else GM_TRY(gm_text_add(out, text + i, (size_t)k));
        i += (size_t)k;
    }
    return GM_OK;
}

static gm_status space_ideographs(const char *text, size_t n, gm_text_bytes *out)
{
    uint32_t c;
    for (size_t i = 0; i < n;) {
        int  k = gm_char_read(text + i, &c);
        bool wide = gm_char_chinese(c);
        if (wide) GM_TRY(gm_text_add(out, " ", 1));
        GM_TRY(gm_text_add(out, text + i, (size_t)k));
        if (wide) GM_TRY(gm_text_add(out, " ", 1));
        i += (size_t)k;
    }
    return GM_OK;
}

/* The parts of BERT's step, each from one buffer to the other. */
static gm_status bert(const gm_normal *s, const char *text, size_t n, gm_text_bytes *out, bool *leading)
{
    gm_text_bytes a = {0}, b = {0}, swap;
    gm_status     st = gm_text_add(&a, text, n);
#define PART(wanted, expr)         \
    if (st == GM_OK && (wanted)) { \
        b.n = 0, st = (expr);      \
        swap = a, a = b, b = swap; \
    }
    PART(s->clean, clean(a.data, a.n, &b, leading))
    PART(s->chinese, space_ideographs(a.data, a.n, &b))
    PART(s->accents, form(a.data, a.n, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &b))
    PART(s->accents, without(a.data, a.n, gm_char_mark_no_space, &b, leading))
    PART(s->lower, lowercase(a.data, a.n, &b))
#undef PART
    if (st == GM_OK) st = gm_text_add(out, a.data, a.n);
    gm_text_free(&a);
    gm_text_free(&b);
    return st;
}

static gm_status replace(const gm_normal *s, gm_regex_match *m, const char *text, size_t n, gm_text_bytes *out)
{
    size_t at = 0, last = SIZE_MAX, begin, end;
    while (at <= n) {
        bool found;
        if (s->literal) {
            const char *p = memmem(text + at, n - at, s->literal, s->n_literal);
            found = p != NULL, begin = p ? (size_t)(p - text) : 0, end = begin + s->n_literal;
        } else GM_TRY(gm_regex_find(s->pattern, m, text, n, at, last, &found, &begin, &end));
        if (!found) break;
        GM_TRY(gm_text_add(out, text + at, begin - at));
        GM_TRY(gm_text_add(out, s->text, s->n));
        at = last = end;
    }
    return gm_text_add(out, text + at, n - at);
}

/* NMT's table: some characters go, some become spaces. */
static gm_status nmt(const char *text, size_t n, gm_text_bytes *out, bool *leading)
{
    uint32_t c;
    for (size_t i = 0; i < n;) {
        int  k = gm_char_read(text + i, &c);
        bool gone = (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
        bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
        if (gone) *leading = *leading && out->n;
        else if (space) GM_TRY(gm_text_add(out, " ", 1));
        else GM_TRY(gm_text_add(out, text + i, (size_t)k));
        i += (size_t)k;
    }
    return GM_OK;
}

static gm_status byte_level(const char *text, size_t n, gm_text_bytes *out)
{
    GM_TRY(gm_text_room(out, 2 * n));
    for (size_t i = 0; i < n; i++)
        out->n += (size_t)gm_char_write(gm_byte_char((unsigned char)text[i]), out->data + out->n);
    return GM_OK;
}

/* A grapheme of less than 6 bytes is looked up whole, otherwise its characters are, one by one: what is found is the
 * shortest entry that begins there, and stands for all of it. So `tokenizers` reads SentencePiece's table. */
static gm_status mapped(const gm_charsmap *map, const char *text, size_t n, gm_text_bytes *out)
{
    size_t taken, size;
    for (size_t i = 0; i < n;) {
        uint32_t         c, next;
        utf8proc_int32_t state = 0;
        size_t           end = i + (size_t)gm_char_read(text + i, &c);
        while (end < n) {
            int k = gm_char_read(text + end, &next);
            if (c == '\r' && next == '\n') state = 0;
            if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, &state)) break;
            end += (size_t)k, c = next;
        }
        const char *to = end - i < 6 ? gm_charsmap_find(map, text + i, end - i, false, &taken, &size) : NULL;
        if (to) {
            GM_TRY(gm_text_add(out, to, size));
            i = end;
        }
        while (i < end) {
            size_t k = (size_t)gm_char_bytes((unsigned char)text[i]);
            to = gm_charsmap_find(map, text + i, k, false, &taken, &size);
            GM_TRY(to ? gm_text_add(out, to, size) : gm_text_add(out, text + i, k));
            i += k;
        }
    }
    return GM_OK;
}

gm_status gm_normal_apply(const gm_normal *s, gm_regex_match *m, const char *text, size_t n, gm_text_bytes *out,
                          bool *leading)
{
    switch (s->kind) {
    case GM_NORMAL_NFC: return form(text, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE, out);
    case GM_NORMAL_NFD: return form(text, n, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, out);
    case GM_NORMAL_NFKC: return form(text, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, out);
    case GM_NORMAL_NFKD: return form(text, n, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, out);
    case GM_NORMAL_LOWERCASE: return lowercase(text, n, out);
    case GM_NORMAL_STRIP: return strip(s, text, n, out, leading);
    case GM_NORMAL_STRIP_ACCENTS: return without(text, n, gm_char_mark, out, leading);
    case GM_NORMAL_BERT: return bert(s, text, n, out, leading);
    case GM_NORMAL_PREPEND:
        if (n) GM_TRY(gm_text_add(out, s->text, s->n));
        return gm_text_add(out, text, n);
    case GM_NORMAL_REPLACE: return replace(s, m, text, n, out);
    case GM_NORMAL_NMT: return nmt(text, n, out, leading);
    case GM_NORMAL_CHARSMAP: return mapped(&s->map, text, n, out);
    case GM_NORMAL_BYTE_LEVEL: return byte_level(text, n, out);
    case GM_NORMAL_SENTENCEPIECE: return gm_sentencepiece_normalize(s, text, n, out);
    }
    return GM_FAIL(GM_EINVAL, "a step of normalization is not known");
}
