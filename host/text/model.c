/* model.c - see model.h; and WordLevel, the model of one line. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Older files do not name the kind; the fields tell it, as they do to Python's reader. */
static const char *kind_of(const gm_fields *f)
{
    if (json_object_get(f->object, "merges")) return "BPE";
    if (json_is_array(json_object_get(f->object, "vocab"))) return "Unigram";
    return json_object_get(f->object, "max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

gm_status gm_model_read(const gm_fields *f, gm_model **out)
{
    static const struct {
        const char *name;
        gm_status (*read)(const gm_fields *f, gm_model **out);
    } kinds[] = {{"BPE", gm_bpe_read},
                 {"WordPiece", gm_wordpiece_read},
                 {"Unigram", gm_unigram_read},
                 {"WordLevel", gm_wordlevel_read}};
    const char *type;
    size_t      n;
    GM_TRY(gm_fields_text(f, "type", false, &type, &n));
    if (!type) type = kind_of(f);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, type)) return kinds[i].read(f, out);
    return GM_FAIL(GM_EINVAL, "%s: the type '%.60s' is not known here; known are: BPE WordPiece Unigram WordLevel",
                   f->where, type);
}

void gm_model_free(gm_model *m)
{
    if (!m) return;
    gm_vocab_free(&m->vocab);
    m->free(m);
}

void gm_model_work_free(gm_model_work *w)
{
    gm_text_free(&w->text);
    free(w->symbols);
    free(w->queue);
    *w = (gm_model_work){0};
}

static gm_status room(void **p, size_t *have, size_t bytes)
{
    if (bytes <= *have) return GM_OK;
    size_t wanted = bytes < SIZE_MAX / 2 ? bytes + bytes / 2 : bytes;
    free(*p);
    *p = malloc(wanted);
    *have = *p ? wanted : 0;
    return *p ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for %zu bytes to cut a text", wanted);
}

gm_status gm_model_symbols(gm_model_work *w, size_t bytes) { return room(&w->symbols, &w->room, bytes); }

gm_status gm_model_queue(gm_model_work *w, size_t bytes) { return room(&w->queue, &w->queue_room, bytes); }

gm_status gm_model_vocab(const gm_fields *f, gm_vocab *v)
{
    json_t     *object, *id;
    const char *key;
    GM_TRY(gm_fields_object(f, "vocab", &object));
    json_object_foreach(object, key, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= INT32_MAX)
            return GM_FAIL(GM_EINVAL, "%s.vocab: the number of '%.60s' is no number of a token", f->where, key);
        GM_TRY(gm_vocab_add(v, key, strlen(key), (uint32_t)json_integer_value(id)));
    }
    gm_status st = gm_vocab_index(v);
    return st == GM_OK ? st : gm_fields_wrong(f, st);
}

void gm_byte_tokens(const gm_vocab *v, uint32_t *ids)
{
    char name[8];
    for (unsigned b = 0; b < 256; b++) {
        int n = snprintf(name, sizeof name, "<0x%02X>", b);
        ids[b] = gm_vocab_find(v, name, (size_t)n);
    }
}

/* ---- WordLevel: a piece is a token, or it is unknown ---- */

typedef struct wordlevel {
    gm_model base;
    uint32_t unknown; /* GM_NO_ID: there is none */
} wordlevel;

static gm_status cut_word(const gm_model *m, gm_model_work *w, const char *text, size_t n, gm_text_ids *out)
{
    (void)w;
    uint32_t id = gm_vocab_find(&m->vocab, text, n);
    if (id == GM_NO_ID) id = ((const wordlevel *)m)->unknown;
    if (id == GM_NO_ID)
        return GM_FAIL(GM_EINVAL, "'%.*s' is no token, and the vocabulary has no token for what is unknown",
                       n < 60 ? (int)n : 60, text);
    return gm_ids_add(out, id);
}

static void free_word(gm_model *m) { free(m); }

gm_status gm_wordlevel_read(const gm_fields *f, gm_model **out)
{
    const char *unknown;
    size_t      n;
    GM_TRY(gm_fields_only(f, "type vocab unk_token"));
    GM_TRY(gm_fields_text(f, "unk_token", true, &unknown, &n));
    wordlevel *m = calloc(1, sizeof *m);
    if (!m) return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    m->base = (gm_model){.name = "WordLevel", .cut = cut_word, .free = free_word};
    gm_status st = gm_model_vocab(f, &m->base.vocab);
    m->unknown = st == GM_OK ? gm_vocab_find(&m->base.vocab, unknown, n) : GM_NO_ID;
    if (st == GM_OK) *out = &m->base;
    else gm_model_free(&m->base);
    return st;
}
