/* safetensors.c - see safetensors.h. */
#define _GNU_SOURCE
#include "safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "formats.h"

static int by_name(const void *a, const void *b)
{
    return strcmp(((const gm_array *)a)->name, ((const gm_array *)b)->name);
}

static int by_begin(const void *a, const void *b)
{
    const gm_array *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; /* empty ones first */
    return strcmp(x->name, y->name);
}

/* ---- reading ---- */

#define BAD(file, name, why) GM_FAIL(GM_ECORRUPT, "%s: tensor '%s': %s", (file), (name), (why))

static gm_status read_offsets(const char *file, const json_t *v, uint64_t data, gm_array *t)
{
    uint64_t wanted;
    if (!json_is_array(v) || json_array_size(v) != 2 || !json_is_integer(json_array_get(v, 0)) ||
        !json_is_integer(json_array_get(v, 1)))
        return BAD(file, t->name, "data_offsets must be two integers");
    json_int_t begin = json_integer_value(json_array_get(v, 0)), end = json_integer_value(json_array_get(v, 1));
    if (begin < 0 || end < begin || end > (json_int_t)1 << 62)
        return BAD(file, t->name, "data_offsets are not in order");
    if (!gm_array_size(t->element, t->ndim, t->shape, &wanted)) return BAD(file, t->name, "the shape overflows");
    t->begin = data + (uint64_t)begin, t->bytes = (uint64_t)(end - begin);
    if (t->bytes != wanted) return BAD(file, t->name, "data_offsets do not fit shape and dtype");
    return GM_OK;
}

static gm_status read_entry(const char *file, const json_t *v, uint64_t data, gm_array *t)
{
    const json_t *dtype = json_object_get(v, "dtype"), *shape = json_object_get(v, "shape");
    if (!json_is_object(v) || json_object_size(v) != 3 || !json_is_string(dtype) || !json_is_array(shape))
        return BAD(file, t->name, "needs dtype, shape and data_offsets, and no more");
    t->element = gm_element_named(json_string_value(dtype));
    if (t->element == GM_ELEMENT_COUNT || gm_element_block(t->element) > 1)
        return GM_FAIL(GM_ECORRUPT, "%s: tensor '%s': dtype '%.16s' is unknown", file, t->name,
                       json_string_value(dtype));
    if (json_array_size(shape) > GM_MAX_DIMS) return BAD(file, t->name, "has too many dimensions");
    t->ndim = (int)json_array_size(shape);
    for (int i = 0; i < t->ndim; i++) {
        const json_t *size = json_array_get(shape, (size_t)i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return BAD(file, t->name, "a size is no natural number");
        t->shape[i] = json_integer_value(size);
    }
    return read_offsets(file, json_object_get(v, "data_offsets"), data, t);
}

static gm_status check_metadata(const char *file, json_t *v)
{
    const char *key;
    json_t     *text;
    if (!json_is_object(v)) return GM_FAIL(GM_ECORRUPT, "%s: __metadata__ is not an object", file);
    json_object_foreach(v, key, text) if (!json_is_string(text)) return GM_FAIL(
        GM_ECORRUPT, "%s: __metadata__ '%s' is not a text", file, key);
    return GM_OK;
}

/* No overlap, no hole, and the last byte of data is the last of the file. */
static gm_status check_layout(const char *file, uint64_t file_size, gm_safetensors *s)
{
    uint64_t at = s->data;
    qsort(s->list, (size_t)s->n, sizeof *s->list, by_begin);
    for (int i = 0; i < s->n; i++) {
        if (s->list[i].begin != at)
            return BAD(file, s->list[i].name,
                       s->list[i].begin < at ? "its data overlaps another's" : "a hole before its data");
        at += s->list[i].bytes;
    }
    if (at != file_size)
        return GM_FAIL(GM_ECORRUPT, "%s: the header tells %llu bytes, the file has %llu", file, (unsigned long long)at,
                       (unsigned long long)file_size);
    qsort(s->list, (size_t)s->n, sizeof *s->list, by_name);
    return GM_OK;
}

static gm_status read_header(const char *file, json_t *root, gm_safetensors *s)
{
    const char *key;
    json_t     *v;
    if (!json_is_object(root)) return GM_FAIL(GM_ECORRUPT, "%s: the header is not an object", file);
    s->list = calloc(json_object_size(root) + 1, sizeof *s->list);
    if (!s->list) return GM_FAIL(GM_ENOMEM, "%s: no memory for its header", file);
    json_object_foreach(root, key, v)
    {
        if (!strcmp(key, "__metadata__")) {
            GM_TRY(check_metadata(file, v));
            if (!(s->meta = json_dumps(v, JSON_COMPACT))) return GM_FAIL(GM_ENOMEM, "%s: no memory for it", file);
            continue;
        }
        gm_array *t = &s->list[s->n++];
        if (!(t->name = strdup(key))) return GM_FAIL(GM_ENOMEM, "%s: no memory for its header", file);
        GM_TRY(read_entry(file, v, s->data, t));
    }
    return GM_OK;
}

static gm_status parse(const char *file, const char *text, size_t n, uint64_t file_size, gm_safetensors *s)
{
    json_error_t e;
    if (n < 2 || text[0] != '{') return GM_FAIL(GM_ECORRUPT, "%s: the header does not begin with '{'", file);
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!root) return GM_FAIL(GM_ECORRUPT, "%s: the header, line %d, column %d: %s", file, e.line, e.column, e.text);
    gm_status st = read_header(file, root, s);
    json_decref(root);
    return st == GM_OK ? check_layout(file, file_size, s) : st;
}

gm_status gm_safetensors_length(const char *file, const unsigned char *first8, uint64_t file_size, size_t *bytes)
{
    uint64_t n = 0;
    if (file_size < 8)
        return GM_FAIL(GM_ECORRUPT, "%s: %llu bytes are no safetensors file", file, (unsigned long long)file_size);
    for (int i = 7; i >= 0; i--) n = n << 8 | first8[i];
    if (n > GM_SAFETENSORS_HEADER_MAX || n > file_size - 8)
        return GM_FAIL(GM_ECORRUPT, "%s: a header of %llu bytes in a file of %llu (at most %u are allowed)", file,
                       (unsigned long long)n, (unsigned long long)file_size, GM_SAFETENSORS_HEADER_MAX);
    *bytes = (size_t)n;
    return GM_OK;
}

gm_status gm_safetensors_parse(const char *file, const char *header, size_t n, uint64_t file_size, gm_safetensors *out)
{
    *out = (gm_safetensors){.data = 8 + n};
    gm_status st = parse(file, header, n, file_size, out);
    if (st != GM_OK) gm_safetensors_free(out);
    return st;
}

/* The arrays of a header become those of a set. */
static gm_status move(gm_arrays *s, int file, gm_safetensors *from)
{
    for (int i = 0; i < from->n; i++) {
        gm_array *a, *b = &from->list[i];
        GM_TRY(gm_arrays_add(s, b->name, strlen(b->name), file, &a));
        a->element = b->element, a->ndim = b->ndim, a->begin = b->begin, a->bytes = b->bytes;
        memcpy(a->shape, b->shape, sizeof a->shape);
    }
    if (s->meta) return GM_OK; /* of several files, the first says it */
    s->meta = from->meta;
    from->meta = NULL;
    return GM_OK;
}

gm_status gm_safetensors_add(gm_arrays *s, int file)
{
    const gm_bytes *b = &s->files[file];
    unsigned char   first8[8];
    size_t          n = 0;
    gm_safetensors  header = {0};
    if (b->size >= 8) GM_TRY(gm_bytes_copy(b, 0, 8, first8));
    GM_TRY(gm_safetensors_length(b->path, first8, b->size, &n));
    char *text = malloc(n + 1);
    if (!text) return GM_FAIL(GM_ENOMEM, "%s: no memory for its header", b->path);
    gm_status st = gm_bytes_copy(b, 8, n, text);
    if (st == GM_OK) st = gm_safetensors_parse(b->path, text, n, b->size, &header);
    if (st == GM_OK) st = move(s, file, &header);
    gm_safetensors_free(&header);
    free(text);
    return st;
}

void gm_safetensors_free(gm_safetensors *s)
{
    for (int i = 0; i < s->n; i++) free(s->list[i].name);
    free(s->list);
    free(s->meta);
    *s = (gm_safetensors){0};
}

const gm_array *gm_safetensors_find(const gm_safetensors *s, const char *name)
{
    const gm_array key = {.name = (char *)(uintptr_t)name};
    return s->n ? bsearch(&key, s->list, (size_t)s->n, sizeof *s->list, by_name) : NULL;
}

/* ---- writing ---- */

static json_t *entry_of(const gm_array *t, uint64_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->ndim; i++) json_array_append_new(shape, json_integer(t->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", gm_element_name(t->element), "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + t->bytes));
}

/* Whether a text is UTF-8; also true if there is no memory to find that out. */
static bool is_utf8(const char *text)
{
    json_t *any = json_string_nocheck(text), *checked = json_string(text);
    bool    refused = any && !checked;
    json_decref(any);
    json_decref(checked);
    return !refused;
}

static gm_status add_meta(json_t *root, const char *meta)
{
    const char *key;
    json_t     *value, *object = json_loads(meta, JSON_REJECT_DUPLICATES, NULL);
    bool        texts = json_is_object(object);
    json_object_foreach(object, key, value) texts = texts && json_is_string(value);
    if (texts && !json_object_set(root, "__metadata__", object)) {
        json_decref(object);
        return GM_OK;
    }
    json_decref(object);
    return GM_FAIL(GM_EINVAL, "the metadata of a safetensors file must be a table of texts");
}

gm_status gm_safetensors_header(gm_array *list, int n, const char *meta, char **header, size_t *size)
{
    uint64_t  at = 0;
    json_t   *root = json_object();
    bool      ok = root != NULL;
    gm_status st = ok && meta ? add_meta(root, meta) : GM_OK;
    if (st != GM_OK) {
        json_decref(root);
        return st;
    }
    for (int i = 0; ok && i < n; i++) {
        if (!gm_array_size(list[i].element, list[i].ndim, list[i].shape, &list[i].bytes)) {
            json_decref(root);
            return GM_FAIL(GM_ESHAPE, "tensor '%s' is too large", list[i].name);
        }
        list[i].begin = at;
        ok = json_object_set_new(root, list[i].name, entry_of(&list[i], at)) == 0;
        if (!ok && !is_utf8(list[i].name)) {
            json_decref(root);
            return GM_FAIL(GM_EINVAL, "the name of tensor %d of %d is not UTF-8; a file holds names of text only",
                           i + 1, n);
        }
        at += list[i].bytes;
    }
    size_t text = ok ? json_dumpb(root, NULL, 0, JSON_COMPACT) : 0, all = (8 + text + 63) / 64 * 64;
    *header = ok ? malloc(all) : NULL;
    if (*header) {
        memset(*header, ' ', all);
        json_dumpb(root, *header + 8, text, JSON_COMPACT);
        for (int i = 0; i < 8; i++) (*header)[i] = (char)(unsigned char)((all - 8) >> 8 * i);
    }
    json_decref(root);
    if (!*header) return GM_FAIL(GM_ENOMEM, "no memory for a safetensors header");
    if (all - 8 > GM_SAFETENSORS_HEADER_MAX) {
        free(*header);
        return GM_FAIL(GM_EINVAL, "the header of %d tensors has %zu bytes; at most %u are allowed", n, all - 8,
                       GM_SAFETENSORS_HEADER_MAX);
    }
    for (int i = 0; i < n; i++) list[i].begin += all;
    *size = all;
    return GM_OK;
}
