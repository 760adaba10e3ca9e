/* decode.c - see decode.h. What bytes that are no UTF-8 become is that of Rust's from_utf8_lossy: U+FFFD for each
 * longest beginning of a character. */
#include "decode.h"

#include <string.h>

#include "unicode.h"

typedef struct token {
    const char *text;
    size_t      n;
} token;

static token at(const gm_text_list *l, size_t i)
{
    size_t begin = i ? l->ends[i - 1] : 0;
    return (token){l->bytes.data ? l->bytes.data + begin : "", l->ends[i] - begin};
}

static gm_status add(gm_text_list *out, const char *text, size_t n) { return gm_text_add(&out->bytes, text, n); }

/* How many bytes the longest beginning of a character has at p, where n bytes are no whole one. */
static size_t beginning(const unsigned char *p, size_t n)
{
    unsigned c = p[0];
    size_t   k = c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 1, i = 1;
    for (; i < k && i < n; i++) {
        unsigned low = 0x80, high = 0xbf;
        if (i == 1 && c == 0xe0) low = 0xa0;
        if (i == 1 && c == 0xed) high = 0x9f;
        if (i == 1 && c == 0xf0) low = 0x90;
        if (i == 1 && c == 0xf4) high = 0x8f;
        if (p[i] < low || p[i] > high) break;
    }
    return i;
}

static gm_status add_lossy(gm_text_list *out, const char *text, size_t n)
{
    while (n) {
        size_t good = gm_utf8_valid(text, n);
        GM_TRY(add(out, text, good));
        text += good, n -= good;
        if (!n) break;
        size_t bad = beginning((const unsigned char *)text, n);
        GM_TRY(add(out, "\xef\xbf\xbd", 3));
        text += bad, n -= bad;
    }
    return GM_OK;
}

/* All bytes of all tokens. A token with a character that stands for no byte is taken as it is. */
static gm_status byte_level(const gm_text_list *in, gm_text_list *out)
{
    gm_text_bytes bytes = {0};
    gm_status     st = gm_text_room(&bytes, in->bytes.n);
    for (size_t i = 0; st == GM_OK && i < in->n; i++) {
        token    t = at(in, i);
        size_t   before = bytes.n;
        uint32_t c;
        int      b = 0;
        for (size_t j = 0; b >= 0 && j < t.n;) {
            j += (size_t)gm_char_read(t.text + j, &c);
            if ((b = gm_char_byte(c)) >= 0) bytes.data[bytes.n++] = (char)b;
        }
        if (b >= 0) continue;
        bytes.n = before;
        st = gm_text_add(&bytes, t.text, t.n);
    }
    if (st == GM_OK) st = add_lossy(out, bytes.data, bytes.n);
    gm_text_free(&bytes);
    return st == GM_OK ? gm_text_list_end(out) : st;
}

/* Every `from` in the text that was added since `begin` becomes `to`. */
static gm_status replace_since(gm_text_list *out, size_t begin, const char *from, size_t n_from, const char *to,
                               size_t n_to)
{
    gm_text_bytes made = {.most = out->bytes.most};
    char         *text = out->bytes.data + begin;
    size_t        n = out->bytes.n - begin, done = 0;
    gm_status     st = GM_OK;
    for (char *p; st == GM_OK && n > done && (p = memmem(text + done, n - done, from, n_from));) {
        st = gm_text_add(&made, text + done, (size_t)(p - text) - done);
        if (st == GM_OK) st = gm_text_add(&made, to, n_to);
        done = (size_t)(p - text) + n_from;
    }
    if (st == GM_OK && done) {
        st = gm_text_add(&made, text + done, n - done);
        out->bytes.n = begin;
        if (st == GM_OK) st = add(out, made.data, made.n);
    }
    gm_text_free(&made);
    return st;
}

static gm_status clean_up(gm_text_list *out, size_t begin)
{
    static const char *const rules[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        GM_TRY(replace_since(out, begin, rules[i][0], strlen(rules[i][0]), rules[i][1], strlen(rules[i][1])));
    return GM_OK;
}

static gm_status wordpiece(const gm_decode *s, token t, size_t i, gm_text_list *out)
{
    size_t begin = out->bytes.n;
    if (i && t.n >= s->n && !memcmp(t.text, s->text, s->n)) t.text += s->n, t.n -= s->n;
    else if (i) GM_TRY(add(out, " ", 1));
    GM_TRY(add(out, t.text, t.n));
    return s->flag ? clean_up(out, begin) : GM_OK;
}

static gm_status metaspace(const gm_decode *s, token t, size_t i, gm_text_list *out)
{
    size_t begin = out->bytes.n;
    GM_TRY(add(out, t.text, t.n));
    return replace_since(out, begin, s->text, s->n, " ", i || !s->flag ? 1 : 0);
}

static gm_status bpe(const gm_decode *s, token t, bool last, gm_text_list *out)
{
    size_t begin = out->bytes.n;
    GM_TRY(add(out, t.text, t.n));
    return s->n ? replace_since(out, begin, s->text, s->n, " ", last ? 0 : 1) : GM_OK;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The byte of "<0xAB>", or -1. */
static int named_byte(token t)
{
    if (t.n != 6 || memcmp(t.text, "<0x", 3) || t.text[5] != '>' || hex(t.text[3]) < 0 || hex(t.text[4]) < 0) return -1;
    return hex(t.text[3]) << 4 | hex(t.text[4]);
}

/* Neighbours that name bytes become a text, or, where that is no UTF-8, U+FFFD for each. */
static gm_status byte_fallback(const gm_text_list *in, gm_text_list *out)
{
    for (size_t i = 0; i < in->n;) {
        size_t begin = out->bytes.n, j = i;
        for (int b; j < in->n && (b = named_byte(at(in, j))) >= 0; j++) GM_TRY(add(out, (char[]){(char)b}, 1));
        if (j == i) {
            token t = at(in, i++);
            GM_TRY(add(out, t.text, t.n));
            GM_TRY(gm_text_list_end(out));
            continue;
        }
        if (gm_utf8_valid(out->bytes.data + begin, j - i) == j - i) GM_TRY(gm_text_list_end(out));
        else {
            out->bytes.n = begin;
            for (size_t k = i; k < j; k++) {
                GM_TRY(add(out, "\xef\xbf\xbd", 3));
                GM_TRY(gm_text_list_end(out));
            }
        }
        i = j;
    }
    return GM_OK;
}

static gm_status strip(const gm_decode *s, token t, gm_text_list *out)
{
    for (long long k = 0; k < s->start && t.n >= s->n && !memcmp(t.text, s->text, s->n); k++)
        t.text += s->n, t.n -= s->n;
    for (long long k = 0; k < s->stop && t.n >= s->n && !memcmp(t.text + t.n - s->n, s->text, s->n); k++) t.n -= s->n;
    return add(out, t.text, t.n);
}

static gm_status replace(const gm_decode *s, gm_regex_match *m, token t, gm_text_list *out)
{
    size_t done = 0, last = SIZE_MAX, begin, end;
    if (s->literal) {
        begin = out->bytes.n;
        GM_TRY(add(out, t.text, t.n));
        return replace_since(out, begin, s->literal, s->n_literal, s->text, s->n);
    }
    for (bool found;;) {
        GM_TRY(gm_regex_find(s->pattern, m, t.text, t.n, done, last, &found, &begin, &end));
        if (!found) return add(out, t.text + done, t.n - done);
        GM_TRY(add(out, t.text + done, begin - done));
        GM_TRY(add(out, s->text, s->n));
        done = last = end;
    }
}

/* SentencePiece: bytes become characters, U+FFFD for each that is part of none. */
static gm_status add_run(gm_text_list *out, size_t begin)
{
    gm_text_bytes run = {0};
    gm_status     st = gm_text_add(&run, out->bytes.data + begin, out->bytes.n - begin);
    out->bytes.n = begin;
    for (size_t i = 0; st == GM_OK && i < run.n;) {
        size_t good = gm_utf8_valid(run.data + i, run.n - i);
        st = add(out, run.data + i, good);
        i += good;
        if (st == GM_OK && i < run.n) st = add(out, "\xef\xbf\xbd", 3), i++;
    }
    gm_text_free(&run);
    return st;
}

/* U+2581 becomes a space; the one that a text begins with was not in it. */
static gm_status sentencepiece(const gm_decode *s, const gm_text_list *in, gm_text_list *out)
{
    bool begins = s->flag;
    for (size_t i = 0; i < in->n;) {
        size_t begin = out->bytes.n, j = i;
        for (int b; j < in->n && (b = named_byte(at(in, j))) >= 0; j++) GM_TRY(add(out, (char[]){(char)b}, 1));
        if (j > i) {
            GM_TRY(add_run(out, begin));
            i = j, begins = false;
            continue;
        }
        token t = at(in, i++);
        bool  mark = begins && t.n >= 3 && !memcmp(t.text, "\xe2\x96\x81", 3);
        if (mark) t.text += 3, t.n -= 3;
        GM_TRY(add(out, t.text, t.n));
        GM_TRY(replace_since(out, begin, "\xe2\x96\x81", 3, " ", 1));
        begins = begins && !t.n && (!mark || s->start);
    }
    return gm_text_list_end(out);
}

gm_status gm_decode_step(const gm_decode *s, gm_regex_match *m, const gm_text_list *in, gm_text_list *out)
{
    if (s->kind == GM_DECODE_BYTE_LEVEL) return byte_level(in, out);
    if (s->kind == GM_DECODE_BYTE_FALLBACK) return byte_fallback(in, out);
    if (s->kind == GM_DECODE_SENTENCEPIECE) return sentencepiece(s, in, out);
    if (s->kind == GM_DECODE_FUSE) {
        GM_TRY(add(out, in->bytes.data, in->n ? in->ends[in->n - 1] : 0));
        return gm_text_list_end(out);
    }
    for (size_t i = 0; i < in->n; i++) {
        token t = at(in, i);
        switch (s->kind) {
        case GM_DECODE_WORDPIECE: GM_TRY(wordpiece(s, t, i, out)); break;
        case GM_DECODE_METASPACE: GM_TRY(metaspace(s, t, i, out)); break;
        case GM_DECODE_BPE: GM_TRY(bpe(s, t, i + 1 == in->n, out)); break;
        case GM_DECODE_STRIP: GM_TRY(strip(s, t, out)); break;
        case GM_DECODE_REPLACE: GM_TRY(replace(s, m, t, out)); break;
        default: return GM_FAIL(GM_EINVAL, "a step of decoding is not known");
        }
        GM_TRY(gm_text_list_end(out));
    }
    return GM_OK;
}
