/* write.c - see write.h. */
#define _GNU_SOURCE
#include "write.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "../../kernels/device.h"
#include "../files/files.h"
#include "safetensors.h"

#define BUFFER ((int64_t)1 << 17) /* elements that are converted at once */

struct gm_arrays_writer {
    char      *stem; /* the path without .safetensors */
    gm_array  *list; /* file: index of files; begin: in that file */
    int64_t   *left; /* elements of each that have not come yet */
    int        n;
    gm_beside *files;
    int        n_files;
    json_t    *places;    /* name -> index in list */
    char      *raw, *run; /* elements as the tensor has them, and as the file has them */
};

void gm_arrays_writer_drop(gm_arrays_writer *w)
{
    if (!w) return;
    for (int i = 0; w->list && i < w->n; i++) free(w->list[i].name);
    for (int i = 0; w->files && i < w->n_files; i++) gm_beside_drop(&w->files[i]);
    json_decref(w->places);
    free(w->stem);
    free(w->list);
    free(w->left);
    free(w->files);
    free(w->raw);
    free(w->run);
    free(w);
}

/* ---- opening ---- */

static gm_status take_array(gm_arrays_writer *w, const gm_array *from, int i)
{
    gm_array *a = &w->list[i];
    *a = (gm_array){.element = from->element, .ndim = from->ndim, .name = strdup(from->name)};
    if (!a->name) return GM_FAIL(GM_ENOMEM, "no memory for the names of %d arrays", w->n);
    memcpy(a->shape, from->shape, sizeof a->shape);
    if (!strcmp(a->name, "__metadata__")) return GM_FAIL(GM_EINVAL, "an array cannot have the name __metadata__");
    if (json_object_get(w->places, a->name)) return GM_FAIL(GM_EINVAL, "two arrays have the name '%s'", a->name);
    if (a->element >= GM_ELEMENT_COUNT || gm_element_dtype(a->element) == GM_DTYPE_NONE)
        return GM_FAIL(GM_EINVAL, "array '%s' has a type that is read only", a->name);
    if (!gm_array_size(a->element, a->ndim, a->shape, &a->bytes))
        return GM_FAIL(GM_ESHAPE, "array '%s' is too large", a->name);
    w->left[i] = (int64_t)(a->bytes / gm_element_bytes(a->element));
    if (json_object_set_new(w->places, a->name, json_integer(i)))
        return GM_FAIL(GM_EINVAL, "the name of array %d of %d is not UTF-8", i + 1, w->n);
    return GM_OK;
}

/* In their order, as many arrays a file as it may have. */
static void share_out(gm_arrays_writer *w, uint64_t most)
{
    uint64_t sum = 0;
    w->n_files = 1;
    for (int i = 0; i < w->n; i++) {
        if (sum && sum + w->list[i].bytes > most) w->n_files++, sum = 0;
        sum += w->list[i].bytes;
        w->list[i].file = w->n_files - 1;
    }
}

/* NULL: no memory. */
static char *path_of(const gm_arrays_writer *w, int file)
{
    size_t room = strlen(w->stem) + 64;
    char  *path = malloc(room);
    if (path && w->n_files == 1) snprintf(path, room, "%s.safetensors", w->stem);
    else if (path) snprintf(path, room, "%s-%05d-of-%05d.safetensors", w->stem, file + 1, w->n_files);
    return path;
}

static char *index_path(const gm_arrays_writer *w)
{
    size_t room = strlen(w->stem) + 64;
    char  *path = malloc(room);
    if (path) snprintf(path, room, "%s.safetensors.index.json", w->stem);
    return path;
}

static gm_status refuse_existing(const char *path)
{
    struct stat about;
    if (!path) return GM_FAIL(GM_ENOMEM, "no memory for a name");
    if (lstat(path, &about)) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: is there already; remove it, or write elsewhere", path);
}

static gm_status open_file(gm_arrays_writer *w, int file, const char *meta)
{
    int    first = 0, end;
    char  *header = NULL, *path = path_of(w, file);
    size_t size = 0;
    while (first < w->n && w->list[first].file < file) first++;
    for (end = first; end < w->n && w->list[end].file == file;) end++;
    gm_status st = refuse_existing(path);
    if (st == GM_OK) st = gm_safetensors_header(w->list + first, end - first, meta, &header, &size);
    if (st == GM_OK) st = gm_beside_open(path, &w->files[file]);
    if (st == GM_OK) st = gm_beside_write(&w->files[file], 0, header, size);
    free(header);
    free(path);
    return st;
}

static gm_status fill(gm_arrays_writer *w, const char *path, const gm_array *list, const char *meta, uint64_t most)
{
    const char *end = strrchr(path, '.');
    if (!end || strcmp(end, ".safetensors"))
        return GM_FAIL(GM_EINVAL, "%s: the name of the file must end in .safetensors", path);
    w->stem = strndup(path, (size_t)(end - path));
    w->list = calloc((size_t)w->n + 1, sizeof *w->list);
    w->left = calloc((size_t)w->n + 1, sizeof *w->left);
    w->places = json_object();
    w->raw = malloc((size_t)BUFFER * 8);
    w->run = malloc((size_t)BUFFER * 8);
    if (!w->stem || !w->list || !w->left || !w->places || !w->raw || !w->run)
        return GM_FAIL(GM_ENOMEM, "%s: no memory to write it", path);
    for (int i = 0; i < w->n; i++) GM_TRY(take_array(w, &list[i], i));
    share_out(w, most);
    w->files = calloc((size_t)w->n_files, sizeof *w->files);
    if (!w->files) return GM_FAIL(GM_ENOMEM, "%s: no memory to write it", path);
    char     *index = index_path(w);
    gm_status st = refuse_existing(index);
    free(index);
    for (int i = 0; st == GM_OK && i < w->n_files; i++) st = open_file(w, i, meta);
    return st;
}

gm_status gm_arrays_writer_open(const char *path, const gm_array *list, int n, const char *meta,
                                uint64_t max_file_bytes, gm_arrays_writer **out)
{
    gm_arrays_writer *w = calloc(1, sizeof *w);
    if (!w) return GM_FAIL(GM_ENOMEM, "%s: no memory to write it", path);
    w->n = n;
    gm_status st = fill(w, path, list, meta, max_file_bytes);
    if (st == GM_OK) *out = w;
    else gm_arrays_writer_drop(w);
    return st;
}

const gm_array *gm_arrays_writer_find(const gm_arrays_writer *w, const char *name)
{
    json_t *place = json_object_get(w->places, name);
    return place ? &w->list[json_integer_value(place)] : NULL;
}

/* ---- numbers ---- */

/* n elements that lie one after the other in the file, from element `at` of the array on. */
static gm_status write_run(gm_arrays_writer *w, const gm_array *a, gm_dtype from, int64_t at, int64_t n)
{
    size_t   size = gm_element_bytes(a->element);
    uint64_t place = a->begin + (uint64_t)at * size;
    gm_dtype to = gm_element_dtype(a->element);
    if (from == to) return gm_beside_write(&w->files[a->file], place, w->raw, (size_t)n * size);
    gm_elements_decode(gm_element_of(from), false, (const unsigned char *)w->raw, n, to, w->run);
    return gm_beside_write(&w->files[a->file], place, w->run, (size_t)n * size);
}

static gm_status write_piece(gm_arrays_writer *w, const gm_array_piece *p, const gm_tensor *t, char *elements)
{
    const gm_array *a = &p->array;
    int64_t         stride[GM_MAX_DIMS];
    gm_extent       box = {.ndim = a->ndim}, whole = {.ndim = a->ndim};
    for (int d = 0; d < t->ndim; d++) {
        int k = p->order[d];
        box.offset[k] = p->offset[k];
        box.shape[k] = p->part.shape[d];
        whole.shape[k] = a->shape[k];
        stride[k] = t->stride[d];
        elements += p->part.offset[d] * t->stride[d] * (int64_t)gm_dtype_size(t->dtype);
    }
    const int64_t total = gm_extent_numel(&box), run = total ? gm_extent_run(&box, &whole) : 1;
    for (int64_t first = 0; first < total; first += run) {
        int64_t begin = gm_extent_place(&box, &whole, first);
        for (int64_t done = 0; done < run; done += BUFFER) {
            int64_t n = run - done < BUFFER ? run - done : BUFFER;
            gm_extent_copy(&box, first + done, n, gm_dtype_size(t->dtype), w->raw, elements, stride, box.offset, true);
            GM_TRY(write_run(w, a, t->dtype, begin + done, n));
        }
    }
    return GM_OK;
}

/* Elements that came twice are as wrong as those that never came. */
static gm_status count(gm_arrays_writer *w, const gm_array_piece *p)
{
    int64_t *left = &w->left[gm_arrays_writer_find(w, p->array.name) - w->list];
    *left -= gm_extent_numel(&p->part);
    return *left >= 0 ? GM_OK : GM_FAIL(GM_EINVAL, "array '%s' was given more elements than it has", p->array.name);
}

gm_status gm_arrays_writer_put(gm_arrays_writer *w, const gm_array_piece *pieces, int n, const gm_tensor *t)
{
    gm_host_elements elements;
    for (int i = 0; i < n; i++) {
        GM_TRY(gm_array_piece_check(&pieces[i], t->ndim, t->shape));
        GM_TRY(count(w, &pieces[i]));
    }
    if (!n || !gm_tensor_numel(t)) return GM_OK;
    if (!gm_tensor_has_data(t))
        return GM_FAIL(GM_EINVAL, "the tensor for '%s' has no numbers on this device", pieces[0].array.name);
    GM_TRY(gm_host_open(t, &elements));
    gm_status st = GM_OK;
    for (int i = 0; st == GM_OK && i < n; i++) st = write_piece(w, &pieces[i], t, elements.data);
    gm_host_close(&elements);
    return st;
}

/* ---- the end ---- */

static gm_status write_index(const gm_arrays_writer *w)
{
    char      *path = index_path(w), *text = NULL;
    json_int_t bytes = 0;
    json_t    *map = json_object(), *root = json_object();
    for (int i = 0; i < w->n; i++) {
        char       *file = path_of(w, w->list[i].file);
        const char *slash = file ? strrchr(file, '/') : NULL;
        json_object_set_new(map, w->list[i].name, json_string(slash ? slash + 1 : file));
        bytes += (json_int_t)w->list[i].bytes;
        free(file);
    }
    bool whole = json_object_size(map) == (size_t)w->n;
    json_object_set_new(root, "metadata", json_pack("{s:I}", "total_size", bytes));
    json_object_set_new(root, "weight_map", map);
    if (whole) text = json_dumps(root, JSON_INDENT(2));
    gm_status st = GM_FAIL(GM_ENOMEM, "no memory for an index");
    if (text && path) st = gm_write_whole(path, text, strlen(text));
    json_decref(root);
    free(path);
    free(text);
    return st;
}

static gm_status finish(gm_arrays_writer *w)
{
    for (int i = 0; i < w->n; i++)
        if (w->left[i])
            return GM_FAIL(GM_EINVAL, "array '%s' has not got all of its numbers: %lld are missing", w->list[i].name,
                           (long long)w->left[i]);
    for (int i = 0; i < w->n_files; i++) GM_TRY(gm_beside_finish(&w->files[i]));
    return w->n_files > 1 ? write_index(w) : GM_OK;
}

gm_status gm_arrays_writer_close(gm_arrays_writer *w)
{
    gm_status st = finish(w);
    gm_arrays_writer_drop(w);
    return st;
}
