/* bpe_train.c - see bpe_train.h. The queue and what enters it when follow bpe/trainer.rs, so that merges come in the
 * same order: an entry has the words in which its pair was seen when it entered. */
#include "bpe_train.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "pretokenizer.h"
#include "unicode.h"
#include "vocab.h"

typedef struct word {
    size_t   at; /* of its symbols */
    uint32_t n;
    uint64_t count;
} word;

typedef struct pair {
    uint64_t key; /* left << 32 | right */
    int64_t  count;
    uint32_t list; /* the entry that is being made, or GM_NO_ID */
} pair;

typedef struct entry {
    uint64_t    key, count;
    gm_text_ids words;
} entry;

struct gm_bpe_train {
    gm_pretokenizer cuts;
    gm_cut_work     work;
    gm_vocab        words; /* the number of a word is its place in counts */
    uint64_t       *counts;
    size_t          room;
    word           *list;
    gm_text_ids     symbols;
    pair           *pairs;
    size_t          n_pairs, room_pairs, n_slots;
    uint32_t       *slots; /* of pairs */
    entry          *queue; /* a heap */
    size_t          n_queue, room_queue;
    entry          *made; /* entries of a merge */
    size_t          n_made, room_made;
    gm_vocab        vocab;
    json_t         *merges;
};

gm_status gm_bpe_train_new(gm_bpe_train **out)
{
    static const char step[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}";
    gm_bpe_train     *t = calloc(1, sizeof *t);
    gm_fields         f = {.where = "trainer: pre_tokenizer", .object = json_loads(step, 0, NULL)};
    gm_status         st = t && f.object ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory to train a tokenizer");
    if (st == GM_OK) st = gm_pretokenizer_read(&f, &t->cuts);
    if (st == GM_OK) st = gm_regex_match_new(&t->work.match);
    json_decref(f.object);
    if (st == GM_OK) *out = t;
    else gm_bpe_train_free(t);
    return st;
}

void gm_bpe_train_free(gm_bpe_train *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n_queue; i++) gm_ids_free(&t->queue[i].words);
    for (size_t i = 0; i < t->n_made; i++) gm_ids_free(&t->made[i].words);
    gm_pretokenizer_free(&t->cuts);
    gm_cut_work_free(&t->work);
    gm_vocab_free(&t->words);
    gm_vocab_free(&t->vocab);
    gm_ids_free(&t->symbols);
    free(t->counts);
    free(t->list);
    free(t->pairs);
    free(t->slots);
    free(t->queue);
    free(t->made);
    json_decref(t->merges);
    free(t);
}

static gm_status more(void **p, size_t *room, size_t n, size_t size)
{
    if (n < *room) return GM_OK;
    size_t wanted = *room ? 2 * *room : 256;
    void  *made = realloc(*p, wanted * size);
    if (!made) return GM_FAIL(GM_ENOMEM, "no memory to train a tokenizer");
    *p = made, *room = wanted;
    return GM_OK;
}

/* ---- counting words ---- */

static gm_status count_word(void *context, const char *text, size_t n)
{
    gm_bpe_train *t = context;
    uint32_t      id = gm_vocab_find(&t->words, text, n);
    if (id == GM_NO_ID) {
        id = (uint32_t)t->words.n_entries;
        GM_TRY(more((void **)&t->counts, &t->room, id, sizeof *t->counts));
        GM_TRY(gm_vocab_add(&t->words, text, n, id));
        t->counts[id] = 0;
    }
    t->counts[id]++;
    return GM_OK;
}

gm_status gm_bpe_train_text(gm_bpe_train *t, const char *text, size_t n)
{
    size_t good = gm_utf8_valid(text, n);
    if (good < n)
        return GM_FAIL(GM_EINVAL, "the text is no UTF-8: byte %zu of %zu is 0x%02x", good, n,
                       (unsigned char)text[good]);
    return gm_pretokenize(&t->cuts, &t->work, text, n, true, count_word, t);
}

gm_status gm_bpe_train_files(gm_bpe_train *t, const char *const *files, int n, const gm_document_options *o)
{
    gm_text_bytes text = {0};
    gm_status     st = GM_OK;
    for (int i = 0; st == GM_OK && i < n; i++) {
        gm_documents *d = NULL;
        bool          found = true;
        st = gm_documents_open(files[i], o, 0, 0, &d);
        while (st == GM_OK && found) {
            text.n = 0;
            st = gm_documents_next(d, &text, &found);
            if (st == GM_OK && found) st = gm_bpe_train_text(t, text.data, text.n);
        }
        gm_documents_close(d);
    }
    gm_text_free(&text);
    return st;
}

/* ---- pairs ---- */

static size_t slot_of(const gm_bpe_train *t, uint64_t key)
{
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    size_t   at = (size_t)(h ^ h >> 32) & (t->n_slots - 1);
    while (t->slots[at] != GM_NO_ID && t->pairs[t->slots[at]].key != key) at = (at + 1) & (t->n_slots - 1);
    return at;
}

static gm_status pair_of(gm_bpe_train *t, uint64_t key, pair **out)
{
    if (2 * (t->n_pairs + 1) > t->n_slots) {
        size_t wanted = t->n_slots ? 2 * t->n_slots : 1024;
        free(t->slots);
        t->slots = malloc(wanted * sizeof *t->slots);
        t->n_slots = t->slots ? wanted : 0;
        if (!t->slots) return GM_FAIL(GM_ENOMEM, "no memory to train a tokenizer");
        memset(t->slots, 0xff, wanted * sizeof *t->slots);
        for (size_t i = 0; i < t->n_pairs; i++) t->slots[slot_of(t, t->pairs[i].key)] = (uint32_t)i;
    }
    size_t at = slot_of(t, key);
    if (t->slots[at] == GM_NO_ID) {
        GM_TRY(more((void **)&t->pairs, &t->room_pairs, t->n_pairs, sizeof *t->pairs));
        t->pairs[t->n_pairs] = (pair){key, 0, GM_NO_ID};
        t->slots[at] = (uint32_t)t->n_pairs++;
    }
    *out = &t->pairs[t->slots[at]];
    return GM_OK;
}

/* A pair in a word is `sign` times more there; where it is more, the word joins the pair's next entry. */
static gm_status change(gm_bpe_train *t, uint32_t left, uint32_t right, int sign, uint32_t w)
{
    pair *p;
    GM_TRY(pair_of(t, (uint64_t)left << 32 | right, &p));
    p->count += sign * (int64_t)t->list[w].count;
    if (sign < 0) return GM_OK;
    if (p->list == GM_NO_ID) {
        GM_TRY(more((void **)&t->made, &t->room_made, t->n_made, sizeof *t->made));
        t->made[t->n_made] = (entry){.key = p->key};
        p->list = (uint32_t)t->n_made++;
    }
    gm_text_ids *words = &t->made[p->list].words;
    return words->n && words->data[words->n - 1] == w ? GM_OK : gm_ids_add(words, w);
}

/* ---- the queue ---- */

static bool sooner(const entry *a, const entry *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static gm_status push(gm_bpe_train *t, entry e)
{
    GM_TRY(more((void **)&t->queue, &t->room_queue, t->n_queue, sizeof *t->queue));
    size_t i = t->n_queue++;
    for (; i && sooner(&e, &t->queue[(i - 1) / 2]); i = (i - 1) / 2) t->queue[i] = t->queue[(i - 1) / 2];
    t->queue[i] = e;
    return GM_OK;
}

static entry pop(gm_bpe_train *t)
{
    entry  first = t->queue[0], e = t->queue[--t->n_queue];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < t->n_queue; i = k) {
        if (k + 1 < t->n_queue && sooner(&t->queue[k + 1], &t->queue[k])) k++;
        if (!sooner(&t->queue[k], &e)) break;
        t->queue[i] = t->queue[k];
    }
    t->queue[i] = e;
    return first;
}

/* The entries that were made enter the queue, with the counts of now. */
static gm_status enter(gm_bpe_train *t)
{
    gm_status st = GM_OK;
    for (size_t i = 0; i < t->n_made; i++) {
        pair *p = NULL;
        if (st == GM_OK) st = pair_of(t, t->made[i].key, &p);
        if (p) p->list = GM_NO_ID;
        if (st == GM_OK && p->count > 0) {
            t->made[i].count = (uint64_t)p->count;
            st = push(t, t->made[i]);
        } else gm_ids_free(&t->made[i].words);
    }
    t->n_made = 0;
    return st;
}

/* ---- merging ---- */

static gm_status merge_in(gm_bpe_train *t, uint32_t w, uint32_t left, uint32_t right, uint32_t id)
{
    word     *x = &t->list[w];
    uint32_t *s = t->symbols.data + x->at;
    for (uint32_t i = 0; i + 1 < x->n; i++) {
        if (s[i] != left || s[i + 1] != right) continue;
        if (i) {
            GM_TRY(change(t, s[i - 1], left, -1, w));
            GM_TRY(change(t, s[i - 1], id, 1, w));
        }
        if (i + 2 < x->n) {
            GM_TRY(change(t, right, s[i + 2], -1, w));
            GM_TRY(change(t, id, s[i + 2], 1, w));
        }
        pair *p;
        GM_TRY(pair_of(t, (uint64_t)left << 32 | right, &p));
        p->count -= (int64_t)x->count;
        s[i] = id;
        memmove(s + i + 1, s + i + 2, (x->n - i - 2) * sizeof *s);
        x->n--;
    }
    return GM_OK;
}

static gm_status new_token(gm_bpe_train *t, uint32_t left, uint32_t right, uint32_t *id)
{
    gm_text_bytes   text = {0};
    size_t          n_left, n_right;
    const gm_vocab *v = &t->vocab;
    const char     *a = v->block.data + v->entries[left].at, *b = v->block.data + v->entries[right].at;
    n_left = v->entries[left].n, n_right = v->entries[right].n;
    json_t   *both = json_pack("[s%,s%]", a, n_left, b, n_right);
    gm_status st = both && !json_array_append_new(t->merges, both) ? GM_OK
                                                                   : GM_FAIL(GM_ENOMEM, "no memory for a merge");
    if (st == GM_OK) st = gm_text_add(&text, a, n_left);
    if (st == GM_OK) st = gm_text_add(&text, b, n_right);
    if (st == GM_OK) {
        *id = gm_vocab_find(v, text.data, text.n);
        if (*id == GM_NO_ID) {
            *id = (uint32_t)v->n_entries;
            st = gm_vocab_add(&t->vocab, text.data, text.n, *id);
        }
    }
    gm_text_free(&text);
    return st;
}

static gm_status merge_all(gm_bpe_train *t, const gm_bpe_train_options *o)
{
    while (t->n_queue && t->vocab.n_entries < o->size) {
        pair     *p;
        entry     top = pop(t);
        uint32_t  left = (uint32_t)(top.key >> 32), right = (uint32_t)top.key, id = 0;
        gm_status st = pair_of(t, top.key, &p);
        if (st == GM_OK && (int64_t)top.count != p->count) {
            top.count = p->count > 0 ? (uint64_t)p->count : 0;
            st = push(t, top);
            if (st == GM_OK) continue;
        }
        bool enough = top.count >= 1 && top.count >= o->frequency;
        if (st == GM_OK && enough) st = new_token(t, left, right, &id);
        for (size_t i = 0; st == GM_OK && enough && i < top.words.n; i++)
            st = merge_in(t, top.words.data[i], left, right, id);
        gm_ids_free(&top.words);
        if (st == GM_OK) st = enter(t);
        if (st != GM_OK) return st;
        if (!enough) break;
    }
    return GM_OK;
}

/* Special tokens, then bytes in the order of their characters. */
static gm_status begin(gm_bpe_train *t, const gm_bpe_train_options *o, uint32_t *bytes)
{
    char text[4];
    for (int i = 0; i < o->n_special; i++) {
        GM_TRY(gm_vocab_add(&t->vocab, o->special[i], strlen(o->special[i]), (uint32_t)i));
        if (t->vocab.n_entries != (size_t)i + 1) return GM_FAIL(GM_EINVAL, "a special token is empty or there twice");
    }
    for (uint32_t c = 0; c < 512; c++) {
        int b = gm_char_byte(c);
        if (b < 0) continue;
        int n = gm_char_write(c, text);
        bytes[b] = gm_vocab_find(&t->vocab, text, (size_t)n);
        if (bytes[b] != GM_NO_ID) continue;
        bytes[b] = (uint32_t)t->vocab.n_entries;
        GM_TRY(gm_vocab_add(&t->vocab, text, (size_t)n, bytes[b]));
    }
    return GM_OK;
}

static gm_status split_words(gm_bpe_train *t, const uint32_t *bytes)
{
    t->list = calloc(t->words.n_entries + 1, sizeof *t->list);
    if (!t->list) return GM_FAIL(GM_ENOMEM, "no memory to train a tokenizer");
    for (size_t i = 0; i < t->words.n_entries; i++) {
        const gm_vocab_entry *e = &t->words.entries[i];
        t->list[i] = (word){t->symbols.n, e->n, t->counts[i]};
        for (uint32_t k = 0; k < e->n; k++)
            GM_TRY(gm_ids_add(&t->symbols, bytes[(unsigned char)t->words.block.data[e->at + k]]));
    }
    for (size_t i = 0; i < t->words.n_entries; i++)
        for (uint32_t k = 0; k + 1 < t->list[i].n; k++) {
            const uint32_t *s = t->symbols.data + t->list[i].at + k;
            GM_TRY(change(t, s[0], s[1], 1, (uint32_t)i));
        }
    return enter(t);
}

static json_t *document(gm_bpe_train *t, const gm_bpe_train_options *o)
{
    json_t *vocab = json_object(), *added = json_array();
    for (size_t i = 0; i < t->vocab.n_entries; i++) {
        const gm_vocab_entry *e = &t->vocab.entries[i];
        char                 *name = strndup(t->vocab.block.data + e->at, e->n);
        if (!name || json_object_set_new(vocab, name, json_integer((json_int_t)e->id)))
            i = t->vocab.n_entries, json_decref(vocab), vocab = NULL;
        free(name);
    }
    for (int i = 0; i < o->n_special; i++)
        json_array_append_new(added,
                              json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", i, "content", o->special[i],
                                        "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1));
    json_t *level = json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1,
                              "use_regex", 1);
    return json_pack("{s:s,s:n,s:n,s:o,s:n,s:O,s:n,s:o,s:{s:s,s:n,s:n,s:n,s:n,s:b,s:b,s:b,s:o,s:O}}", "version", "1.0",
                     "truncation", "padding", "added_tokens", added, "normalizer", "pre_tokenizer", level,
                     "post_processor", "decoder", level, "model", "type", "BPE", "dropout", "unk_token",
                     "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                     "ignore_merges", 0, "vocab", vocab, "merges", t->merges);
}

gm_status gm_bpe_train_run(gm_bpe_train *t, const gm_bpe_train_options *o, gm_text_bytes *out, size_t *size)
{
    uint32_t bytes[256];
    if (o->size < 256 + (size_t)o->n_special)
        return GM_FAIL(GM_EINVAL, "a vocabulary of %zu has no room for 256 bytes and %d special tokens", o->size,
                       o->n_special);
    if (!(t->merges = json_array())) return GM_FAIL(GM_ENOMEM, "no memory to train a tokenizer");
    GM_TRY(begin(t, o, bytes));
    GM_TRY(split_words(t, bytes));
    GM_TRY(merge_all(t, o));
    json_t *root = document(t, o);
    char   *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    gm_status st = text ? gm_text_add(out, text, strlen(text)) : GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    free(text);
    *size = t->vocab.n_entries;
    return st;
}
