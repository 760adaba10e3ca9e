/* arrays.c - see arrays.h. */
#define _GNU_SOURCE
#include "arrays.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "formats.h"

bool gm_array_size(gm_element e, int ndim, const int64_t *shape, uint64_t *bytes)
{
    int64_t block = gm_element_block(e), n = (int64_t)gm_element_bytes(e);
    for (int i = 0; i < ndim; i++) {
        int64_t size = shape[i];
        if (i == ndim - 1 && size % block) return false;
        if (i == ndim - 1) size /= block;
        if (size < 0 || __builtin_mul_overflow(n, size, &n) || n > (int64_t)1 << 62) return false;
    }
    if (!ndim && block > 1) return false;
    *bytes = (uint64_t)n;
    return true;
}

/* ---- a set that grows ---- */

gm_status gm_arrays_add(gm_arrays *s, const char *name, size_t length, int file, gm_array **out)
{
    if (memchr(name, 0, length)) return GM_FAIL(GM_ECORRUPT, "%s: the name of an array has a zero in it", s->path);
    if (s->n == s->room) {
        int       room = s->room ? 2 * s->room : 64;
        gm_array *more = realloc(s->list, (size_t)room * sizeof *more);
        if (!more) return GM_FAIL(GM_ENOMEM, "%s: no memory for a list of %d arrays", s->path, room);
        s->list = more;
        s->room = room;
    }
    gm_array *a = &s->list[s->n];
    *a = (gm_array){.name = strndup(name, length), .file = file};
    if (!a->name) return GM_FAIL(GM_ENOMEM, "%s: no memory for a name", s->path);
    s->n++;
    *out = a;
    return GM_OK;
}

gm_status gm_arrays_take(gm_arrays *s, gm_bytes *b, int *file)
{
    gm_bytes *more = realloc(s->files, (size_t)(s->n_files + 1) * sizeof *more);
    if (!more) {
        gm_bytes_close(b);
        return GM_FAIL(GM_ENOMEM, "%s: no memory for a list of files", s->path);
    }
    s->files = more;
    s->files[ *file = s->n_files++] = *b;
    *b = (gm_bytes){0};
    return GM_OK;
}

gm_status gm_arrays_map(gm_arrays *s, const char *path, int *file)
{
    gm_bytes b;
    GM_TRY(gm_bytes_map(path, GM_ACCESS_RANDOM, &b));
    return gm_arrays_take(s, &b, file);
}

/* ---- opening ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static gm_status add_file(gm_arrays *s, const char *path)
{
    int file = 0;
    if (ends_with(path, ".nii") || ends_with(path, ".nii.gz")) return gm_nifti_add(s, path, ends_with(path, ".gz"));
    GM_TRY(gm_arrays_map(s, path, &file));
    if (ends_with(path, ".safetensors")) return gm_safetensors_add(s, file);
    if (ends_with(path, ".gguf")) return gm_gguf_add(s, file);
    if (ends_with(path, ".npy")) return gm_npy_add(s, file, "");
    if (ends_with(path, ".npz")) return gm_npz_add(s, file);
    return GM_FAIL(GM_EINVAL,
                   "%s: the name of a file of arrays ends in .safetensors, .safetensors.index.json, .gguf, .npy, .npz, "
                   ".nii or .nii.gz",
                   path);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const gm_array *)a)->name, ((const gm_array *)b)->name);
}

static gm_status sort(gm_arrays *s)
{
    if (s->n) qsort(s->list, (size_t)s->n, sizeof *s->list, by_name);
    for (int i = 1; i < s->n; i++)
        if (!strcmp(s->list[i - 1].name, s->list[i].name))
            return GM_FAIL(GM_ECORRUPT, "%s: has two arrays of the name '%s'", s->path, s->list[i].name);
    return GM_OK;
}

/* "folder/name" for a name in an index, which must not lead out of the folder. */
static gm_status path_beside(const char *index, const char *name, char **out)
{
    const char *slash = strrchr(index, '/');
    if (strchr(name, '/') || !*name)
        return GM_FAIL(GM_ECORRUPT, "%s: names the file '%.80s', which is not beside it", index, name);
    if (asprintf(out, "%.*s%s", slash ? (int)(slash - index) + 1 : 0, index, name) < 0) *out = NULL;
    return *out ? GM_OK : GM_FAIL(GM_ENOMEM, "%s: no memory for a name", index);
}

/* What is wrong with a file that an index names. */
static gm_status of_index(const gm_arrays *s, const char *name, gm_status st)
{
    char why[600];
    snprintf(why, sizeof why, "%s", gm_last_error());
    return GM_FAIL(st, "%s: the file of '%.80s': %s", s->path, name, why);
}

/* The files that an index names, each once, and nothing that it does not place there. */
static gm_status add_indexed(gm_arrays *s, json_t *map)
{
    const char *name;
    json_t     *file, *seen = json_object();
    gm_status   st = seen ? GM_OK : GM_FAIL(GM_ENOMEM, "%s: no memory to read it", s->path);
    json_object_foreach(map, name, file)
    {
        char *path = NULL;
        if (st != GM_OK) break;
        if (!json_is_string(file)) st = GM_FAIL(GM_ECORRUPT, "%s: '%.80s' has no file", s->path, name);
        else if (json_object_get(seen, json_string_value(file))) continue;
        else st = path_beside(s->path, json_string_value(file), &path);
        if (st == GM_OK && (st = add_file(s, path)) != GM_OK) st = of_index(s, name, st);
        if (st == GM_OK) json_object_set_new(seen, json_string_value(file), json_true());
        free(path);
    }
    json_decref(seen);
    return st;
}

/* Every name of the index is where it says. Files have been added in the order of their first names. */
static gm_status check_indexed(const gm_arrays *s, json_t *map)
{
    const char *name;
    json_t     *file;
    json_object_foreach(map, name, file)
    {
        const gm_array *a = gm_arrays_find(s, name);
        if (!a || !ends_with(s->files[a->file].path, json_string_value(file)))
            return GM_FAIL(GM_ECORRUPT, "%s: '%.80s' is not in the file %s", s->path, name, json_string_value(file));
    }
    if ((size_t)s->n != json_object_size(map))
        return GM_FAIL(GM_ECORRUPT, "%s: names %zu arrays, its files have %d", s->path, json_object_size(map), s->n);
    return GM_OK;
}

#define INDEX_MAX ((size_t)100 << 20)

static gm_status add_index(gm_arrays *s)
{
    gm_bytes     b;
    json_error_t e;
    GM_TRY(gm_bytes_map(s->path, GM_ACCESS_SEQUENTIAL, &b));
    char     *text = b.size <= INDEX_MAX ? malloc(b.size + 1) : NULL;
    gm_status st = text ? gm_bytes_copy(&b, 0, b.size, text)
                        : GM_FAIL(GM_ECORRUPT, "%s: %zu bytes are too many for an index", s->path, b.size);
    json_t   *root = st == GM_OK ? json_loadb(text, b.size, JSON_REJECT_DUPLICATES, &e) : NULL;
    json_t   *map = json_object_get(root, "weight_map");
    if (st == GM_OK && !root)
        st = GM_FAIL(GM_ECORRUPT, "%s: line %d, column %d: %s", s->path, e.line, e.column, e.text);
    if (st == GM_OK && !json_is_object(map)) st = GM_FAIL(GM_ECORRUPT, "%s: has no object weight_map", s->path);
    if (st == GM_OK) st = add_indexed(s, map);
    if (st == GM_OK) st = sort(s);
    if (st == GM_OK) st = check_indexed(s, map);
    json_decref(root);
    free(text);
    gm_bytes_close(&b);
    return st;
}

/* Pickles run code when they are read, so none is; this says how to have their numbers nevertheless. */
static gm_status no_weights(const char *folder)
{
    static const char *const pickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "adapter_model.bin",
                                          "diffusion_pytorch_model.bin"};
    struct stat              info;
    char                    *path;
    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++) {
        if (asprintf(&path, "%s/%s", folder, pickles[i]) < 0)
            return GM_FAIL(GM_ENOMEM, "%s: no memory for a name", folder);
        bool there = !stat(path, &info);
        free(path);
        if (there)
            return GM_FAIL(GM_EIO,
                           "%s: has %s, whose weights are a pickle of Python, and no safetensors; in Python, "
                           "from_pretrained(\"%s\") and then save_pretrained(\"%s\") write model.safetensors",
                           folder, pickles[i], folder, folder);
    }
    return GM_FAIL(GM_EIO, "%s: has neither model.safetensors nor model.safetensors.index.json; name the file", folder);
}

/* What of a folder is meant: an index, or the one file of weights. */
static gm_status choose_in_folder(const char *folder, char **out)
{
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors",
                                        "diffusion_pytorch_model.safetensors.index.json",
                                        "diffusion_pytorch_model.safetensors", "adapter_model.safetensors"};
    struct stat              info;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (asprintf(out, "%s/%s", folder, names[i]) < 0) return GM_FAIL(GM_ENOMEM, "%s: no memory for a name", folder);
        if (!stat(*out, &info)) return GM_OK;
        free(*out);
        *out = NULL;
    }
    return no_weights(folder);
}

static gm_status resolve(const char *path, char **out)
{
    struct stat info;
    if (!stat(path, &info) && S_ISDIR(info.st_mode)) return choose_in_folder(path, out);
    *out = strdup(path);
    return *out ? GM_OK : GM_FAIL(GM_ENOMEM, "%s: no memory to open it", path);
}

gm_status gm_arrays_open(const char *path, gm_arrays **out)
{
    gm_arrays *s = calloc(1, sizeof *s);
    if (!s) return GM_FAIL(GM_ENOMEM, "%s: no memory to open it", path);
    gm_status st = resolve(path, &s->path);
    if (st == GM_OK && ends_with(s->path, ".safetensors.index.json")) st = add_index(s);
    else if (st == GM_OK) {
        st = add_file(s, s->path);
        if (st == GM_OK) st = sort(s);
    }
    if (st == GM_OK) *out = s;
    else gm_arrays_close(s);
    return st;
}

void gm_arrays_close(gm_arrays *s)
{
    if (!s) return;
    for (int i = 0; i < s->n; i++) free(s->list[i].name);
    for (int i = 0; i < s->n_files; i++) gm_bytes_close(&s->files[i]);
    free(s->list);
    free(s->files);
    free(s->meta);
    free(s->path);
    free(s);
}

void gm_arrays_forget(const gm_arrays *s)
{
    for (int i = 0; i < s->n_files; i++) gm_bytes_forget(&s->files[i]);
}

const gm_array *gm_arrays_find(const gm_arrays *s, const char *name)
{
    const gm_array key = {.name = (char *)(uintptr_t)name};
    return s->n ? bsearch(&key, s->list, (size_t)s->n, sizeof *s->list, by_name) : NULL;
}
