/* sentencepiece_model.c - SentencePiece's two models (sentencepiece.h), on a text that is not cut into words.
 *
 * Unigram: the best sum of scores, in f32 and its own order (unigram_model.cc, EncodeOptimized). BPE: the pair
 * whose piece has the highest score is joined first, of equal ones the leftmost (bpe_model.cc). */
#include <stdlib.h>
#include <string.h>

#include "sentencepiece.h"
#include "trie.h"
#include "unicode.h"

typedef struct piece_model {
    gm_model  base;
    gm_trie   trie;   /* of what may stand in a text */
    gm_vocab  found;  /* the same texts; base.vocab has all pieces, also those that are never found */
    gm_piece *pieces; /* without their texts */
    float     lowest, highest;
    uint32_t  unknown, bytes[256];
    bool      byte_fallback;
} piece_model;

static gm_status put_unknown(const piece_model *m, const char *text, size_t n, bool *before, gm_text_ids *out)
{
    bool all = m->byte_fallback;
    for (size_t i = 0; all && i < n; i++) all = m->bytes[(unsigned char)text[i]] != GM_NO_ID;
    for (size_t i = 0; all && i < n; i++) GM_TRY(gm_ids_add(out, m->bytes[(unsigned char)text[i]]));
    if (!all && !*before) GM_TRY(gm_ids_add(out, m->unknown));
    *before = !all; /* neighbours that are unknown become one */
    return GM_OK;
}

/* ---- unigram ---- */

typedef struct node {
    float    score;
    uint32_t id;
    size_t   from; /* SIZE_MAX: none yet */
} node;

static void forward(const piece_model *m, node *best, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t   k = (size_t)gm_char_bytes((unsigned char)text[at]);
        bool     single = false;
        uint32_t place = GM_NO_ID;
        for (size_t i = at; i < n && (place = gm_trie_next(&m->trie, place, (unsigned char)text[i])) != GM_NO_ID; i++) {
            uint32_t id = m->trie.values[place];
            if (id == GM_NO_ID || m->pieces[id].type == GM_PIECE_UNUSED) continue;
            size_t length = i + 1 - at;
            float  score = m->pieces[id].type == GM_PIECE_USER ? (float)((double)((float)length * m->highest) - 0.1)
                                                               : m->pieces[id].score;
            float  sum = score + best[at].score;
            if (best[i + 1].from == SIZE_MAX || sum > best[i + 1].score) best[i + 1] = (node){sum, id, at};
            single = single || length == k;
        }
        if (!single) {
            float sum = m->lowest - 10.0f + best[at].score;
            if (best[at + k].from == SIZE_MAX || sum > best[at + k].score) best[at + k] = (node){sum, m->unknown, at};
        }
        at += k;
    }
}

static gm_status cut_unigram(const gm_model *base, gm_model_work *w, const char *text, size_t n, gm_text_ids *out)
{
    const piece_model *m = (const piece_model *)base;
    if (n > SIZE_MAX / 64) return GM_FAIL(GM_ENOMEM, "a text is too long");
    GM_TRY(gm_model_symbols(w, (n + 1) * sizeof(node)));
    node *best = w->symbols;
    for (size_t i = 0; i <= n; i++) best[i] = (node){0, GM_NO_ID, SIZE_MAX};
    forward(m, best, text, n);
    for (size_t at = n, after = SIZE_MAX; at != SIZE_MAX;) { /* turns the way round: from becomes the next place */
        size_t from = at ? best[at].from : SIZE_MAX;
        best[at].from = after, after = at, at = from;
    }
    bool before = false;
    for (size_t at = 0, to; (to = best[at].from) != SIZE_MAX; at = to) {
        if (best[to].id == m->unknown) GM_TRY(put_unknown(m, text + at, to - at, &before, out));
        else {
            GM_TRY(gm_ids_add(out, best[to].id));
            before = false;
        }
    }
    return GM_OK;
}

/* ---- bpe ---- */

typedef struct symbol {
    size_t  at, n; /* n 0: it is part of the one before */
    int64_t before, after;
    bool    frozen;
} symbol;

typedef struct candidate {
    float   score;
    int64_t left, right;
    size_t  n;
} candidate;

static bool sooner(const candidate *a, const candidate *b)
{
    return a->score != b->score ? a->score > b->score : a->left < b->left;
}

static void offer(const piece_model *m, const char *text, const symbol *s, candidate *q, size_t *n, int64_t l,
                  int64_t r)
{
    if (l < 0 || r < 0 || s[l].frozen || s[r].frozen) return;
    uint32_t id = gm_vocab_find(&m->found, text + s[l].at, s[l].n + s[r].n);
    if (id == GM_NO_ID) return;
    candidate c = {m->pieces[id].score, l, r, s[l].n + s[r].n};
    size_t    i = (*n)++;
    for (; i && sooner(&c, &q[(i - 1) / 2]); i = (i - 1) / 2) q[i] = q[(i - 1) / 2];
    q[i] = c;
}

static candidate take(candidate *q, size_t *n)
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

/* Characters, and texts of users, which stay whole. */
static int64_t split(const piece_model *m, const char *text, size_t n, symbol *s)
{
    int64_t count = 0;
    for (size_t at = 0; at < n; count++) {
        size_t   k = 0;
        uint32_t place = GM_NO_ID;
        for (size_t i = at; i < n && (place = gm_trie_next(&m->trie, place, (unsigned char)text[i])) != GM_NO_ID; i++) {
            uint32_t id = m->trie.values[place];
            if (id != GM_NO_ID && m->pieces[id].type == GM_PIECE_USER) k = i + 1 - at;
        }
        s[count] = (symbol){at, k ? k : (size_t)gm_char_bytes((unsigned char)text[at]), count - 1, count + 1, k > 0};
        at += s[count].n;
    }
    if (count) s[count - 1].after = -1;
    return count;
}

static void join_all(const piece_model *m, const char *text, symbol *s, int64_t count, candidate *q)
{
    size_t waiting = 0;
    for (int64_t i = 0; i + 1 < count; i++) offer(m, text, s, q, &waiting, i, i + 1);
    while (waiting) {
        candidate c = take(q, &waiting);
        symbol   *l = &s[c.left], *r = &s[c.right];
        if (!l->n || !r->n || l->n + r->n != c.n) continue;
        l->n = c.n, l->after = r->after, r->n = 0;
        if (r->after >= 0) s[r->after].before = c.left;
        offer(m, text, s, q, &waiting, l->before, c.left);
        offer(m, text, s, q, &waiting, c.left, l->after);
    }
}

static gm_status cut_bpe(const gm_model *base, gm_model_work *w, const char *text, size_t n, gm_text_ids *out)
{
    const piece_model *m = (const piece_model *)base;
    if (n > SIZE_MAX / 256) return GM_FAIL(GM_ENOMEM, "a text is too long");
    GM_TRY(gm_model_symbols(w, (n + 1) * sizeof(symbol)));
    symbol *s = w->symbols;
    int64_t count = split(m, text, n, s);
    GM_TRY(gm_model_queue(w, (size_t)(3 * count + 1) * sizeof(candidate)));
    join_all(m, text, s, count, w->queue);
    bool before = false;
    for (int64_t i = 0; i >= 0 && i < count; i = s[i].after) {
        uint32_t id = gm_vocab_find(&m->found, text + s[i].at, s[i].n);
        if (id == GM_NO_ID) GM_TRY(put_unknown(m, text + s[i].at, s[i].n, &before, out));
        else {
            GM_TRY(gm_ids_add(out, id));
            before = false;
        }
    }
    return GM_OK;
}

/* ---- making ---- */

static void free_model(gm_model *base)
{
    piece_model *m = (piece_model *)base;
    gm_trie_free(&m->trie);
    gm_vocab_free(&m->found);
    free(m->pieces);
    free(m);
}

static gm_status add_pieces(const gm_pieces *p, piece_model *m)
{
    bool any = false;
    m->unknown = GM_NO_ID;
    for (size_t i = 0; i < p->n; i++) {
        const gm_piece *x = &p->list[i];
        m->pieces[i] = (gm_piece){.score = x->score, .type = x->type};
        GM_TRY(gm_vocab_add(&m->base.vocab, x->text, x->n, (uint32_t)i));
        if (m->base.vocab.n_entries != i + 1)
            return GM_FAIL(GM_ECORRUPT, "the piece '%.*s' is there twice", (int)(x->n < 60 ? x->n : 60), x->text);
        if (x->type == GM_PIECE_UNKNOWN) m->unknown = (uint32_t)i;
        if (x->type == GM_PIECE_UNUSED && p->model == 2)
            return GM_FAIL(GM_EINVAL, "the piece '%.*s' is marked as unused, which is not read here for bpe",
                           (int)(x->n < 60 ? x->n : 60), x->text);
        if (x->type == GM_PIECE_NORMAL || x->type == GM_PIECE_USER) {
            m->lowest = !any || x->score < m->lowest ? x->score : m->lowest;
            m->highest = !any || x->score > m->highest ? x->score : m->highest;
            any = true;
        }
        if (x->type != GM_PIECE_NORMAL && x->type != GM_PIECE_USER && x->type != GM_PIECE_UNUSED) continue;
        GM_TRY(gm_vocab_add(&m->found, x->text, x->n, (uint32_t)i));
        GM_TRY(gm_trie_add(&m->trie, x->text, x->n, (uint32_t)i));
    }
    if (m->unknown == GM_NO_ID) return GM_FAIL(GM_ECORRUPT, "there is no piece for what is unknown");
    return gm_vocab_index(&m->base.vocab);
}

gm_status gm_piece_model_new(const gm_pieces *p, gm_model **out)
{
    piece_model *m = calloc(1, sizeof *m);
    if (!m || !(m->pieces = calloc(p->n, sizeof *m->pieces))) {
        free(m);
        return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    }
    m->base = (gm_model){.name = p->model == 1 ? "SentencePiece unigram" : "SentencePiece bpe",
                         .cut = p->model == 1 ? cut_unigram : cut_bpe,
                         .free = free_model};
    m->byte_fallback = p->byte_fallback;
    gm_status st = add_pieces(p, m);
    gm_byte_tokens(&m->base.vocab, m->bytes);
    if (st == GM_OK) *out = &m->base;
    else gm_model_free(&m->base);
    return st;
}
