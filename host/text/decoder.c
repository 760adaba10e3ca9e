/* decoder.c - reads the `decoder` of a tokenizer.json, and runs it; decode.c has the steps. */
#include "decoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"

gm_status gm_text_list_end(gm_text_list *l)
{
    if (l->n == l->room) {
        size_t  room = l->room ? 2 * l->room : 64;
        size_t *p = realloc(l->ends, room * sizeof *p);
        if (!p) return GM_FAIL(GM_ENOMEM, "no memory for %zu texts", room);
        l->ends = p, l->room = room;
    }
    l->ends[l->n++] = l->bytes.n;
    return GM_OK;
}

void gm_text_list_free(gm_text_list *l)
{
    gm_text_free(&l->bytes);
    free(l->ends);
    *l = (gm_text_list){0};
}

gm_status gm_decoder_step(gm_decoder *d, gm_decode **out)
{
    if (d->n == d->room) {
        int        room = d->room ? 2 * d->room : 4;
        gm_decode *p = realloc(d->steps, (size_t)room * sizeof *p);
        if (!p) return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
        d->steps = p, d->room = room;
    }
    *out = &d->steps[d->n++];
    **out = (gm_decode){0};
    return GM_OK;
}

void gm_decoder_free(gm_decoder *d)
{
    for (int i = 0; i < d->n; i++) {
        gm_regex_free(d->steps[i].pattern);
        free(d->steps[i].text);
        free(d->steps[i].literal);
    }
    free(d->steps);
    *d = (gm_decoder){0};
}

/* ---- reading ---- */

static gm_status take(const gm_fields *f, const char *name, const char *otherwise, gm_decode *s)
{
    const char *text;
    GM_TRY(gm_fields_text(f, name, otherwise == NULL, &text, &s->n));
    if (!text && otherwise) text = otherwise, s->n = strlen(otherwise);
    if (!text) return GM_FAIL(GM_EINVAL, "%s: has no '%s'", f->where, name);
    return gm_text_copy(text, s->n, &s->text);
}

static gm_status read_plain(const gm_fields *f, gm_decode *s)
{
    (void)s;
    return gm_fields_only(f, "type");
}

static gm_status read_byte_level(const gm_fields *f, gm_decode *s)
{
    (void)s;
    return gm_fields_only(f, "type add_prefix_space trim_offsets use_regex");
}

static gm_status read_wordpiece(const gm_fields *f, gm_decode *s)
{
    GM_TRY(gm_fields_only(f, "type prefix cleanup"));
    GM_TRY(gm_fields_flag(f, "cleanup", true, &s->flag));
    return take(f, "prefix", "##", s);
}

static gm_status read_metaspace(const gm_fields *f, gm_decode *s)
{
    const char *scheme;
    size_t      n;
    bool        prefix;
    GM_TRY(gm_fields_only(f, "type replacement str_rep add_prefix_space prepend_scheme split"));
    GM_TRY(gm_fields_flag(f, "add_prefix_space", true, &prefix));
    GM_TRY(gm_fields_text(f, "prepend_scheme", false, &scheme, &n));
    if (scheme && strcmp(scheme, "never") && strcmp(scheme, "first") && strcmp(scheme, "always"))
        return GM_FAIL(GM_EINVAL, "%s.prepend_scheme: '%.40s' is not known; known are: never first always", f->where,
                       scheme);
    s->flag = scheme ? strcmp(scheme, "never") != 0 : prefix;
    GM_TRY(take(f, "replacement", NULL, s));
    return s->n ? GM_OK : GM_FAIL(GM_EINVAL, "%s.replacement: is empty", f->where);
}

static gm_status read_bpe(const gm_fields *f, gm_decode *s)
{
    GM_TRY(gm_fields_only(f, "type suffix"));
    return take(f, "suffix", "</w>", s);
}

static gm_status read_strip(const gm_fields *f, gm_decode *s)
{
    GM_TRY(gm_fields_only(f, "type content start stop"));
    GM_TRY(gm_fields_number(f, "start", 0, 0, INT32_MAX, &s->start));
    GM_TRY(gm_fields_number(f, "stop", 0, 0, INT32_MAX, &s->stop));
    GM_TRY(take(f, "content", NULL, s));
    return s->n ? GM_OK : GM_FAIL(GM_EINVAL, "%s.content: is empty", f->where);
}

static gm_status read_replace(const gm_fields *f, gm_decode *s)
{
    GM_TRY(gm_fields_only(f, "type pattern content"));
    GM_TRY(take(f, "content", NULL, s));
    return gm_pattern_read(f, &s->pattern, &s->literal, &s->n_literal);
}

static gm_status read_step(const gm_fields *f, gm_decoder *d, int depth);

static gm_status read_sequence(const gm_fields *f, gm_decoder *d, int depth)
{
    json_t *list;
    char    name[48];
    GM_TRY(gm_fields_only(f, "type decoders"));
    GM_TRY(gm_fields_list(f, "decoders", &list));
    if (depth > 8) return GM_FAIL(GM_EINVAL, "%s: is nested too deeply", f->where);
    for (size_t i = 0; i < json_array_size(list); i++) {
        gm_fields inner;
        snprintf(name, sizeof name, "decoders.%zu", i);
        GM_TRY(gm_fields_of(f, name, json_array_get(list, i), &inner));
        GM_TRY(read_step(&inner, d, depth + 1));
    }
    return GM_OK;
}

static gm_status read_step(const gm_fields *f, gm_decoder *d, int depth)
{
    static const struct {
        const char    *name;
        gm_decode_kind kind;
        gm_status (*read)(const gm_fields *f, gm_decode *s);
    } kinds[] = {{"ByteLevel", GM_DECODE_BYTE_LEVEL, read_byte_level},
                 {"WordPiece", GM_DECODE_WORDPIECE, read_wordpiece},
                 {"Metaspace", GM_DECODE_METASPACE, read_metaspace},
                 {"BPEDecoder", GM_DECODE_BPE, read_bpe},
                 {"ByteFallback", GM_DECODE_BYTE_FALLBACK, read_plain},
                 {"Fuse", GM_DECODE_FUSE, read_plain},
                 {"Strip", GM_DECODE_STRIP, read_strip},
                 {"Replace", GM_DECODE_REPLACE, read_replace}};
    const char *type;
    size_t      n;
    GM_TRY(gm_fields_text(f, "type", true, &type, &n));
    if (!strcmp(type, "Sequence")) return read_sequence(f, d, depth);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i].name)) {
            gm_decode *s = NULL;
            GM_TRY(gm_decoder_step(d, &s));
            s->kind = kinds[i].kind;
            return kinds[i].read(f, s);
        }
    return GM_FAIL(GM_EINVAL, "%s: the type '%.60s' is not known here", f->where, type);
}

gm_status gm_decoder_read(const gm_fields *f, gm_decoder *d)
{
    d->there = true;
    return read_step(f, d, 0);
}

/* ---- running ---- */

gm_status gm_decoder_run(const gm_decoder *d, gm_text_list *tokens, gm_text_bytes *out)
{
    gm_text_list    next = {0}, swap;
    gm_regex_match *m = NULL;
    gm_status       st = gm_regex_match_new(&m);
    tokens->bytes.most = next.bytes.most = GM_TEXT_MOST(tokens->bytes.n);
    for (int i = 0; st == GM_OK && i < d->n; i++) {
        next.bytes.n = next.n = 0;
        st = gm_decode_step(&d->steps[i], m, tokens, &next);
        swap = next, next = *tokens, *tokens = swap;
    }
    for (size_t i = 0, at = 0; st == GM_OK && i < tokens->n; at = tokens->ends[i++]) {
        if (i && !d->there) st = gm_text_add(out, " ", 1);
        if (st == GM_OK) st = gm_text_add(out, tokens->bytes.data + at, tokens->ends[i] - at);
    }
    gm_regex_match_free(m);
    gm_text_list_free(&next);
    return st;
}
