/* fields.c - see fields.h. */
#include "fields.h"

#include <stdio.h>
#include <string.h>

gm_status gm_fields_of(const gm_fields *parent, const char *name, json_t *v, gm_fields *out)
{
    gm_fields f = {.object = v};
    int n = snprintf(f.where, sizeof f.where, "%s%s%s", parent->where, strchr(parent->where, ' ') ? "." : ": ", name);
    if (n < 0 || n >= (int)sizeof f.where) return GM_FAIL(GM_EINVAL, "%s: is nested too deeply", parent->where);
    if (!json_is_object(v)) return GM_FAIL(GM_EINVAL, "%s: is no object", f.where);
    *out = f;
    return GM_OK;
}

static bool listed(const char *known, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = known; n && (p = strstr(p, key)); p += n)
        if ((p == known || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
    return false;
}

gm_status gm_fields_only(const gm_fields *f, const char *known)
{
    const char *key;
    json_t     *v;
    json_object_foreach(f->object, key, v) if (!listed(known, key)) return GM_FAIL(
        GM_EINVAL, "%s: the field '%.60s' is not known here; known are: %s", f->where, key, known);
    return GM_OK;
}

gm_status gm_fields_text(const gm_fields *f, const char *name, bool must, const char **text, size_t *n)
{
    const json_t *v = json_object_get(f->object, name);
    *text = NULL, *n = 0;
    if (!v || json_is_null(v)) return must ? GM_FAIL(GM_EINVAL, "%s: has no '%s'", f->where, name) : GM_OK;
    if (!json_is_string(v)) return GM_FAIL(GM_EINVAL, "%s.%s: is no text", f->where, name);
    *text = json_string_value(v), *n = json_string_length(v);
    return GM_OK;
}

gm_status gm_fields_flag(const gm_fields *f, const char *name, bool otherwise, bool *out)
{
    const json_t *v = json_object_get(f->object, name);
    *out = v && !json_is_null(v) ? json_is_true(v) : otherwise;
    if (v && !json_is_null(v) && !json_is_boolean(v))
        return GM_FAIL(GM_EINVAL, "%s.%s: is neither true nor false", f->where, name);
    return GM_OK;
}

gm_status gm_fields_number(const gm_fields *f, const char *name, long long otherwise, long long low, long long high,
                           long long *out)
{
    const json_t *v = json_object_get(f->object, name);
    *out = otherwise;
    if (!v || json_is_null(v)) return GM_OK;
    if (!json_is_integer(v) || json_integer_value(v) < low || json_integer_value(v) > high)
        return GM_FAIL(GM_EINVAL, "%s.%s: is no whole number from %lld to %lld", f->where, name, low, high);
    *out = json_integer_value(v);
    return GM_OK;
}

gm_status gm_fields_list(const gm_fields *f, const char *name, json_t **out)
{
    *out = json_object_get(f->object, name);
    return json_is_array(*out) ? GM_OK : GM_FAIL(GM_EINVAL, "%s: has no list '%s'", f->where, name);
}

gm_status gm_fields_object(const gm_fields *f, const char *name, json_t **out)
{
    *out = json_object_get(f->object, name);
    return json_is_object(*out) ? GM_OK : GM_FAIL(GM_EINVAL, "%s: has no object '%s'", f->where, name);
}

gm_status gm_fields_wrong(const gm_fields *f, gm_status st)
{
    char why[600];
    snprintf(why, sizeof why, "%s", gm_last_error());
    return GM_FAIL(st, "%s: %s", f->where, why);
}
