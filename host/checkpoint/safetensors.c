/* safetensors.c - see safetensors.h. */
#define _GNU_SOURCE
#include "safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

bool gm_safetensors_bytes(gm_dtype dtype, int ndim, const int64_t *shape, uint64_t *bytes)
{
    int64_t n = (int64_t)gm_dtype_size(dtype);
    for (int i = 0; i < ndim; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(n, shape[i], &n) || n > (int64_t)1 << 62) return false;
    *bytes = (uint64_t)n;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const gm_safetensor *)a)->name, ((const gm_safetensor *)b)->name);
}

static int by_begin(const void *a, const void *b)
{
    const gm_safetensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; /* empty ones first */
    return strcmp(x->name, y->name);
}

/* ---- reading ---- */

#define BAD(file, name, why) GM_FAIL(GM_ECORRUPT, "%s: tensor '%s': %s", (file), (name), (why))

static gm_status read_offsets(const char *file, const json_t *v, uint64_t data, gm_safetensor *t)
{
    uint64_t wanted;
    if (!json_is_array(v) || json_array_size(v) != 2 || !json_is_integer(json_array_get(v, 0)) ||
        !json_is_integer(json_array_get(v, 1)))
        return BAD(file, t->name, "data_offsets must be two integers");
    json_int_t begin = json_integer_value(json_array_get(v, 0)), end = json_integer_value(json_array_get(v, 1));
    if (begin < 0 || end < begin || end > (json_int_t)1 << 62)
        return BAD(file, t->name, "data_offsets are not in order");
    if (!gm_safetensors_bytes(t->dtype, t->ndim, t->shape, &wanted)) return BAD(file, t->name, "the shape overflows");
    t->begin = data + (uint64_t)begin, t->bytes = (uint64_t)(end - begin);
    if (t->bytes != wanted) return BAD(file, t->name, "data_offsets do not fit shape and dtype");
    return GM_OK;
}

static gm_status read_entry(const char *file, const json_t *v, uint64_t data, gm_safetensor *t)
{
    const json_t *dtype = json_object_get(v, "dtype"), *shape = json_object_get(v, "shape");
    if (!json_is_object(v) || json_object_size(v) != 3 || !json_is_string(dtype) || !json_is_array(shape))
        return BAD(file, t->name, "needs dtype, shape and data_offsets, and no more");
    t->dtype = GM_DTYPE_NONE;
    for (int i = 0; i < GM_DTYPE_COUNT; i++)
        if (!strcmp(gm_dtype_file_name((gm_dtype)i), json_string_value(dtype))) t->dtype = (gm_dtype)i;
    if (t->dtype == GM_DTYPE_NONE)
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
            continue;
        }
        gm_safetensor *t = &s->list[s->n++];
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

gm_status gm_safetensors_read(int fd, const char *file, uint64_t file_size, gm_safetensors *out)
{
    unsigned char head[8];
    uint64_t      n = 0;
    *out = (gm_safetensors){0};
    if (file_size < 8)
        return GM_FAIL(GM_ECORRUPT, "%s: %llu bytes are no safetensors file", file, (unsigned long long)file_size);
    GM_TRY(gm_files_read(fd, file, 0, 8, head));
    for (int i = 7; i >= 0; i--) n = n << 8 | head[i];
    if (n > GM_SAFETENSORS_HEADER_MAX || n > file_size - 8)
        return GM_FAIL(GM_ECORRUPT, "%s: a header of %llu bytes in a file of %llu (at most %u are allowed)", file,
                       (unsigned long long)n, (unsigned long long)file_size, GM_SAFETENSORS_HEADER_MAX);
    char *text = malloc((size_t)n + 1);
    if (!text) return GM_FAIL(GM_ENOMEM, "%s: no memory for its header", file);
    gm_status st = gm_files_read(fd, file, 8, (size_t)n, text);
    out->data = 8 + n;
    out->crc = gm_crc32c(gm_crc32c(0, head, 8), text, st == GM_OK ? (size_t)n : 0);
    if (st == GM_OK) st = parse(file, text, (size_t)n, file_size, out);
    free(text);
    if (st != GM_OK) gm_safetensors_free(out);
    return st;
}

void gm_safetensors_free(gm_safetensors *s)
{
    for (int i = 0; i < s->n; i++) free(s->list[i].name);
    free(s->list);
    *s = (gm_safetensors){0};
}

const gm_safetensor *gm_safetensors_find(const gm_safetensors *s, const char *name)
{
    const gm_safetensor key = {.name = (char *)(uintptr_t)name};
    return s->n ? bsearch(&key, s->list, (size_t)s->n, sizeof *s->list, by_name) : NULL;
}

/* ---- writing ---- */

static json_t *entry_of(const gm_safetensor *t, uint64_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->ndim; i++) json_array_append_new(shape, json_integer(t->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", gm_dtype_file_name(t->dtype), "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + t->bytes));
}

gm_status gm_safetensors_header(gm_safetensor *list, int n, char **header, size_t *size)
{
    uint64_t at = 0;
    json_t  *root = json_object();
    bool     ok = root != NULL;
    for (int i = 0; ok && i < n; i++) {
        if (!gm_safetensors_bytes(list[i].dtype, list[i].ndim, list[i].shape, &list[i].bytes)) {
            json_decref(root);
            return GM_FAIL(GM_ESHAPE, "tensor '%s' is too large", list[i].name);
        }
        list[i].begin = at;
        ok = json_object_set_new(root, list[i].name, entry_of(&list[i], at)) == 0;
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
    if (!*header) return GM_FAIL(GM_ENOMEM, "no memory for a safetensors header (or a name that is not UTF-8)");
    if (all - 8 > GM_SAFETENSORS_HEADER_MAX) {
        free(*header);
        return GM_FAIL(GM_EINVAL, "the header of %d tensors has %zu bytes; at most %u are allowed", n, all - 8,
                       GM_SAFETENSORS_HEADER_MAX);
    }
    for (int i = 0; i < n; i++) list[i].begin += all;
    *size = all;
    return GM_OK;
}
