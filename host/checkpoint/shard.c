/* shard.c - see shard.h. */
#define _GNU_SOURCE
#include "shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../../kernels/device.h"
#include "files.h"
#include "parts.h"

#define BUFFER ((size_t)4 << 20)

/* ---- what it will hold ---- */

static gm_status add_box(gm_shard *s, const gm_piece *p, const gm_extent *extent)
{
    gm_index_tensor *to = &s->index.tensors[s->index.n_tensors];
    gm_array        *entry = &s->entries[s->index.n_tensors];
    s->tensors[s->index.n_tensors++] = p->tensor;
    to->dtype = p->dtype, to->ndim = p->ndim, to->n_boxes = 1;
    memcpy(to->shape, p->shape, (size_t)p->ndim * sizeof *to->shape);
    to->name = strdup(p->name);
    to->boxes = calloc(1, sizeof *to->boxes);
    if (!to->name || !to->boxes) return GM_FAIL(GM_ENOMEM, "no memory to save tensor '%s'", p->name);
    to->boxes[0].extent = *extent;
    *entry = (gm_array){.name = gm_index_box_name(to, extent), .element = gm_element_of(p->dtype), .ndim = p->ndim};
    memcpy(entry->shape, extent->shape, sizeof entry->shape);
    return entry->name ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory to save tensor '%s'", p->name);
}

gm_status gm_shard_new(int world, int rank, const gm_piece *pieces, const gm_planned *planned, int n, gm_shard *out)
{
    gm_shard *s = out;
    size_t    boxes = 0;
    *s = (gm_shard){.index = {.world = world, .n_files = 1}};
    for (int i = 0; i < n; i++) boxes += planned[i].mine;
    s->index.files = calloc(1, sizeof *s->index.files);
    s->index.tensors = calloc(boxes + 1, sizeof *s->index.tensors);
    s->entries = calloc(boxes + 1, sizeof *s->entries);
    s->tensors = calloc(boxes + 1, sizeof *s->tensors);
    s->buffer = malloc(BUFFER);
    if (!s->index.files || !s->index.tensors || !s->entries || !s->tensors || !s->buffer ||
        !(s->index.files[0].name = gm_part_file(rank)))
        return GM_FAIL(GM_ENOMEM, "no memory to save %d tensors", n);
    for (int i = 0; i < n; i++)
        if (planned[i].mine) GM_TRY(add_box(s, &pieces[i], &planned[i].extent));
    GM_TRY(gm_safetensors_header(s->entries, (int)boxes, NULL, &s->header, &s->header_size));
    for (size_t i = 0; i < boxes; i++) s->bytes += s->entries[i].bytes;
    return GM_OK;
}

/* ---- data ---- */

/* n elements of box i, whose tensor's are at `from`, from element `at` of it on, into a packed run. */
static void pack(const gm_shard *s, int i, const void *from, int64_t at, int64_t n, char *run)
{
    const gm_tensor *t = s->tensors[i];
    const int64_t    origin[GM_MAX_DIMS] = {0};
    gm_extent        part = {.ndim = t->ndim}; /* the block begins with the box; padding follows it */
    memcpy(part.shape, s->entries[i].shape, sizeof part.shape);
    gm_extent_copy(&part, at, n, gm_dtype_size(t->dtype), run, (void *)(uintptr_t)from, t->stride, origin, true);
}

static gm_status check_data(const gm_shard *s, int i)
{
    if (!s->tensors[i] || !s->entries[i].bytes || gm_tensor_has_data(s->tensors[i])) return GM_OK;
    return GM_FAIL(GM_EINVAL, "tensor '%s' has no data that could be saved", s->entries[i].name);
}

/* Memory that will be touched once from end to end: large pages save most of what its first touch costs. */
static char *large_memory(size_t bytes)
{
    const size_t page = (size_t)2 << 20;
    if (bytes < page) return malloc(bytes + 1);
    char *p = aligned_alloc(page, (bytes + page - 1) / page * page);
    if (p) (void)madvise(p, (bytes + page - 1) / page * page, MADV_HUGEPAGE);
    return p;
}

static gm_status copy_boxes(gm_shard *s)
{
    char *to = s->copy;
    for (int i = 0; i < s->index.n_tensors; i++) {
        gm_host_elements from;
        GM_TRY(gm_host_open(s->tensors[i], &from));
        pack(s, i, from.data, 0, (int64_t)(s->entries[i].bytes / gm_element_bytes(s->entries[i].element)), to);
        gm_host_close(&from);
        to += s->entries[i].bytes;
    }
    return GM_OK;
}

gm_status gm_shard_copy(gm_shard *s, uint64_t limit)
{
    if (s->bytes > limit)
        return GM_FAIL(GM_ENOMEM, "a copy of what this rank saves takes %llu bytes of memory, %llu may be used",
                       (unsigned long long)s->bytes, (unsigned long long)limit);
    for (int i = 0; i < s->index.n_tensors; i++) GM_TRY(check_data(s, i));
    if (!(s->copy = large_memory((size_t)s->bytes)))
        return GM_FAIL(GM_ENOMEM, "no memory for a copy of what this rank saves, %llu bytes",
                       (unsigned long long)s->bytes);
    gm_status st = copy_boxes(s);
    if (st != GM_OK) { /* half a copy would be written as if it were the whole */
        free(s->copy);
        s->copy = NULL;
        return st;
    }
    memset(s->tensors, 0, (size_t)s->index.n_tensors * sizeof *s->tensors);
    return GM_OK;
}

/* Box i, whose bytes lie packed at `copy`, or else in its tensor, whose elements are at `from`. */
static gm_status write_bytes(gm_shard *s, int i, const char *copy, const void *from, gm_writer *w,
                             const atomic_bool *stop)
{
    size_t  size = gm_element_bytes(s->entries[i].element);
    int64_t n = (int64_t)(s->entries[i].bytes / size), most = (int64_t)(BUFFER / size);
    for (int64_t at = 0; at < n; at += most) {
        int64_t m = n - at < most ? n - at : most;
        if (atomic_load(stop)) return GM_FAIL(GM_EINTERRUPT, "%s: was left unfinished", w->path);
        if (!copy) pack(s, i, from, at, m, s->buffer);
        GM_TRY(gm_writer_write(w, copy ? copy + (size_t)at * size : s->buffer, (size_t)m * size));
    }
    return GM_OK;
}

static gm_status write_box(gm_shard *s, int i, const char *copy, gm_writer *w, const atomic_bool *stop)
{
    gm_host_elements from = {0};
    GM_TRY(check_data(s, i));
    if (!copy) GM_TRY(gm_host_open(s->tensors[i], &from));
    gm_status st = write_bytes(s, i, copy, from.data, w, stop);
    gm_host_close(&from);
    return st;
}

static gm_status write_file(gm_shard *s, gm_writer *w, const atomic_bool *stop)
{
    const char *copy = s->copy;
    GM_TRY(gm_writer_write(w, s->header, s->header_size));
    s->index.files[0].header_crc = w->crc;
    for (int i = 0; i < s->index.n_tensors; i++) {
        gm_index_box *b = s->index.tensors[i].boxes;
        gm_writer_mark(w);
        GM_TRY(write_box(s, i, copy, w, stop));
        b->begin = s->entries[i].begin, b->bytes = s->entries[i].bytes, b->crc = w->crc;
        if (copy) copy += b->bytes;
    }
    s->index.files[0].bytes = w->written;
    return gm_writer_finish(w);
}

gm_status gm_shard_write(gm_shard *s, const char *folder, const atomic_bool *stop)
{
    gm_writer w;
    gm_status st = gm_writer_open(folder, s->index.files[0].name, &w);
    if (st == GM_OK) st = write_file(s, &w, stop);
    gm_writer_drop(&w);
    free(s->copy); /* the memory is worth more to others */
    s->copy = NULL;
    return st;
}

void gm_shard_free(gm_shard *s)
{
    for (int i = 0; s->entries && i < s->index.n_tensors; i++) free(s->entries[i].name);
    gm_index_free(&s->index);
    free(s->entries);
    free(s->tensors);
    free(s->header);
    free(s->buffer);
    free(s->copy);
    *s = (gm_shard){0};
}
