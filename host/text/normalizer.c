/* normalizer.c - reads the `normalizer` of a tokenizer.json, and runs its steps; normal.c has the steps. */
#include "normalizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base64.h"

gm_status gm_normalizer_step(gm_normalizer *z, gm_normal **out)
{
    if (z->n == z->room) {
        int        room = z->room ? 2 * z->room : 4;
        gm_normal *p = realloc(z->steps, (size_t)room * sizeof *p);
        if (!p) return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
        z->steps = p, z->room = room;
    }
    *out = &z->steps[z->n++];
    **out = (gm_normal){0};
    return GM_OK;
}

void gm_normalizer_free(gm_normalizer *z)
{
    for (int i = 0; i < z->n; i++) {
        gm_normal *s = &z->steps[i];
        gm_regex_free(s->pattern);
        gm_charsmap_free(&s->map);
        gm_trie_free(&s->user);
        free(s->text);
        free(s->literal);
    }
    free(z->steps);
    *z = (gm_normalizer){0};
}

/* ---- reading ---- */

static gm_status read_plain(const gm_fields *f, gm_normal *s)
{
    (void)s;
    return gm_fields_only(f, "type");
}

static gm_status read_strip(const gm_fields *f, gm_normal *s)
{
    GM_TRY(gm_fields_only(f, "type strip_left strip_right"));
    GM_TRY(gm_fields_flag(f, "strip_left", true, &s->left));
    return gm_fields_flag(f, "strip_right", true, &s->right);
}

static gm_status read_bert(const gm_fields *f, gm_normal *s)
{
    GM_TRY(gm_fields_only(f, "type clean_text handle_chinese_chars strip_accents lowercase"));
    GM_TRY(gm_fields_flag(f, "clean_text", true, &s->clean));
    GM_TRY(gm_fields_flag(f, "handle_chinese_chars", true, &s->chinese));
    GM_TRY(gm_fields_flag(f, "lowercase", true, &s->lower));
    return gm_fields_flag(f, "strip_accents", s->lower, &s->accents);
}

static gm_status read_prepend(const gm_fields *f, gm_normal *s)
{
    const char *text;
    size_t      n;
    GM_TRY(gm_fields_only(f, "type prepend"));
    GM_TRY(gm_fields_text(f, "prepend", true, &text, &n));
    s->n = n;
    return gm_text_copy(text, n, &s->text);
}

static gm_status read_replace(const gm_fields *f, gm_normal *s)
{
    const char *text;
    size_t      n;
    GM_TRY(gm_fields_only(f, "type pattern content"));
    GM_TRY(gm_fields_text(f, "content", true, &text, &n));
    s->n = n;
    GM_TRY(gm_text_copy(text, n, &s->text));
    return gm_pattern_read(f, &s->pattern, &s->literal, &s->n_literal);
}

static gm_status read_charsmap(const gm_fields *f, gm_normal *s)
{
    const char   *text;
    size_t        n;
    gm_text_bytes bytes = {0};
    GM_TRY(gm_fields_only(f, "type precompiled_charsmap"));
    GM_TRY(gm_fields_text(f, "precompiled_charsmap", false, &text, &n));
    gm_status st = text ? gm_base64_read(text, n, &bytes) : GM_OK;
    if (st == GM_OK) st = gm_charsmap_read((const unsigned char *)bytes.data, bytes.n, &s->map);
    gm_text_free(&bytes);
    return st == GM_OK ? st : gm_fields_wrong(f, st);
}

static const struct {
    const char    *name;
    gm_normal_kind kind;
    gm_status (*read)(const gm_fields *f, gm_normal *s);
} kinds[] = {
    {"NFC", GM_NORMAL_NFC, read_plain},
    {"NFD", GM_NORMAL_NFD, read_plain},
    {"NFKC", GM_NORMAL_NFKC, read_plain},
    {"NFKD", GM_NORMAL_NFKD, read_plain},
    {"Lowercase", GM_NORMAL_LOWERCASE, read_plain},
    {"Strip", GM_NORMAL_STRIP, read_strip},
    {"StripAccents", GM_NORMAL_STRIP_ACCENTS, read_plain},
    {"BertNormalizer", GM_NORMAL_BERT, read_bert},
    {"Prepend", GM_NORMAL_PREPEND, read_prepend},
    {"Replace", GM_NORMAL_REPLACE, read_replace},
    {"Nmt", GM_NORMAL_NMT, read_plain},
    {"Precompiled", GM_NORMAL_CHARSMAP, read_charsmap},
    {"ByteLevel", GM_NORMAL_BYTE_LEVEL, read_plain},
};

static gm_status read_step(const gm_fields *f, gm_normalizer *z, int depth);

static gm_status read_sequence(const gm_fields *f, gm_normalizer *z, int depth)
{
    json_t *list;
    char    name[48];
    GM_TRY(gm_fields_only(f, "type normalizers"));
    GM_TRY(gm_fields_list(f, "normalizers", &list));
    if (depth > 8) return GM_FAIL(GM_EINVAL, "%s: is nested too deeply", f->where);
    for (size_t i = 0; i < json_array_size(list); i++) {
        gm_fields inner;
        snprintf(name, sizeof name, "normalizers.%zu", i);
        GM_TRY(gm_fields_of(f, name, json_array_get(list, i), &inner));
        GM_TRY(read_step(&inner, z, depth + 1));
    }
    return GM_OK;
}

static gm_status read_step(const gm_fields *f, gm_normalizer *z, int depth)
{
    const char *type;
    size_t      n;
    GM_TRY(gm_fields_text(f, "type", true, &type, &n));
    if (!strcmp(type, "Sequence")) return read_sequence(f, z, depth);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i].name)) {
            gm_normal *s = NULL;
            GM_TRY(gm_normalizer_step(z, &s));
            s->kind = kinds[i].kind;
            return kinds[i].read(f, s);
        }
    return GM_FAIL(GM_EINVAL, "%s: the type '%.60s' is not known here", f->where, type);
}

gm_status gm_normalizer_read(const gm_fields *f, gm_normalizer *z) { return read_step(f, z, 0); }

/* ---- running ---- */

gm_status gm_normalize(const gm_normalizer *z, gm_regex_match *m, const char *text, size_t n, gm_text_bytes *one,
                       gm_text_bytes *two, bool *leading)
{
    *leading = true;
    two->n = 0;
    one->most = two->most = GM_TEXT_MOST(n);
    if (!z->n) return gm_text_add(two, text, n);
    for (int i = 0; i < z->n; i++) {
        gm_text_bytes swap = *one;
        one->n = 0;
        GM_TRY(gm_normal_apply(&z->steps[i], m, i ? two->data : text, i ? two->n : n, one, leading));
        swap = *one, *one = *two, *two = swap;
    }
    return GM_OK;
}
