/* around.c - see around.h. */
#include "around.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The number of the token `name` if the flag is set, otherwise GM_NO_ID. A token is a text or { "content": text }. */
static gm_status wanted(const gm_fields *f, const gm_tokenizer *t, const char *flag, const char *name, uint32_t *id)
{
    const json_t *v = json_object_get(f->object, name);
    bool          on;
    *id = GM_NO_ID;
    GM_TRY(gm_fields_flag(f, flag, false, &on));
    if (!on) return GM_OK;
    if (json_is_object(v)) v = json_object_get(v, "content");
    if (json_is_string(v)) *id = gm_tokenizer_id(t, json_string_value(v), json_string_length(v));
    if (*id == GM_NO_ID)
        return GM_FAIL(GM_EINVAL, "%s: %s is true, and %s is no token of the model beside it", f->where, flag, name);
    return GM_OK;
}

static gm_status add(gm_text_ids *out, uint32_t before, uint32_t text, uint32_t behind)
{
    if (before != GM_NO_ID) GM_TRY(gm_ids_add(out, before));
    GM_TRY(gm_ids_add(out, text));
    return behind == GM_NO_ID ? GM_OK : gm_ids_add(out, behind);
}

static gm_status read(const gm_fields *f, gm_tokenizer *t)
{
    gm_processor p = {0};
    uint32_t     begin, end;
    if (!json_is_object(f->object)) return GM_FAIL(GM_EINVAL, "%s: is no object", f->where);
    GM_TRY(wanted(f, t, "add_bos_token", "bos_token", &begin));
    GM_TRY(wanted(f, t, "add_eos_token", "eos_token", &end));
    gm_status st = add(&p.one, begin, GM_SEQUENCE_A, end);
    if (st == GM_OK) st = add(&p.two, begin, GM_SEQUENCE_A, end);
    if (st == GM_OK) st = add(&p.two, begin, GM_SEQUENCE_B, end);
    if (st != GM_OK) {
        gm_processor_free(&p);
        return st;
    }
    gm_processor_free(&t->processor);
    t->processor = p;
    return GM_OK;
}

gm_status gm_text_around(const char *file, gm_tokenizer *t)
{
    char         path[4200];
    const char  *slash = strrchr(file, '/');
    json_error_t e;
    gm_fields    f = {0};
    if (strcmp(slash ? slash + 1 : file, "tokenizer.model")) return GM_OK;
    snprintf(path, sizeof path, "%.*stokenizer_config.json", slash ? (int)(slash + 1 - file) : 0, file);
    FILE *in = fopen(path, "rb");
    if (!in) return errno == ENOENT ? GM_OK : GM_FAIL(GM_EIO, "%s: cannot be read: %s", path, strerror(errno));
    f.object = json_loadf(in, JSON_ALLOW_NUL, &e);
    fclose(in);
    if (!f.object) return GM_FAIL(GM_ECORRUPT, "%s: line %d, column %d: %s", path, e.line, e.column, e.text);
    snprintf(f.where, sizeof f.where, "%.*s", (int)sizeof f.where - 1, path);
    gm_status st = read(&f, t);
    json_decref(f.object);
    return st;
}
