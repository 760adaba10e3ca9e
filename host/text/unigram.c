/* unigram.c - see unigram.h. Sums are f64 and of equal ones the earlier stays, as in Python's `tokenizers`
 * (models/unigram/model.rs, encode_optimized). Neighbours that are unknown become one. */
#include "unigram.h"

#include <stdlib.h>
#include <string.h>

#include "unicode.h"

typedef struct node { /* the best way that ends here */
    double   score;
    size_t   from; /* SIZE_MAX: none yet */
    uint32_t id;
} node;

static void reach(node *to, double score, size_t from, uint32_t id)
{
    if (to->from == SIZE_MAX || score > to->score) *to = (node){score, from, id};
}

static gm_status forward(const gm_unigram *m, node *best, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t   k = (size_t)gm_char_bytes((unsigned char)text[at]);
        bool     single = false;
        uint32_t place = GM_NO_ID;
        for (size_t i = at; i < n; i++) {
            place = gm_trie_next(&m->trie, place, (unsigned char)text[i]);
            if (place == GM_NO_ID) break;
            uint32_t id = m->trie.values[place];
            if (id == GM_NO_ID) continue;
            reach(&best[i + 1], best[at].score + m->scores[id], at, id);
            single = single || i + 1 - at == k;
        }
        if (!single) {
            if (m->unknown == GM_NO_ID)
                return GM_FAIL(GM_EINVAL, "'%.*s' is no token, and the vocabulary has no token for what is unknown",
                               (int)k, text + at);
            reach(&best[at + k], best[at].score + m->unknown_score, at, m->unknown);
        }
        at += k;
    }
    return GM_OK;
}

static gm_status put_bytes(const gm_unigram *m, const char *text, size_t n, gm_text_ids *out)
{
    uint32_t id = gm_vocab_find(&m->base.vocab, text, n);
    bool     all = id == GM_NO_ID && m->byte_fallback;
    for (size_t i = 0; all && i < n; i++) all = m->bytes[(unsigned char)text[i]] != GM_NO_ID;
    if (!all) return gm_ids_add(out, id != GM_NO_ID ? id : m->unknown);
    for (size_t i = n; i--;) GM_TRY(gm_ids_add(out, m->bytes[(unsigned char)text[i]])); /* from the end, as all here */
    return GM_OK;
}

static gm_status cut(const gm_model *base, gm_model_work *w, const char *text, size_t n, gm_text_ids *out)
{
    const gm_unigram *m = (const gm_unigram *)base;
    if (n > SIZE_MAX / 64) return GM_FAIL(GM_ENOMEM, "a text is too long");
    GM_TRY(gm_model_symbols(w, (n + 1) * sizeof(node)));
    node  *best = w->symbols;
    size_t before = out->n;
    for (size_t i = 0; i <= n; i++) best[i] = (node){0, SIZE_MAX, GM_NO_ID};
    GM_TRY(forward(m, best, text, n));
    for (size_t end = n; end;) { /* backwards */
        size_t from = best[end].from;
        if (best[end].id == m->unknown && m->unknown != GM_NO_ID) {
            while (from && best[from].id == m->unknown) from = best[from].from;
            GM_TRY(put_bytes(m, text + from, end - from, out));
        } else GM_TRY(gm_ids_add(out, best[end].id));
        end = from;
    }
    for (size_t i = before, j = out->n; i + 1 < j; i++) {
        uint32_t swap = out->data[--j];
        out->data[j] = out->data[i], out->data[i] = swap;
    }
    return GM_OK;
}

static void free_unigram(gm_model *base)
{
    gm_unigram *m = (gm_unigram *)base;
    gm_trie_free(&m->trie);
    free(m->scores);
    free(m);
}

gm_unigram *gm_unigram_new(size_t n)
{
    gm_unigram *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->base = (gm_model){.name = "Unigram", .cut = cut, .free = free_unigram};
    m->unknown = GM_NO_ID;
    m->scores = calloc(n + 1, sizeof *m->scores);
    if (m->scores) return m;
    free(m);
    return NULL;
}

gm_status gm_unigram_finish(gm_unigram *m, size_t n)
{
    double          lowest = 0;
    const gm_vocab *v = &m->base.vocab;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || m->scores[i] < lowest) lowest = m->scores[i];
    m->unknown_score = lowest - 10;
    for (size_t i = 0; i < v->n_entries; i++)
        GM_TRY(gm_trie_add(&m->trie, v->block.data + v->entries[i].at, v->entries[i].n, v->entries[i].id));
    gm_byte_tokens(v, m->bytes);
    return gm_vocab_index(&m->base.vocab);
}

static gm_status read_pieces(const gm_fields *f, const json_t *list, gm_unigram *m)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *pair = json_array_get(list, i), *text = json_array_get(pair, 0), *score = json_array_get(pair, 1);
        if (!json_is_array(pair) || json_array_size(pair) != 2 || !json_is_string(text) || !json_is_number(score))
            return GM_FAIL(GM_EINVAL, "%s.vocab.%zu: is no text and score", f->where, i);
        m->scores[i] = json_number_value(score);
        GM_TRY(gm_vocab_add(&m->base.vocab, json_string_value(text), json_string_length(text), (uint32_t)i));
    }
    return GM_OK;
}

static gm_status read_unigram(const gm_fields *f, const json_t *list, gm_unigram *m)
{
    long long unknown;
    size_t    n = json_array_size(list);
    GM_TRY(gm_fields_number(f, "unk_id", -1, 0, (long long)n - 1, &unknown));
    GM_TRY(gm_fields_flag(f, "byte_fallback", false, &m->byte_fallback));
    m->unknown = unknown < 0 ? GM_NO_ID : (uint32_t)unknown;
    GM_TRY(read_pieces(f, list, m));
    return gm_unigram_finish(m, n);
}

gm_status gm_unigram_read(const gm_fields *f, gm_model **out)
{
    json_t *list;
    GM_TRY(gm_fields_only(f, "type unk_id vocab byte_fallback"));
    GM_TRY(gm_fields_list(f, "vocab", &list));
    if (!json_array_size(list) || json_array_size(list) > INT32_MAX)
        return GM_FAIL(GM_EINVAL, "%s.vocab: has no tokens, or too many", f->where);
    gm_unigram *m = gm_unigram_new(json_array_size(list));
    if (!m) return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    gm_status st = read_unigram(f, list, m);
    if (st == GM_OK) *out = &m->base;
    else gm_model_free(&m->base);
    return st;
}
