/* wordpiece.c - the model of BERT: the longest token that begins a word, then the longest of the rest. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "unicode.h"

typedef struct wordpiece {
    gm_model base;
    char    *prefix;                        /* of all parts of a word but the first */
    size_t   n_prefix, most_chars, longest; /* longest: bytes of the longest token */
    uint32_t unknown;
} wordpiece;

/* The longest token that begins at `at`; *end stays `at` if there is none. */
static gm_status longest_at(const wordpiece *m, gm_model_work *w, const char *text, size_t at, size_t n, size_t *end,
                            uint32_t *id)
{
    size_t affix = at ? m->n_prefix : 0, to = n;
    w->text.n = 0;
    GM_TRY(gm_text_add(&w->text, m->prefix, affix));
    GM_TRY(gm_text_add(&w->text, text + at, n - at));
    for (; to > at; to--) {
        if (to < n && ((unsigned char)text[to] & 0xc0) == 0x80) continue;
        if (affix + to - at > m->longest) continue;
        *id = gm_vocab_find(&m->base.vocab, w->text.data, affix + to - at);
        if (*id != GM_NO_ID) break;
    }
    *end = to;
    return GM_OK;
}

static gm_status cut(const gm_model *base, gm_model_work *w, const char *text, size_t n, gm_text_ids *out)
{
    const wordpiece *m = (const wordpiece *)base;
    size_t           chars = 0, before = out->n, end = 0;
    for (size_t i = 0; i < n; i++) chars += ((unsigned char)text[i] & 0xc0) != 0x80;
    for (size_t at = 0; chars <= m->most_chars && at < n; at = end) {
        uint32_t id = GM_NO_ID;
        GM_TRY(longest_at(m, w, text, at, n, &end, &id));
        if (end == at) break;
        GM_TRY(gm_ids_add(out, id));
    }
    if (chars <= m->most_chars && end == n) return GM_OK;
    out->n = before;
    if (m->unknown == GM_NO_ID) return GM_FAIL(GM_EINVAL, "the token for what is unknown is not in the vocabulary");
    return gm_ids_add(out, m->unknown);
}

static void free_wordpiece(gm_model *base)
{
    free(((wordpiece *)base)->prefix);
    free(base);
}

static gm_status read_wordpiece(const gm_fields *f, wordpiece *m)
{
    const char *unknown, *prefix;
    size_t      n, n_prefix;
    long long   most;
    GM_TRY(gm_fields_only(f, "type unk_token continuing_subword_prefix max_input_chars_per_word vocab"));
    GM_TRY(gm_fields_text(f, "unk_token", true, &unknown, &n));
    GM_TRY(gm_fields_text(f, "continuing_subword_prefix", false, &prefix, &n_prefix));
    GM_TRY(gm_fields_number(f, "max_input_chars_per_word", 100, 0, INT32_MAX, &most));
    if (!prefix) prefix = "##", n_prefix = 2;
    GM_TRY(gm_text_copy(prefix, n_prefix, &m->prefix));
    m->n_prefix = n_prefix, m->most_chars = (size_t)most;
    GM_TRY(gm_model_vocab(f, &m->base.vocab));
    for (size_t i = 0; i < m->base.vocab.n_entries; i++)
        if (m->base.vocab.entries[i].n > m->longest) m->longest = m->base.vocab.entries[i].n;
    m->unknown = gm_vocab_find(&m->base.vocab, unknown, n);
    return GM_OK;
}

gm_status gm_wordpiece_read(const gm_fields *f, gm_model **out)
{
    wordpiece *m = calloc(1, sizeof *m);
    if (!m) return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    m->base = (gm_model){.name = "WordPiece", .cut = cut, .free = free_wordpiece};
    gm_status st = read_wordpiece(f, m);
    if (st == GM_OK) *out = &m->base;
    else gm_model_free(&m->base);
    return st;
}
