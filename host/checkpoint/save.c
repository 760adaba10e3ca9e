/* save.c - writing a checkpoint; see checkpoint.h.
 *
 * Data goes out piece by piece through a buffer of fixed size, so a save needs no memory worth naming,
 * whatever the strides. The stages (shard, index, publish, prune) are what ranks will do between
 * barriers. */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "index.h"
#include "safetensors.h"

#define BUFFER ((size_t)1 << 20)

typedef struct save {
    const gm_piece **pieces; /* by name */
    gm_safetensor   *entries;
    gm_index         index;
    char            *buffer, *target, *beside;
    int              n;
} save;

/* ---- folders and names ---- */

static char *step_path(const char *folder, int64_t step, const char *ending)
{
    char *path = NULL;
    return asprintf(&path, "%s/step-%08lld%s", folder, (long long)step, ending) < 0 ? NULL : path;
}

char *gm_checkpoint_path(const char *folder, int64_t step) { return step_path(folder, step, ""); }

/* The step in "step-<8 or more digits><ending>", or -1. */
static int64_t step_of(const char *name, const char *ending)
{
    size_t digits;
    if (strncmp(name, "step-", 5)) return -1;
    digits = strspn(name + 5, "0123456789");
    if (digits < 8 || digits > 16 || strcmp(name + 5 + digits, ending)) return -1;
    return strtoll(name + 5, NULL, 10);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Steps of the entries of a folder that end so. */
static gm_status list_steps(const char *folder, const char *ending, int64_t **steps, int *n)
{
    size_t room = 0;
    *steps = NULL, *n = 0;
    DIR *d = opendir(folder);
    if (!d) return errno == ENOENT ? GM_OK : GM_FAIL(GM_EIO, "%s: cannot be opened: %s", folder, strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        int64_t step = step_of(e->d_name, ending);
        if (step < 0) continue;
        if ((size_t)*n == room) {
            int64_t *more = realloc(*steps, (room = room * 2 + 16) * sizeof **steps);
            if (!more) {
                closedir(d);
                free(*steps);
                return GM_FAIL(GM_ENOMEM, "%s: no memory to list it", folder);
            }
            *steps = more;
        }
        (*steps)[(*n)++] = step;
    }
    closedir(d);
    if (*n) qsort(*steps, (size_t)*n, sizeof **steps, ascending);
    return GM_OK;
}

gm_status gm_checkpoint_list(const char *folder, int64_t **steps, int *n) { return list_steps(folder, "", steps, n); }

/* Removes what interrupted saves and removals left. */
static gm_status clear_leftovers(const char *folder)
{
    int64_t *steps;
    int      n;
    GM_TRY(list_steps(folder, ".tmp", &steps, &n));
    gm_status st = GM_OK;
    for (int i = 0; st == GM_OK && i < n; i++) {
        char *path = step_path(folder, steps[i], ".tmp");
        st = path ? gm_files_remove(path) : GM_FAIL(GM_ENOMEM, "%s: no memory for a name", folder);
        free(path);
    }
    free(steps);
    return st;
}

/* Out of sight first, so that a removal that stops halfway is no damaged checkpoint. */
static gm_status remove_step(const char *folder, int64_t step)
{
    char     *path = step_path(folder, step, ""), *away = step_path(folder, step, ".tmp");
    gm_status st = GM_OK;
    if (!path || !away) st = GM_FAIL(GM_ENOMEM, "%s: no memory for a name", folder);
    else if (rename(path, away)) st = GM_FAIL(GM_EIO, "%s: cannot be removed: %s", path, strerror(errno));
    else st = gm_files_remove(away);
    free(path);
    free(away);
    return st;
}

static gm_status prune(const char *folder, int keep_last, int64_t saved)
{
    int64_t  *steps;
    int       n;
    gm_status st = gm_checkpoint_list(folder, &steps, &n);
    if (st != GM_OK) return st;
    for (int i = 0, left = n; st == GM_OK && i < n && left > keep_last; i++)
        if (steps[i] != saved) st = remove_step(folder, steps[i]), left--;
    free(steps);
    return st;
}

/* ---- one rank's file ---- */

static gm_status write_piece(gm_writer *w, const gm_piece *p, char *buffer)
{
    const gm_tensor *t = p->tensor;
    size_t           size = gm_dtype_size(t->dtype);
    int64_t          n = gm_tensor_numel(t), origin[GM_MAX_DIMS] = {0};
    if (!n) return GM_OK;
    char *data = gm_tensor_data(t);
    if (!data) return GM_FAIL(GM_EINVAL, "tensor '%s' has no data that could be saved", p->name);
    if (gm_tensor_is_contiguous(t)) return gm_writer_write(w, data, (size_t)n * size);
    gm_extent part = {.ndim = t->ndim};
    memcpy(part.shape, t->shape, sizeof part.shape);
    for (int64_t at = 0, step = (int64_t)(BUFFER / size); at < n; at += step) {
        int64_t m = n - at < step ? n - at : step;
        gm_extent_copy(&part, at, m, size, buffer, data, t->stride, origin, true);
        GM_TRY(gm_writer_write(w, buffer, (size_t)m * size));
    }
    return GM_OK;
}

static gm_status write_data(save *s, gm_writer *w)
{
    char  *header;
    size_t size;
    GM_TRY(gm_safetensors_header(s->entries, s->n, &header, &size));
    gm_status st = gm_writer_write(w, header, size);
    free(header);
    s->index.files[0].header_crc = w->crc;
    for (int i = 0; st == GM_OK && i < s->n; i++) {
        gm_index_box *b = s->index.tensors[i].boxes;
        gm_writer_mark(w);
        st = write_piece(w, s->pieces[i], s->buffer);
        b->begin = s->entries[i].begin, b->bytes = s->entries[i].bytes, b->crc = w->crc;
    }
    s->index.files[0].bytes = w->written;
    return st;
}

static gm_status write_shard(save *s)
{
    gm_writer w;
    gm_status st = gm_writer_open(s->beside, s->index.files[0].name, &w);
    if (st == GM_OK) st = write_data(s, &w);
    if (st == GM_OK) st = gm_writer_finish(&w);
    gm_writer_drop(&w);
    return st;
}

static gm_status write_index(save *s)
{
    char     *text = NULL;
    size_t    size;
    gm_writer w;
    GM_TRY(gm_index_format(&s->index, &text, &size));
    gm_status st = gm_writer_open(s->beside, GM_INDEX_NAME, &w);
    if (st == GM_OK) st = gm_writer_write(&w, text, size);
    if (st == GM_OK) st = gm_writer_finish(&w);
    gm_writer_drop(&w);
    free(text);
    return st;
}

/* The rename is the moment at which the checkpoint exists. One of the same step is exchanged in one go
 * where the file system can, so that at no moment there is none. */
static gm_status publish(const char *folder, save *s)
{
    GM_TRY(gm_files_sync_folder(s->beside));
    if (rename(s->beside, s->target)) {
        if (errno != ENOTEMPTY && errno != EEXIST)
            return GM_FAIL(GM_EIO, "%s: cannot be renamed: %s", s->beside, strerror(errno));
        if (renameat2(AT_FDCWD, s->beside, AT_FDCWD, s->target, RENAME_EXCHANGE))
            return GM_FAIL(GM_EIO, "%s: exists, and cannot be exchanged with the new one: %s; remove it", s->target,
                           strerror(errno));
    }
    return gm_files_sync_folder(folder);
}

/* ---- putting it together ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const gm_piece *const *)a)->name, (*(const gm_piece *const *)b)->name);
}

static gm_status check_pieces(const save *s)
{
    char got[96], want[96];
    for (int i = 0; i < s->n; i++) {
        const gm_piece *p = s->pieces[i];
        if (!*p->name || !strcmp(p->name, "__metadata__"))
            return GM_FAIL(GM_EINVAL, "a tensor cannot be called '%s'", p->name);
        if (i && !strcmp(p->name, s->pieces[i - 1]->name))
            return GM_FAIL(GM_EINVAL, "two tensors are called '%s'", p->name);
        for (int d = 0; d < p->tensor->ndim; d++)
            if (p->offset[d] || p->shape[d] != p->tensor->shape[d])
                return GM_FAIL(GM_ESHAPE, "tensor '%s': one rank saves whole tensors; this is %s of %s", p->name,
                               gm_shape_describe(p->tensor->ndim, p->tensor->shape, got, sizeof got),
                               gm_shape_describe(p->tensor->ndim, p->shape, want, sizeof want));
    }
    return GM_OK;
}

static gm_status describe(save *s)
{
    gm_index *x = &s->index;
    x->world = x->n_files = 1;
    x->files = calloc(1, sizeof *x->files);
    x->tensors = calloc((size_t)s->n + 1, sizeof *x->tensors);
    s->entries = calloc((size_t)s->n + 1, sizeof *s->entries);
    s->buffer = malloc(BUFFER);
    if (!x->files || !x->tensors || !s->entries || !s->buffer || !(x->files[0].name = strdup("rank-00000.safetensors")))
        return GM_FAIL(GM_ENOMEM, "no memory to save %d tensors", s->n);
    for (int i = 0; i < s->n; i++) {
        const gm_tensor *t = s->pieces[i]->tensor;
        gm_index_tensor *to = &x->tensors[x->n_tensors++];
        to->dtype = t->dtype, to->ndim = t->ndim, to->n_boxes = 1;
        memcpy(to->shape, t->shape, sizeof to->shape);
        to->name = strdup(s->pieces[i]->name);
        to->boxes = calloc(1, sizeof *to->boxes);
        if (!to->name || !to->boxes) return GM_FAIL(GM_ENOMEM, "no memory to save %d tensors", s->n);
        to->boxes[0].extent.ndim = t->ndim;
        memcpy(to->boxes[0].extent.shape, t->shape, sizeof to->shape);
        s->entries[i] = (gm_safetensor){.name = to->name, .dtype = t->dtype, .ndim = t->ndim};
        memcpy(s->entries[i].shape, t->shape, sizeof to->shape);
    }
    return GM_OK;
}

static gm_status write_all(const char *folder, save *s)
{
    gm_files_guard guard;
    gm_status      st;
    GM_TRY(gm_files_mkdirs(folder));
    GM_TRY(clear_leftovers(folder));
    if (mkdir(s->beside, 0777)) return GM_FAIL(GM_EIO, "%s: cannot be made: %s", s->beside, strerror(errno));
    gm_files_begin(&guard);
    st = write_shard(s);
    if (st == GM_OK) st = write_index(s);
    gm_files_end(&guard);
    if (st == GM_OK) st = publish(folder, s);
    char why[1024];
    snprintf(why, sizeof why, "%s", gm_last_error());
    gm_status removed = gm_files_remove(s->beside); /* nothing, an older one, or what could not be finished */
    return st == GM_OK ? removed : gm_fail_again(st, why);
}

static void drop(save *s)
{
    s->index.meta = NULL; /* the caller's */
    gm_index_free(&s->index);
    free(s->pieces);
    free(s->entries);
    free(s->buffer);
    free(s->target);
    free(s->beside);
}

gm_status gm_checkpoint_save(const char *folder, int64_t step, const gm_piece *pieces, int n, const char *meta,
                             int keep_last, char **path)
{
    gm_status st = GM_OK;
    save      s = {.n = n};
    if (step < 0 || step > (int64_t)1 << 53) return GM_FAIL(GM_EINVAL, "a checkpoint of step %lld", (long long)step);
    s.target = step_path(folder, step, "");
    s.beside = step_path(folder, step, ".tmp");
    s.pieces = malloc((size_t)n * sizeof *s.pieces + 1);
    if (!s.target || !s.beside || !s.pieces) st = GM_FAIL(GM_ENOMEM, "no memory to save %d tensors", n);
    if (st == GM_OK) {
        for (int i = 0; i < n; i++) s.pieces[i] = &pieces[i];
        qsort(s.pieces, (size_t)n, sizeof *s.pieces, by_name);
        s.index.meta = (char *)(uintptr_t)meta;
        st = check_pieces(&s);
    }
    if (st == GM_OK) st = describe(&s);
    if (st == GM_OK) st = write_all(folder, &s);
    if (st == GM_OK && keep_last > 0) st = prune(folder, keep_last, step);
    if (st == GM_OK) {
        *path = s.target;
        s.target = NULL;
    }
    drop(&s);
    return st;
}
