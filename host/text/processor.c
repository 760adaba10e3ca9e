/* processor.c - see processor.h. */
#include "processor.h"

#include <stdio.h>
#include <string.h>

void gm_processor_free(gm_processor *p)
{
    gm_ids_free(&p->one);
    gm_ids_free(&p->two);
}

gm_status gm_processor_plain(gm_processor *p)
{
    gm_processor_free(p);
    GM_TRY(gm_ids_add(&p->one, GM_SEQUENCE_A));
    GM_TRY(gm_ids_add(&p->two, GM_SEQUENCE_A));
    return gm_ids_add(&p->two, GM_SEQUENCE_B);
}

/* { "SpecialToken": { "id": text } } by the object special_tokens, or { "Sequence": { "id": "A" } } */
static gm_status read_item(const gm_fields *f, const gm_fields *special, gm_text_ids *out)
{
    gm_fields   inner, token;
    const char *text;
    size_t      n;
    json_t     *ids, *sequence = json_object_get(f->object, "Sequence");
    GM_TRY(gm_fields_only(f, "Sequence SpecialToken"));
    const char *name = sequence ? "Sequence" : "SpecialToken";
    GM_TRY(gm_fields_of(f, name, json_object_get(f->object, name), &inner));
    GM_TRY(gm_fields_only(&inner, "id type_id"));
    GM_TRY(gm_fields_text(&inner, "id", true, &text, &n));
    if (sequence) {
        if (strcmp(text, "A") && strcmp(text, "B")) return GM_FAIL(GM_EINVAL, "%s.id: is neither A nor B", inner.where);
        return gm_ids_add(out, *text == 'A' ? GM_SEQUENCE_A : GM_SEQUENCE_B);
    }
    GM_TRY(gm_fields_of(special, text, json_object_get(special->object, text), &token));
    GM_TRY(gm_fields_list(&token, "ids", &ids));
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= INT32_MAX)
            return GM_FAIL(GM_EINVAL, "%s.ids: has what is no number of a token", token.where);
        GM_TRY(gm_ids_add(out, (uint32_t)json_integer_value(id)));
    }
    return GM_OK;
}

static gm_status read_list(const gm_fields *f, const char *name, const gm_fields *special, gm_text_ids *out)
{
    json_t *list;
    char    place[60];
    out->n = 0;
    GM_TRY(gm_fields_list(f, name, &list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        gm_fields item;
        snprintf(place, sizeof place, "%s.%zu", name, i);
        GM_TRY(gm_fields_of(f, place, json_array_get(list, i), &item));
        GM_TRY(read_item(&item, special, out));
    }
    return GM_OK;
}

static gm_status read_template(const gm_fields *f, gm_processor *p)
{
    gm_fields special;
    GM_TRY(gm_fields_only(f, "type single pair special_tokens"));
    GM_TRY(gm_fields_of(f, "special_tokens", json_object_get(f->object, "special_tokens"), &special));
    GM_TRY(read_list(f, "single", &special, &p->one));
    return read_list(f, "pair", &special, &p->two);
}

/* ["[CLS]", 101] */
static gm_status read_pair(const gm_fields *f, const char *name, uint32_t *id)
{
    const json_t *v = json_object_get(f->object, name), *number = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_integer(number) || json_integer_value(number) < 0 ||
        json_integer_value(number) >= INT32_MAX)
        return GM_FAIL(GM_EINVAL, "%s.%s: is no text and number of a token", f->where, name);
    *id = (uint32_t)json_integer_value(number);
    return GM_OK;
}

static gm_status add_all(gm_text_ids *to, const uint32_t *ids, int n)
{
    to->n = 0;
    for (int i = 0; i < n; i++) GM_TRY(gm_ids_add(to, ids[i]));
    return GM_OK;
}

static gm_status read_bert(const gm_fields *f, gm_processor *p)
{
    uint32_t sep, cls;
    GM_TRY(gm_fields_only(f, "type sep cls"));
    GM_TRY(read_pair(f, "sep", &sep));
    GM_TRY(read_pair(f, "cls", &cls));
    GM_TRY(add_all(&p->one, (uint32_t[]){cls, GM_SEQUENCE_A, sep}, 3));
    return add_all(&p->two, (uint32_t[]){cls, GM_SEQUENCE_A, sep, GM_SEQUENCE_B, sep}, 5);
}

static gm_status read_roberta(const gm_fields *f, gm_processor *p)
{
    uint32_t sep, cls;
    GM_TRY(gm_fields_only(f, "type sep cls trim_offsets add_prefix_space"));
    GM_TRY(read_pair(f, "sep", &sep));
    GM_TRY(read_pair(f, "cls", &cls));
    GM_TRY(add_all(&p->one, (uint32_t[]){cls, GM_SEQUENCE_A, sep}, 3));
    return add_all(&p->two, (uint32_t[]){cls, GM_SEQUENCE_A, sep, sep, GM_SEQUENCE_B, sep}, 6);
}

static gm_status read_step(const gm_fields *f, gm_processor *p, int *adds, int depth);

static gm_status read_sequence(const gm_fields *f, gm_processor *p, int *adds, int depth)
{
    json_t *list;
    char    name[48];
    GM_TRY(gm_fields_only(f, "type processors"));
    GM_TRY(gm_fields_list(f, "processors", &list));
    if (depth > 8) return GM_FAIL(GM_EINVAL, "%s: is nested too deeply", f->where);
    for (size_t i = 0; i < json_array_size(list); i++) {
        gm_fields inner;
        snprintf(name, sizeof name, "processors.%zu", i);
        GM_TRY(gm_fields_of(f, name, json_array_get(list, i), &inner));
        GM_TRY(read_step(&inner, p, adds, depth + 1));
    }
    return GM_OK;
}

static gm_status read_step(const gm_fields *f, gm_processor *p, int *adds, int depth)
{
    const char *type;
    size_t      n;
    GM_TRY(gm_fields_text(f, "type", true, &type, &n));
    if (!strcmp(type, "Sequence")) return read_sequence(f, p, adds, depth);
    if (!strcmp(type, "ByteLevel"))
        return gm_fields_only(f, "type add_prefix_space trim_offsets use_regex"); /* offsets */
    bool template = !strcmp(type, "TemplateProcessing"), bert = !strcmp(type, "BertProcessing");
    if (!template && !bert && strcmp(type, "RobertaProcessing"))
        return GM_FAIL(GM_EINVAL, "%s: the type '%.60s' is not known here", f->where, type);
    if ((*adds)++) return GM_FAIL(GM_EINVAL, "%s: is the second that adds tokens; one is read here", f->where);
    return template ? read_template(f, p) : bert ? read_bert(f, p) : read_roberta(f, p);
}

gm_status gm_processor_read(const gm_fields *f, gm_processor *p)
{
    int adds = 0;
    GM_TRY(gm_processor_plain(p));
    return read_step(f, p, &adds, 0);
}
