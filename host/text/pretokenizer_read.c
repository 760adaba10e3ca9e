/* pretokenizer_read.c - reads the `pre_tokenizer` of a tokenizer.json (pretokenizer.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pretokenizer.h"
#include "unicode.h"

/* What GPT-2 cuts by. */
static const char words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

gm_status gm_pretokenizer_step(gm_pretokenizer *p, gm_cut **out)
{
    if (p->n == GM_CUT_DEPTH) return GM_FAIL(GM_EINVAL, "has more than %d steps", GM_CUT_DEPTH);
    if (!p->steps && !(p->steps = calloc(GM_CUT_DEPTH, sizeof *p->steps)))
        return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    *out = &p->steps[p->n++];
    return GM_OK;
}

void gm_pretokenizer_free(gm_pretokenizer *p)
{
    for (int i = 0; i < p->n; i++) {
        gm_regex_free(p->steps[i].pattern);
        free(p->steps[i].literal);
    }
    free(p->steps);
    *p = (gm_pretokenizer){0};
}

static gm_status add(const gm_fields *f, gm_pretokenizer *p, gm_cut_kind kind, gm_cut **out)
{
    gm_status st = gm_pretokenizer_step(p, out);
    if (st != GM_OK) return gm_fields_wrong(f, st);
    (*out)->kind = kind;
    return GM_OK;
}

static gm_status read_behavior(const gm_fields *f, gm_behavior otherwise, gm_behavior *out)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char              *text;
    size_t                   n;
    *out = otherwise;
    GM_TRY(gm_fields_text(f, "behavior", false, &text, &n));
    if (!text) return GM_OK;
    for (int i = 0; i < 5; i++)
        if (!strcmp(names[i], text)) return *out = (gm_behavior)i, GM_OK;
    return GM_FAIL(GM_EINVAL,
                   "%s.behavior: '%.40s' is not known; known are: Removed Isolated MergedWithPrevious "
                   "MergedWithNext Contiguous",
                   f->where, text);
}

/* Two steps: one that cuts, one that maps bytes to characters. */
static gm_status read_byte_level(const gm_fields *f, gm_pretokenizer *p)
{
    gm_cut *c = NULL;
    bool    cuts;
    GM_TRY(gm_fields_only(f, "type add_prefix_space trim_offsets use_regex"));
    GM_TRY(add(f, p, GM_CUT_BYTE_LEVEL, &c));
    c->behavior = GM_ISOLATED;
    GM_TRY(gm_fields_flag(f, "add_prefix_space", true, &c->prefix));
    GM_TRY(gm_fields_flag(f, "use_regex", true, &cuts));
    if (cuts) GM_TRY(gm_regex_new(words, sizeof words - 1, false, &c->pattern));
    GM_TRY(add(f, p, GM_CUT_BYTE_LEVEL, &c));
    c->maps = true;
    return GM_OK;
}

static gm_status read_split(const gm_fields *f, gm_pretokenizer *p)
{
    gm_cut *c = NULL;
    GM_TRY(gm_fields_only(f, "type pattern behavior invert"));
    GM_TRY(add(f, p, GM_CUT_PATTERN, &c));
    GM_TRY(gm_fields_flag(f, "invert", false, &c->invert));
    if (!json_object_get(f->object, "behavior")) return GM_FAIL(GM_EINVAL, "%s: has no 'behavior'", f->where);
    GM_TRY(read_behavior(f, GM_ISOLATED, &c->behavior));
    return gm_pattern_read(f, &c->pattern, &c->literal, &c->n_literal);
}

static gm_status read_chars(const gm_fields *f, gm_pretokenizer *p, bool (*match)(uint32_t c), gm_behavior behavior)
{
    gm_cut *c = NULL;
    GM_TRY(add(f, p, GM_CUT_CHARS, &c));
    c->match = match, c->behavior = behavior;
    return GM_OK;
}

static gm_status read_whitespace(const gm_fields *f, gm_pretokenizer *p)
{
    gm_cut *c = NULL;
    GM_TRY(gm_fields_only(f, "type"));
    return add(f, p, GM_CUT_WORDS, &c);
}

static gm_status read_whitespace_split(const gm_fields *f, gm_pretokenizer *p)
{
    GM_TRY(gm_fields_only(f, "type"));
    return read_chars(f, p, gm_char_space, GM_REMOVED);
}

static gm_status read_bert(const gm_fields *f, gm_pretokenizer *p)
{
    GM_TRY(read_whitespace_split(f, p));
    return read_chars(f, p, gm_char_punctuation, GM_ISOLATED);
}

static gm_status read_punctuation(const gm_fields *f, gm_pretokenizer *p)
{
    gm_behavior behavior = GM_ISOLATED;
    GM_TRY(gm_fields_only(f, "type behavior"));
    GM_TRY(read_behavior(f, GM_ISOLATED, &behavior));
    return read_chars(f, p, gm_char_punctuation, behavior);
}

static gm_status read_digits(const gm_fields *f, gm_pretokenizer *p)
{
    bool each;
    GM_TRY(gm_fields_only(f, "type individual_digits"));
    GM_TRY(gm_fields_flag(f, "individual_digits", false, &each));
    return read_chars(f, p, gm_char_number, each ? GM_ISOLATED : GM_CONTIGUOUS);
}

static gm_status read_delimiter(const gm_fields *f, gm_pretokenizer *p)
{
    gm_cut     *c = NULL;
    const char *text;
    GM_TRY(gm_fields_only(f, "type delimiter"));
    GM_TRY(add(f, p, GM_CUT_PATTERN, &c));
    GM_TRY(gm_fields_text(f, "delimiter", true, &text, &c->n_literal));
    if (!c->n_literal) return GM_FAIL(GM_EINVAL, "%s.delimiter: is empty", f->where);
    c->behavior = GM_REMOVED;
    return gm_text_copy(text, c->n_literal, &c->literal);
}

static gm_status read_scheme(const gm_fields *f, int *out)
{
    static const char *const names[] = {"never", "first", "always"};
    const char              *text;
    size_t                   n;
    bool                     prefix;
    GM_TRY(gm_fields_flag(f, "add_prefix_space", true, &prefix));
    *out = prefix ? 2 : 0;
    GM_TRY(gm_fields_text(f, "prepend_scheme", false, &text, &n));
    if (!text) return GM_OK;
    for (int i = 0; i < 3; i++)
        if (!strcmp(names[i], text)) return *out = i, GM_OK;
    return GM_FAIL(GM_EINVAL, "%s.prepend_scheme: '%.40s' is not known; known are: never first always", f->where, text);
}

static gm_status read_metaspace(const gm_fields *f, gm_pretokenizer *p)
{
    gm_cut     *c = NULL;
    const char *text;
    GM_TRY(gm_fields_only(f, "type replacement str_rep add_prefix_space prepend_scheme split"));
    GM_TRY(add(f, p, GM_CUT_METASPACE, &c));
    GM_TRY(gm_fields_text(f, "replacement", true, &text, &c->n_literal));
    if (!c->n_literal) return GM_FAIL(GM_EINVAL, "%s.replacement: is empty", f->where);
    GM_TRY(gm_text_copy(text, c->n_literal, &c->literal));
    c->behavior = GM_MERGED_WITH_NEXT;
    GM_TRY(gm_fields_flag(f, "split", true, &c->split));
    return read_scheme(f, &c->prepend);
}

static gm_status read_step(const gm_fields *f, gm_pretokenizer *p, int depth);

static gm_status read_sequence(const gm_fields *f, gm_pretokenizer *p, int depth)
{
    json_t *list;
    char    name[48];
    GM_TRY(gm_fields_only(f, "type pretokenizers"));
    GM_TRY(gm_fields_list(f, "pretokenizers", &list));
    if (depth > 8) return GM_FAIL(GM_EINVAL, "%s: is nested too deeply", f->where);
    for (size_t i = 0; i < json_array_size(list); i++) {
        gm_fields inner;
        snprintf(name, sizeof name, "pretokenizers.%zu", i);
        GM_TRY(gm_fields_of(f, name, json_array_get(list, i), &inner));
        GM_TRY(read_step(&inner, p, depth + 1));
    }
    return GM_OK;
}

static gm_status read_step(const gm_fields *f, gm_pretokenizer *p, int depth)
{
    static const struct {
        const char *name;
        gm_status (*read)(const gm_fields *f, gm_pretokenizer *p);
    } kinds[] = {{"ByteLevel", read_byte_level},  {"Split", read_split},
                 {"Whitespace", read_whitespace}, {"WhitespaceSplit", read_whitespace_split},
                 {"BertPreTokenizer", read_bert}, {"Punctuation", read_punctuation},
                 {"Digits", read_digits},         {"CharDelimiterSplit", read_delimiter},
                 {"Metaspace", read_metaspace}};
    const char *type;
    size_t      n;
    GM_TRY(gm_fields_text(f, "type", true, &type, &n));
    if (!strcmp(type, "Sequence")) return read_sequence(f, p, depth);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(type, kinds[i].name)) return kinds[i].read(f, p);
    return GM_FAIL(GM_EINVAL, "%s: the type '%.60s' is not known here", f->where, type);
}

gm_status gm_pretokenizer_read(const gm_fields *f, gm_pretokenizer *p)
{
    GM_TRY(read_step(f, p, 0));
    if (p->n && p->steps[p->n - 1].kind == GM_CUT_BYTE_LEVEL && p->steps[p->n - 1].maps) p->bytes = true, p->n--;
    return GM_OK;
}
