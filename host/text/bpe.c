/* bpe.c - see bpe.h. The order of joining, ties and entries that have expired included, is that of `tokenizers`
 * (models/bpe/word.rs): a queue of (rank, place), where an entry still holds if the pair there gives its token. */
#include "bpe.h"

#include <stdlib.h>
#include <string.h>

#include "unicode.h"

typedef struct symbol {
    uint32_t id;
    int32_t  before, after; /* -1: none */
    bool     joined;        /* it is part of the one before */
} symbol;

typedef struct candidate {
    uint32_t rank, place, id;
} candidate;

/* ---- pairs ---- */

static size_t pair_slot(const gm_bpe *m, uint64_t key)
{
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    size_t   at = (size_t)(h ^ h >> 32) & (m->n_slots - 1);
    while (m->pairs[at].key != key && m->pairs[at].key != UINT64_MAX) at = (at + 1) & (m->n_slots - 1);
    return at;
}

static gm_status more_pairs(gm_bpe *m)
{
    size_t       before = m->n_slots, wanted = before ? 2 * before : 256;
    gm_bpe_pair *old = m->pairs, *p = malloc(wanted * sizeof *p);
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for the merges of a tokenizer");
    memset(p, 0xff, wanted * sizeof *p);
    m->pairs = p, m->n_slots = wanted;
    for (size_t i = 0; i < before; i++)
        if (old[i].key != UINT64_MAX) p[pair_slot(m, old[i].key)] = old[i];
    free(old);
    return GM_OK;
}

gm_status gm_bpe_join(gm_bpe *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t id)
{
    uint64_t key = (uint64_t)left << 32 | right;
    if (2 * (m->n_pairs + 1) > m->n_slots) GM_TRY(more_pairs(m));
    size_t at = pair_slot(m, key);
    if (m->pairs[at].key != key) m->n_pairs++;
    m->pairs[at] = (gm_bpe_pair){key, rank, id};
    return GM_OK;
}

static const gm_bpe_pair *pair_of(const gm_bpe *m, uint32_t left, uint32_t right)
{
    if (!m->n_slots) return NULL;
    const gm_bpe_pair *p = &m->pairs[pair_slot(m, (uint64_t)left << 32 | right)];
    return p->key == UINT64_MAX ? NULL : p;
}

/* ---- the queue: a heap, lowest rank first, then lowest place ---- */

static bool sooner(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->place < b->place;
}

static void push(candidate *q, size_t *n, candidate c)
{
    size_t i = (*n)++;
    for (; i && sooner(&c, &q[(i - 1) / 2]); i = (i - 1) / 2) q[i] = q[(i - 1) / 2];
    q[i] = c;
}

static candidate pop(candidate *q, size_t *n)
{
    candidate first = q[0], c = q[--*n];
    size_t    i = 0;
    for (size_t k; (k = 2 * i + 1) < *n; i = k) {
        if (k + 1 < *n && sooner(&q[k + 1], &q[k])) k++;
        if (!sooner(&q[k], &c)) break;
        q[i] = q[k];
    }
    q[i] = c;
    return first;
}

static void offer(const gm_bpe *m, const symbol *s, candidate *q, size_t *n, int32_t left, int32_t right)
{
    const gm_bpe_pair *p = pair_of(m, s[left].id, s[right].id);
    if (p) push(q, n, (candidate){p->rank, (uint32_t)left, p->id});
}

/* Each join offers two pairs at most and takes one symbol away: 3 n entries are enough. */
static void join_all(const gm_bpe *m, symbol *s, int32_t n, candidate *q)
{
    size_t waiting = 0;
    for (int32_t i = 0; i + 1 < n; i++) offer(m, s, q, &waiting, i, i + 1);
    while (waiting) {
        candidate c = pop(q, &waiting);
        symbol   *left = &s[c.place];
        if (left->joined || left->after < 0) continue;
        symbol            *right = &s[left->after];
        const gm_bpe_pair *p = pair_of(m, left->id, right->id);
        if (!p || p->id != c.id) continue;
        left->id = c.id, left->after = right->after, right->joined = true;
        if (right->after >= 0) s[right->after].before = (int32_t)c.place;
        if (left->before >= 0) offer(m, s, q, &waiting, left->before, (int32_t)c.place);
        if (left->after >= 0) offer(m, s, q, &waiting, (int32_t)c.place, left->after);
    }
}

/* ---- the symbols of a piece ---- */

static void put(symbol *s, int32_t *n, uint32_t id)
{
    s[*n] = (symbol){id, *n - 1, *n + 1, false};
    ++*n;
}

/* The token of one character, with prefix and suffix as its place asks. */
static gm_status find_char(const gm_bpe *m, gm_model_work *w, const char *c, int k, bool first, bool last, uint32_t *id)
{
    bool before = m->prefix && !first, after = m->suffix && last;
    if (!before && !after) {
        *id = k == 1 ? m->ascii[(unsigned char)*c] : gm_vocab_find(&m->base.vocab, c, (size_t)k);
        return GM_OK;
    }
    w->text.n = 0;
    if (before) GM_TRY(gm_text_add(&w->text, m->prefix, strlen(m->prefix)));
    GM_TRY(gm_text_add(&w->text, c, (size_t)k));
    if (after) GM_TRY(gm_text_add(&w->text, m->suffix, strlen(m->suffix)));
    *id = gm_vocab_find(&m->base.vocab, w->text.data, w->text.n);
    return GM_OK;
}

/* The bytes of what is looked up, affixes included; false: a byte has no token. */
static bool put_bytes(const gm_bpe *m, const char *text, size_t n, symbol *s, int32_t *count)
{
    for (size_t i = 0; i < n; i++)
        if (m->bytes[(unsigned char)text[i]] == GM_NO_ID) return false;
    for (size_t i = 0; i < n; i++) put(s, count, m->bytes[(unsigned char)text[i]]);
    return true;
}

static gm_status symbols(const gm_bpe *m, gm_model_work *w, const char *text, size_t n, symbol *s, int32_t *out)
{
    int32_t count = 0;
    bool    unknown = false; /* one waits, so that it can take in those that follow */
    for (size_t i = 0; i < n;) {
        uint32_t id;
        int      k = gm_char_bytes((unsigned char)text[i]);
        bool     first = i == 0, last = i + (size_t)k >= n;
        GM_TRY(find_char(m, w, text + i, k, first, last, &id));
        bool        affixed = (m->prefix && !first) || (m->suffix && last);
        const char *looked = affixed ? w->text.data : text + i;
        size_t      looked_n = affixed ? w->text.n : (size_t)k;
        i += (size_t)k;
        if (id != GM_NO_ID) {
            if (unknown) put(s, &count, m->unknown);
            unknown = false;
            put(s, &count, id);
        } else if (m->byte_fallback && put_bytes(m, looked, looked_n, s, &count)) {
            continue;
        } else if (m->has_unknown) {
            if (m->unknown == GM_NO_ID)
                return GM_FAIL(GM_EINVAL, "the token for what is unknown is not in the vocabulary");
            if (unknown && !m->fuse_unknown) put(s, &count, m->unknown);
            unknown = true;
        }
    }
    if (unknown) put(s, &count, m->unknown);
    if (count) s[count - 1].after = -1;
    *out = count;
    return GM_OK;
}

static gm_status cut(const gm_model *base, gm_model_work *w, const char *text, size_t n, gm_text_ids *out)
{
    const gm_bpe *m = (const gm_bpe *)base;
    int32_t       count = 0;
    if (m->ignore_merges) {
        uint32_t id = gm_vocab_find(&base->vocab, text, n);
        if (id != GM_NO_ID) return gm_ids_add(out, id);
    }
    /* A character is one symbol, or, as bytes with its affixes, as many as it has bytes. */
    size_t affixes = m->byte_fallback ? (m->prefix ? strlen(m->prefix) : 0) * n + (m->suffix ? strlen(m->suffix) : 0)
                                      : 0;
    size_t most = n + affixes + 2;
    if (n > INT32_MAX / 64 || most > INT32_MAX / 4)
        return GM_FAIL(GM_EINVAL, "a piece of %zu bytes without a place to cut it is too long", n);
    GM_TRY(gm_model_symbols(w, most * sizeof(symbol)));
    symbol *s = w->symbols;
    GM_TRY(symbols(m, w, text, n, s, &count));
    GM_TRY(gm_model_queue(w, (size_t)(3 * count + 1) * sizeof(candidate)));
    join_all(m, s, count, w->queue);
    GM_TRY(gm_ids_room(out, (size_t)count));
    for (int32_t i = 0; i >= 0 && i < count; i = s[i].after) out->data[out->n++] = s[i].id;
    return GM_OK;
}

static void free_bpe(gm_model *base)
{
    gm_bpe *m = (gm_bpe *)base;
    free(m->pairs);
    free(m->prefix);
    free(m->suffix);
    free(m);
}

/* ---- reading ---- */

static gm_status read_side(const gm_fields *f, size_t i, const json_t *v, const char **text, size_t *n)
{
    if (!json_is_string(v)) return GM_FAIL(GM_EINVAL, "%s.merges.%zu: is no pair of texts", f->where, i);
    *text = json_string_value(v), *n = json_string_length(v);
    return GM_OK;
}

/* "left right" or ["left", "right"] */
static gm_status read_merge(const gm_fields *f, gm_bpe *m, size_t i, const json_t *v, gm_text_bytes *whole)
{
    const char *left = "", *right = "";
    size_t      n_left = 0, n_right = 0, n_prefix = m->prefix ? strlen(m->prefix) : 0;
    if (json_is_array(v) && json_array_size(v) == 2) {
        GM_TRY(read_side(f, i, json_array_get(v, 0), &left, &n_left));
        GM_TRY(read_side(f, i, json_array_get(v, 1), &right, &n_right));
    } else {
        GM_TRY(read_side(f, i, v, &left, &n_left));
        const char *space = memchr(left, ' ', n_left);
        if (!space || memchr(space + 1, ' ', (size_t)(left + n_left - space - 1)))
            return GM_FAIL(GM_EINVAL, "%s.merges.%zu: is no pair of texts with one space between", f->where, i);
        right = space + 1, n_right = (size_t)(left + n_left - right), n_left = (size_t)(space - left);
    }
    const gm_vocab *v_ = &m->base.vocab;
    uint32_t        a = gm_vocab_find(v_, left, n_left), b = gm_vocab_find(v_, right, n_right);
    whole->n = 0;
    GM_TRY(gm_text_add(whole, left, n_left));
    if (n_right > n_prefix) GM_TRY(gm_text_add(whole, right + n_prefix, n_right - n_prefix));
    uint32_t id = gm_vocab_find(v_, whole->data, whole->n);
    if (a == GM_NO_ID || b == GM_NO_ID || id == GM_NO_ID)
        return GM_FAIL(GM_EINVAL, "%s.merges.%zu: '%.*s' and '%.*s' or what they become is not in the vocabulary",
                       f->where, i, n_left < 60 ? (int)n_left : 60, left, n_right < 60 ? (int)n_right : 60, right);
    return gm_bpe_join(m, a, b, (uint32_t)i, id);
}

static gm_status read_merges(const gm_fields *f, gm_bpe *m)
{
    json_t       *list;
    gm_text_bytes whole = {0};
    GM_TRY(gm_fields_list(f, "merges", &list));
    gm_status st = GM_OK;
    for (size_t i = 0; st == GM_OK && i < json_array_size(list); i++)
        st = read_merge(f, m, i, json_array_get(list, i), &whole);
    gm_text_free(&whole);
    return st;
}

static gm_status read_affix(const gm_fields *f, const char *name, char **out)
{
    const char *text;
    size_t      n;
    GM_TRY(gm_fields_text(f, name, false, &text, &n));
    if (!text || !n) return GM_OK;
    if (strlen(text) != n) return GM_FAIL(GM_EINVAL, "%s.%s: has the character U+0000", f->where, name);
    return gm_text_copy(text, n, out);
}

static gm_status read_bpe(const gm_fields *f, gm_bpe *m)
{
    const char   *unknown;
    size_t        n;
    const json_t *dropout = json_object_get(f->object, "dropout");
    GM_TRY(gm_fields_only(f,
                          "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
                          "ignore_merges vocab merges"));
    if (dropout && !json_is_null(dropout) && !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return GM_FAIL(GM_EINVAL,
                       "%s.dropout: merges are left out at random, and two runs would differ; set it to null",
                       f->where);
    GM_TRY(gm_fields_text(f, "unk_token", false, &unknown, &n));
    GM_TRY(read_affix(f, "continuing_subword_prefix", &m->prefix));
    GM_TRY(read_affix(f, "end_of_word_suffix", &m->suffix));
    GM_TRY(gm_fields_flag(f, "fuse_unk", false, &m->fuse_unknown));
    GM_TRY(gm_fields_flag(f, "byte_fallback", false, &m->byte_fallback));
    GM_TRY(gm_fields_flag(f, "ignore_merges", false, &m->ignore_merges));
    GM_TRY(gm_model_vocab(f, &m->base.vocab));
    m->has_unknown = unknown != NULL;
    m->unknown = unknown ? gm_vocab_find(&m->base.vocab, unknown, n) : GM_NO_ID;
    gm_byte_tokens(&m->base.vocab, m->bytes);
    for (int c = 0; c < 128; c++) m->ascii[c] = gm_vocab_find(&m->base.vocab, (char[]){(char)c}, 1);
    return read_merges(f, m);
}

gm_status gm_bpe_read(const gm_fields *f, gm_model **out)
{
    gm_bpe *m = calloc(1, sizeof *m);
    if (!m) return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    m->base = (gm_model){.name = "BPE", .cut = cut, .free = free_bpe};
    gm_status st = read_bpe(f, m);
    if (st == GM_OK) *out = &m->base;
    else gm_model_free(&m->base);
    return st;
}
