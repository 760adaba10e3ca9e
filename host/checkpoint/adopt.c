/* adopt.c - see adopt.h. */
#include "adopt.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../arrays/safetensors.h"
#include "files.h"
#include "index.h"
#include "parts.h"
#include "steps.h"

#define BUFFER ((size_t)1 << 20)

struct gm_adopt {
    char *folder, *target, *beside, *name, *file;
    int   lock;
    bool  prepared;
};

gm_status gm_adopt_begin(const char *folder, int64_t step, gm_adopt **out)
{
    gm_adopt *a = calloc(1, sizeof *a);
    if (!a) return GM_FAIL(GM_ENOMEM, "%s: no memory for a checkpoint", folder);
    a->lock = -1;
    a->folder = strdup(folder);
    a->target = gm_steps_path(folder, step, "");
    a->beside = gm_steps_path(folder, step, ".tmp");
    a->name = gm_part_file(0);
    a->file = a->beside && a->name ? gm_files_join(a->beside, a->name) : NULL;
    gm_status st = a->folder && a->target && a->file ? gm_steps_prepare(folder, a->beside, &a->lock)
                                                     : GM_FAIL(GM_ENOMEM, "%s: no memory for a name", folder);
    a->prepared = st == GM_OK;
    if (st == GM_OK) *out = a;
    else gm_adopt_free(a);
    return st;
}

const char *gm_adopt_file(const gm_adopt *a) { return a->file; }
const char *gm_adopt_path(const gm_adopt *a) { return a->target; }

/* ---- the index of the file ---- */

typedef struct source {
    const char *file;
    int         fd;
    char       *buffer;
} source;

static gm_status sum(const source *s, uint64_t begin, uint64_t bytes, uint32_t *crc)
{
    *crc = 0;
    for (uint64_t done = 0; done < bytes;) {
        size_t n = bytes - done < BUFFER ? (size_t)(bytes - done) : BUFFER;
        GM_TRY(gm_files_read(s->fd, s->file, begin + done, n, s->buffer));
        *crc = gm_crc32c(*crc, s->buffer, n);
        done += n;
    }
    return GM_OK;
}

static gm_status add_tensor(const source *s, const gm_array *e, gm_index *x)
{
    gm_index_tensor *t = &x->tensors[x->n_tensors++];
    t->dtype = gm_element_dtype(e->element);
    t->ndim = e->ndim;
    t->n_boxes = 1;
    memcpy(t->shape, e->shape, sizeof t->shape);
    t->name = strdup(e->name);
    t->boxes = calloc(1, sizeof *t->boxes);
    if (!t->name || !t->boxes) return GM_FAIL(GM_ENOMEM, "%s: no memory for its index", s->file);
    if (t->dtype == GM_DTYPE_NONE)
        return GM_FAIL(GM_EINVAL, "%s: '%s' is of type %s, which checkpoints do not have", s->file, e->name,
                       gm_element_name(e->element));
    gm_index_box *b = t->boxes;
    b->extent.ndim = e->ndim;
    memcpy(b->extent.shape, e->shape, sizeof b->extent.shape);
    b->begin = e->begin;
    b->bytes = e->bytes;
    return sum(s, b->begin, b->bytes, &b->crc);
}

static gm_status list_tensors(const source *s, const gm_safetensors *found, const char *meta, gm_index *x)
{
    x->tensors = calloc((size_t)found->n + 1, sizeof *x->tensors);
    x->meta = strdup(meta);
    if (!x->tensors || !x->meta) return GM_FAIL(GM_ENOMEM, "%s: no memory for its index", s->file);
    for (int i = 0; i < found->n; i++) GM_TRY(add_tensor(s, &found->list[i], x));
    return sum(s, 0, found->data, &x->files[0].header_crc);
}

static gm_status read_header(const source *s, uint64_t size, gm_safetensors *out)
{
    unsigned char first8[8] = {0};
    size_t        n;
    if (size >= sizeof first8) GM_TRY(gm_files_read(s->fd, s->file, 0, sizeof first8, first8));
    GM_TRY(gm_safetensors_length(s->file, first8, size, &n));
    char *text = malloc(n + 1);
    if (!text) return GM_FAIL(GM_ENOMEM, "%s: no memory for its header", s->file);
    gm_status st = gm_files_read(s->fd, s->file, sizeof first8, n, text);
    if (st == GM_OK) st = gm_safetensors_parse(s->file, text, n, size, out);
    free(text);
    return st;
}

static gm_status describe(const gm_adopt *a, source *s, const char *meta, gm_index *x)
{
    gm_safetensors found = {0};
    x->files = calloc(1, sizeof *x->files);
    x->n_files = x->files != NULL;
    s->buffer = malloc(BUFFER);
    if (!x->files || !s->buffer || !(x->files[0].name = strdup(a->name)))
        return GM_FAIL(GM_ENOMEM, "%s: no memory for its index", a->file);
    GM_TRY(gm_files_open(a->beside, a->name, &s->fd, &x->files[0].bytes));
    gm_status st = read_header(s, x->files[0].bytes, &found);
    if (st == GM_OK) st = list_tensors(s, &found, meta, x);
    gm_safetensors_free(&found);
    return st;
}

static gm_status write_index(const gm_adopt *a, const gm_index *x)
{
    char     *text = NULL;
    size_t    size;
    gm_writer w;
    GM_TRY(gm_index_format(x, &text, &size));
    gm_status st = gm_writer_open(a->beside, GM_INDEX_NAME, &w);
    if (st == GM_OK) st = gm_writer_write(&w, text, size);
    if (st == GM_OK) st = gm_writer_finish(&w);
    gm_writer_drop(&w);
    free(text);
    return st;
}

gm_status gm_adopt_finish(gm_adopt *a, const char *meta)
{
    source    s = {.file = a->file, .fd = -1};
    gm_index  x = {.world = 1};
    gm_status st = describe(a, &s, meta, &x);
    if (st == GM_OK) st = write_index(a, &x);
    if (st == GM_OK) st = gm_steps_publish(a->folder, a->beside, a->target);
    if (st == GM_OK) st = gm_files_remove(a->beside); /* what was there before, if anything was */
    a->prepared = a->prepared && st != GM_OK;
    if (s.fd >= 0) close(s.fd);
    free(s.buffer);
    gm_index_free(&x);
    return st;
}

void gm_adopt_free(gm_adopt *a)
{
    if (!a) return;
    if (a->prepared) (void)gm_files_remove(a->beside);
    if (a->lock >= 0) close(a->lock);
    free(a->folder);
    free(a->target);
    free(a->beside);
    free(a->name);
    free(a->file);
    free(a);
}
