/* sentencepiece.c - a tokenizer of a SentencePiece model (sentencepiece.h): its parts, put together. */
#include "sentencepiece.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gm_status add_normalizer(const gm_pieces *p, gm_tokenizer *t)
{
    gm_normal *s = NULL;
    GM_TRY(gm_normalizer_step(&t->normalizer, &s));
    s->kind = GM_NORMAL_SENTENCEPIECE;
    s->dummy_prefix = p->dummy_prefix, s->single_spaces = p->single_spaces;
    s->escape = p->escape, s->suffix = p->suffix;
    for (size_t i = 0; i < p->n; i++)
        if (p->list[i].type == GM_PIECE_USER) GM_TRY(gm_trie_add(&s->user, p->list[i].text, p->list[i].n, (uint32_t)i));
    return gm_charsmap_read((const unsigned char *)p->map, p->n_map, &s->map);
}

/* Control pieces are special; they and the unknown one are never found in a text. */
static gm_status add_special(const gm_pieces *p, gm_tokenizer *t)
{
    t->added.tokens = calloc(p->n + 1, sizeof *t->added.tokens);
    if (!t->added.tokens) return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    for (size_t i = 0; i < p->n; i++) {
        const gm_piece *from = &p->list[i];
        bool            unknown = from->type == GM_PIECE_UNKNOWN;
        if (from->type != GM_PIECE_CONTROL && !unknown) continue;
        gm_added_token *a = &t->added.tokens[t->added.n++];
        *a = (gm_added_token){.id = (uint32_t)i, .n = from->n, .special = true};
        GM_TRY(gm_text_copy(from->text, from->n, &a->text));
        if (!unknown) continue;
        GM_TRY(gm_text_copy(p->unknown_surface, p->n_unknown_surface, &a->shown));
        a->n_shown = p->n_unknown_surface;
    }
    return GM_OK;
}

static gm_status add_decoder(const gm_pieces *p, gm_tokenizer *t)
{
    gm_decode *s = NULL;
    GM_TRY(gm_decoder_step(&t->decoder, &s));
    s->kind = GM_DECODE_SENTENCEPIECE;
    s->flag = p->dummy_prefix || p->single_spaces, s->start = p->single_spaces;
    t->decoder.there = true;
    return GM_OK;
}

gm_status gm_sentencepiece_parse(const char *path, const char *bytes, size_t n, gm_tokenizer **out)
{
    gm_pieces p;
    GM_TRY(gm_pieces_read(path, bytes, n, &p));
    gm_tokenizer *t = calloc(1, sizeof *t);
    gm_status     st = t && (t->path = strdup(path)) ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    gm_fields     f = {0};
    snprintf(f.where, sizeof f.where, "%s", path);
    if (st == GM_OK) st = gm_piece_model_new(&p, &t->model);
    if (st == GM_OK) st = add_normalizer(&p, t);
    if (st == GM_OK) st = add_special(&p, t);
    if (st == GM_OK) st = add_decoder(&p, t);
    if (st == GM_OK) st = gm_processor_plain(&t->processor);
    if (st != GM_OK) st = gm_fields_wrong(&f, st);
    if (st == GM_OK) t->size = p.n;
    free(p.list);
    if (st == GM_OK) *out = t;
    else gm_tokenizer_free(t);
    return st;
}
