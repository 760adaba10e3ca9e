/* index.c - see index.h. */
#define _GNU_SOURCE
#include "index.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "../arrays/arrays.h"

#define FORMAT    "ganymede checkpoint"
#define TAIL      ",\"crc32c\":\"%08x\"}\n"
#define TAIL_SIZE 22 /* of the text above */
#define BOXES_MAX 16384

/* ---- writing ---- */

static json_t *numbers(int n, const int64_t *list)
{
    json_t *a = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(a, json_integer(list[i]));
    return a;
}

static json_t *hex(uint32_t crc) { return json_sprintf("%08x", crc); }

static json_t *box_json(const gm_index *x, const gm_index_box *b)
{
    return json_pack("{s:o, s:o, s:s, s:I, s:I, s:o}", "offset", numbers(b->extent.ndim, b->extent.offset), "shape",
                     numbers(b->extent.ndim, b->extent.shape), "file", x->files[b->file].name, "begin",
                     (json_int_t)b->begin, "bytes", (json_int_t)b->bytes, "crc32c", hex(b->crc));
}

static json_t *tensor_json(const gm_index *x, const gm_index_tensor *t)
{
    json_t *boxes = json_array();
    for (int i = 0; i < t->n_boxes; i++) json_array_append_new(boxes, box_json(x, &t->boxes[i]));
    return json_pack("{s:s, s:o, s:o}", "dtype", gm_dtype_name(t->dtype), "shape", numbers(t->ndim, t->shape), "boxes",
                     boxes);
}

static json_t *index_json(const gm_index *x, json_t *meta)
{
    json_t *files = json_object(), *tensors = json_object();
    for (int i = 0; i < x->n_files; i++)
        json_object_set_new(files, x->files[i].name,
                            json_pack("{s:I, s:o}", "bytes", (json_int_t)x->files[i].bytes, "header_crc32c",
                                      hex(x->files[i].header_crc)));
    for (int i = 0; i < x->n_tensors; i++)
        json_object_set_new(tensors, x->tensors[i].name, tensor_json(x, &x->tensors[i]));
    return json_pack("{s:s, s:i, s:i, s:o, s:o, s:O}", "format", FORMAT, "version", GM_INDEX_VERSION, "world", x->world,
                     "files", files, "tensors", tensors, "meta", meta);
}

gm_status gm_index_format(const gm_index *x, char **text, size_t *size)
{
    json_error_t e;
    const size_t flags = JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17);
    json_t      *meta = json_loads(x->meta, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    if (!meta) return GM_FAIL(GM_EINVAL, "meta is not JSON: line %d, column %d: %s", e.line, e.column, e.text);
    json_t *root = index_json(x, meta);
    size_t  n = root ? json_dumpb(root, NULL, 0, flags) : 0;
    *text = n ? malloc(n + TAIL_SIZE + 1) : NULL;
    if (*text) {
        json_dumpb(root, *text, n, flags);
        n--; /* the closing brace makes room for the last field */
        *size = n + (size_t)sprintf(*text + n, TAIL, gm_crc32c(0, *text, n));
    }
    json_decref(root);
    json_decref(meta);
    return *text ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for the index of a checkpoint");
}

char *gm_index_box_name(const gm_index_tensor *t, const gm_extent *box)
{
    bool whole = true;
    for (int i = 0; i < t->ndim; i++) whole = whole && box->shape[i] == t->shape[i];
    if (whole) return strdup(t->name);
    char   part[GM_MAX_DIMS * 48 + 3] = "[", *name = NULL;
    size_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n += (size_t)snprintf(part + n, sizeof part - n, "%s%lld:%lld", i ? "," : "", (long long)box->offset[i],
                              (long long)(box->offset[i] + box->shape[i]));
    return asprintf(&name, "%s%s]", t->name, part) < 0 ? NULL : name;
}

/* ---- reading ---- */

typedef struct reader {
    const char   *path;
    gm_index_kind kind;
    gm_index     *x;
} reader;

#define NO_MEMORY(r) GM_FAIL(GM_ENOMEM, "%s: no memory for it", (r)->path)

static gm_status read_hex(const reader *r, const char *what, const json_t *v, uint32_t *crc)
{
    const char *s = json_string_value(v);
    if (!s || strlen(s) != 8 || strspn(s, "0123456789abcdef") != 8)
        return GM_FAIL(GM_ECORRUPT, "%s: %s: its checksum is not 8 hexadecimal digits", r->path, what);
    *crc = (uint32_t)strtoul(s, NULL, 16);
    return GM_OK;
}

static gm_status read_count(const reader *r, const char *what, const json_t *v, uint64_t *n)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > (json_int_t)1 << 62)
        return GM_FAIL(GM_ECORRUPT, "%s: %s: a number of bytes is missing or wrong", r->path, what);
    *n = (uint64_t)json_integer_value(v);
    return GM_OK;
}

static gm_status read_list(const reader *r, const char *what, const json_t *v, int *n, int64_t *list)
{
    if (!json_is_array(v) || json_array_size(v) > GM_MAX_DIMS)
        return GM_FAIL(GM_ECORRUPT, "%s: %s: a shape or offset is no list of at most %d numbers", r->path, what,
                       GM_MAX_DIMS);
    *n = (int)json_array_size(v);
    for (int i = 0; i < *n; i++) {
        const json_t *e = json_array_get(v, (size_t)i);
        if (!json_is_integer(e) || json_integer_value(e) < 0)
            return GM_FAIL(GM_ECORRUPT, "%s: %s: a size or offset is no natural number", r->path, what);
        list[i] = json_integer_value(e);
    }
    return GM_OK;
}

static int file_by_name(const void *a, const void *b)
{
    return strcmp(((const gm_index_file *)a)->name, ((const gm_index_file *)b)->name);
}

static int tensor_by_name(const void *a, const void *b)
{
    return strcmp(((const gm_index_tensor *)a)->name, ((const gm_index_tensor *)b)->name);
}

static gm_status read_files(const reader *r, json_t *v)
{
    const char *name;
    json_t     *e;
    gm_index   *x = r->x;
    if (!json_is_object(v) || (int64_t)json_object_size(v) != (r->kind == GM_INDEX_PART ? 1 : x->world))
        return GM_FAIL(GM_ECORRUPT, "%s: it must list one file a rank, for %d ranks", r->path, x->world);
    if (!(x->files = calloc(json_object_size(v), sizeof *x->files))) return NO_MEMORY(r);
    json_object_foreach(v, name, e)
    {
        gm_index_file *f = &x->files[x->n_files++];
        if (!(f->name = strdup(name))) return NO_MEMORY(r);
        GM_TRY(read_count(r, name, json_object_get(e, "bytes"), &f->bytes));
        GM_TRY(read_hex(r, name, json_object_get(e, "header_crc32c"), &f->header_crc));
    }
    qsort(x->files, (size_t)x->n_files, sizeof *x->files, file_by_name);
    return GM_OK;
}

static gm_status read_box(const reader *r, const gm_index_tensor *t, const json_t *v, gm_index_box *b)
{
    int         n;
    uint64_t    wanted;
    const char *file = json_string_value(json_object_get(v, "file"));
    GM_TRY(read_list(r, t->name, json_object_get(v, "offset"), &n, b->extent.offset));
    GM_TRY(read_list(r, t->name, json_object_get(v, "shape"), &b->extent.ndim, b->extent.shape));
    if (n != t->ndim || b->extent.ndim != t->ndim || !gm_extent_inside(&b->extent, t->shape))
        return GM_FAIL(GM_ECORRUPT, "%s: tensor '%s': a box lies outside of it", r->path, t->name);
    gm_index_file  key = {.name = (char *)(uintptr_t)file};
    gm_index_file *f = file ? bsearch(&key, r->x->files, (size_t)r->x->n_files, sizeof key, file_by_name) : NULL;
    if (!f)
        return GM_FAIL(GM_ECORRUPT, "%s: tensor '%s': a box lies in '%s', which is not listed", r->path, t->name,
                       file ? file : "?");
    b->file = (int)(f - r->x->files);
    GM_TRY(read_count(r, t->name, json_object_get(v, "begin"), &b->begin));
    GM_TRY(read_count(r, t->name, json_object_get(v, "bytes"), &b->bytes));
    GM_TRY(read_hex(r, t->name, json_object_get(v, "crc32c"), &b->crc));
    if (!gm_array_size(gm_element_of(t->dtype), t->ndim, b->extent.shape, &wanted) || wanted != b->bytes ||
        b->bytes > f->bytes || b->begin > f->bytes - b->bytes)
        return GM_FAIL(GM_ECORRUPT, "%s: tensor '%s': a box does not fit its bytes or its file", r->path, t->name);
    return GM_OK;
}

static gm_status read_tensor(const reader *r, const char *name, const json_t *v, gm_index_tensor *t)
{
    uint64_t      bytes;
    const char   *dtype = json_string_value(json_object_get(v, "dtype"));
    const json_t *boxes = json_object_get(v, "boxes");
    if (!(t->name = strdup(name))) return NO_MEMORY(r);
    if (!dtype || !gm_dtype_parse(dtype, &t->dtype))
        return GM_FAIL(GM_ECORRUPT, "%s: tensor '%s': its dtype is missing or unknown", r->path, name);
    GM_TRY(read_list(r, name, json_object_get(v, "shape"), &t->ndim, t->shape));
    if (!gm_array_size(gm_element_of(t->dtype), t->ndim, t->shape, &bytes))
        return GM_FAIL(GM_ECORRUPT, "%s: tensor '%s': its shape overflows", r->path, name);
    if (!json_is_array(boxes) || json_array_size(boxes) > BOXES_MAX)
        return GM_FAIL(GM_ECORRUPT, "%s: tensor '%s': boxes must be a list of at most %d", r->path, name, BOXES_MAX);
    if (!(t->boxes = calloc(json_array_size(boxes) + 1, sizeof *t->boxes))) return NO_MEMORY(r);
    t->n_boxes = (int)json_array_size(boxes);
    for (int i = 0; i < t->n_boxes; i++) GM_TRY(read_box(r, t, json_array_get(boxes, (size_t)i), &t->boxes[i]));
    return GM_OK;
}

static gm_status read_tensors(const reader *r, json_t *v)
{
    const char *name;
    json_t     *e;
    gm_index   *x = r->x;
    if (!json_is_object(v)) return GM_FAIL(GM_ECORRUPT, "%s: it lists no tensors", r->path);
    if (!(x->tensors = calloc(json_object_size(v) + 1, sizeof *x->tensors))) return NO_MEMORY(r);
    json_object_foreach(v, name, e) GM_TRY(read_tensor(r, name, e, &x->tensors[x->n_tensors++]));
    qsort(x->tensors, (size_t)x->n_tensors, sizeof *x->tensors, tensor_by_name);
    return GM_OK;
}

static gm_status read_root(const reader *r, json_t *root)
{
    const char   *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "version"), *world = json_object_get(root, "world");
    json_t       *meta = json_object_get(root, "meta");
    if (!format || strcmp(format, FORMAT)) return GM_FAIL(GM_ECORRUPT, "%s: is not the index of a checkpoint", r->path);
    if (json_integer_value(version) != GM_INDEX_VERSION)
        return GM_FAIL(GM_ECORRUPT, "%s: has format version %lld, this program reads %d", r->path,
                       (long long)json_integer_value(version), GM_INDEX_VERSION);
    if (json_integer_value(world) < 1 || json_integer_value(world) > 1 << 20 || !meta)
        return GM_FAIL(GM_ECORRUPT, "%s: world or meta is missing or wrong", r->path);
    r->x->world = (int)json_integer_value(world);
    r->x->meta = json_dumps(meta, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!r->x->meta) return NO_MEMORY(r);
    GM_TRY(read_files(r, json_object_get(root, "files")));
    return read_tensors(r, json_object_get(root, "tensors"));
}

/* Parsed JSON takes more memory than its text: some 10 times as much in an index, 80 times in a list of empty lists.
 * What would take much, and is no index for sure, is refused before it is parsed. */
static gm_status check_density(const char *path, const char *text, size_t size)
{
    uint64_t needs = 0;
    bool     quoted = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\\' && quoted) i++;
        else if (text[i] == '"') quoted = !quoted;
        else if (!quoted && text[i] == ',') needs += 48;
        else if (!quoted && (text[i] == '[' || text[i] == '{')) needs += 200;
    }
    if (needs < (uint64_t)64 << 20 || needs < 16 * (uint64_t)size) return GM_OK;
    return GM_FAIL(GM_ECORRUPT, "%s: is no index: its %zu bytes would take %llu MB of memory", path, size,
                   (unsigned long long)(needs >> 20));
}

gm_status gm_index_parse(const char *path, const char *text, size_t size, gm_index_kind kind, gm_index *out)
{
    char         tail[TAIL_SIZE + 1];
    json_error_t e;
    reader       r = {path, kind, out};
    *out = (gm_index){0};
    uint32_t crc = size >= TAIL_SIZE ? gm_crc32c(0, text, size - TAIL_SIZE) : 0;
    snprintf(tail, sizeof tail, TAIL, crc);
    if (size < TAIL_SIZE || memcmp(text + size - TAIL_SIZE, tail, TAIL_SIZE))
        return GM_FAIL(GM_ECORRUPT, "%s: is damaged: the CRC32C of its text is %08x, which is not what it ends with",
                       path, crc);
    GM_TRY(check_density(path, text, size));
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    if (!root) return GM_FAIL(GM_ECORRUPT, "%s:%d:%d: %s", path, e.line, e.column, e.text);
    gm_status st = read_root(&r, root);
    json_decref(root);
    if (st == GM_OK && kind == GM_INDEX_WHOLE) st = gm_index_check_cover(path, out);
    if (st != GM_OK) gm_index_free(out);
    return st;
}

/* ---- parts ---- */

static gm_status check_cover(const char *path, const gm_index_tensor *t)
{
    const char *why;
    gm_extent  *e = malloc((size_t)t->n_boxes * sizeof *e + 1);
    if (!e) return GM_FAIL(GM_ENOMEM, "%s: no memory for it", path);
    for (int i = 0; i < t->n_boxes; i++) e[i] = t->boxes[i].extent;
    bool ok = gm_extents_cover(e, t->n_boxes, t->ndim, t->shape, &why);
    free(e);
    return ok ? GM_OK : GM_FAIL(GM_ECORRUPT, "%s: tensor '%s': its boxes %s", path, t->name, why);
}

gm_status gm_index_check_cover(const char *path, const gm_index *x)
{
    for (int i = 0; i < x->n_tensors; i++) GM_TRY(check_cover(path, &x->tensors[i]));
    return GM_OK;
}

static gm_status merge_tensor(gm_index *into, int file, const gm_index_tensor *from, const char *name)
{
    gm_index_tensor *t = into->n_tensors
                             ? bsearch(from, into->tensors, (size_t)into->n_tensors, sizeof *from, tensor_by_name)
                             : NULL;
    bool             same = t && t->dtype == from->dtype && t->ndim == from->ndim;
    for (int i = 0; same && i < t->ndim; i++) same = t->shape[i] == from->shape[i];
    if (!same)
        return GM_FAIL(GM_ECORRUPT, "%s: holds a tensor '%s' that rank 0 %s", name, from->name,
                       t ? "describes otherwise" : "does not know");
    gm_index_box *more = realloc(t->boxes, (size_t)(t->n_boxes + from->n_boxes + 1) * sizeof *more);
    if (!more) return GM_FAIL(GM_ENOMEM, "no memory for the index of a checkpoint");
    t->boxes = more;
    for (int i = 0; i < from->n_boxes; i++) {
        t->boxes[t->n_boxes] = from->boxes[i];
        t->boxes[t->n_boxes++].file = file;
    }
    return GM_OK;
}

gm_status gm_index_merge(gm_index *into, const gm_index *part)
{
    gm_index_file *f = &into->files[into->n_files];
    *f = part->files[0];
    if (!(f->name = strdup(f->name))) return GM_FAIL(GM_ENOMEM, "no memory for the index of a checkpoint");
    into->n_files++;
    for (int i = 0; i < part->n_tensors; i++) GM_TRY(merge_tensor(into, into->n_files - 1, &part->tensors[i], f->name));
    return GM_OK;
}

void gm_index_free(gm_index *x)
{
    for (int i = 0; i < x->n_files; i++) free(x->files[i].name);
    for (int i = 0; i < x->n_tensors; i++) {
        free(x->tensors[i].name);
        free(x->tensors[i].boxes);
    }
    free(x->files);
    free(x->tensors);
    free(x->meta);
    *x = (gm_index){0};
}
