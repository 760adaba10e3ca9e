/* open.c - reading a checkpoint; see checkpoint.h. */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../kernels/device.h"
#include "../arrays/safetensors.h"
#include "files.h"
#include "index.h"
#include "parts.h"
#include "plan.h"

#define BUFFER ((size_t)1 << 20)

struct gm_checkpoint {
    char    *path;
    gm_index index;
    int     *fds;         /* of index.files */
    char    *buffer;      /* BUFFER bytes */
    int      part, parts; /* whose share of the checksums this is; parts 0: nobody's */
    bool     partly;      /* files may be missing, whose fds are then -1 */
};

/* ---- verifying ---- */

static gm_status read_index(gm_checkpoint *c, const char *file, gm_index_kind kind)
{
    int         fd = -1;
    uint64_t    size;
    struct stat info;
    if (stat(c->path, &info)) return GM_FAIL(GM_EIO, "%s: there is no checkpoint: %s", c->path, strerror(errno));
    char *name = gm_files_join(c->path, file), *text = NULL;
    if (!name) return GM_FAIL(GM_ENOMEM, "%s: no memory to open it", c->path);
    gm_status st = gm_files_open(c->path, file, &fd, &size);
    if (st == GM_OK && size > GM_INDEX_MAX)
        st = GM_FAIL(GM_ECORRUPT, "%s: %llu bytes are too many", name, (unsigned long long)size);
    if (st == GM_OK && !(text = malloc((size_t)size + 1))) st = GM_FAIL(GM_ENOMEM, "%s: no memory to read it", name);
    if (st == GM_OK) st = gm_files_read(fd, name, 0, (size_t)size, text);
    if (st == GM_OK) st = gm_index_parse(name, text, (size_t)size, kind, &c->index);
    if (fd >= 0) close(fd);
    free(text);
    free(name);
    return st;
}

/* The box's bytes, through their checksum. */
static gm_status check_box(gm_checkpoint *c, const char *file, const gm_index_tensor *t, const gm_index_box *b)
{
    uint32_t crc = 0;
    for (uint64_t done = 0; done < b->bytes;) {
        size_t n = b->bytes - done < BUFFER ? (size_t)(b->bytes - done) : BUFFER;
        GM_TRY(gm_files_read(c->fds[b->file], file, b->begin + done, n, c->buffer));
        crc = gm_crc32c(crc, c->buffer, n);
        done += n;
    }
    if (crc != b->crc)
        return GM_FAIL(GM_ECORRUPT, "%s: tensor '%s' is damaged: its CRC32C is %08x, the index tells %08x", file,
                       t->name, crc, b->crc);
    return GM_OK;
}

/* A box of the index against the entry of the same name in its file. */
static gm_status check_entry(const char *file, const gm_safetensors *s, const gm_index_tensor *t, const gm_index_box *b)
{
    char *name = gm_index_box_name(t, &b->extent);
    if (!name) return GM_FAIL(GM_ENOMEM, "%s: no memory to check it", file);
    const gm_array *e = gm_safetensors_find(s, name);
    bool same = e && gm_element_dtype(e->element) == t->dtype && e->ndim == t->ndim && e->begin == b->begin &&
                e->bytes == b->bytes;
    for (int i = 0; same && i < t->ndim; i++) same = e->shape[i] == b->extent.shape[i];
    free(name);
    return same ? GM_OK : GM_FAIL(GM_ECORRUPT, "%s: holds tensor '%s' otherwise than the index tells", file, t->name);
}

/* Boxes are shared by where their middle lies in all the bytes, file after file. */
static bool is_my_share(const gm_checkpoint *c, int file, const gm_index_box *b)
{
    if (!c->parts) return false;
    double before = (double)b->begin + 0.5 * (double)b->bytes, all = 0;
    for (int i = 0; i < c->index.n_files; i++) {
        if (i < file) before += (double)c->index.files[i].bytes;
        all += (double)c->index.files[i].bytes;
    }
    int share = (int)(before / all * c->parts);
    return (share < c->parts ? share : c->parts - 1) == c->part;
}

static gm_status check_boxes(gm_checkpoint *c, int file, const char *path, const gm_safetensors *s)
{
    int met = 0;
    for (int i = 0; i < c->index.n_tensors; i++) {
        const gm_index_tensor *t = &c->index.tensors[i];
        for (int k = 0; k < t->n_boxes; k++) {
            if (t->boxes[k].file != file) continue;
            GM_TRY(check_entry(path, s, t, &t->boxes[k]));
            if (is_my_share(c, file, &t->boxes[k])) GM_TRY(check_box(c, path, t, &t->boxes[k]));
            met++;
        }
    }
    if (met != s->n) return GM_FAIL(GM_ECORRUPT, "%s: holds %d tensors, the index tells of %d", path, s->n, met);
    return GM_OK;
}

/* *crc: of all bytes before the data. */
static gm_status read_header(const char *path, int fd, uint64_t size, gm_safetensors *s, uint32_t *crc)
{
    unsigned char first8[8] = {0};
    size_t        n;
    if (size >= sizeof first8) GM_TRY(gm_files_read(fd, path, 0, sizeof first8, first8));
    GM_TRY(gm_safetensors_length(path, first8, size, &n));
    char *text = malloc(n + 1);
    if (!text) return GM_FAIL(GM_ENOMEM, "%s: no memory for its header", path);
    gm_status st = gm_files_read(fd, path, sizeof first8, n, text);
    if (st == GM_OK) *crc = gm_crc32c(gm_crc32c(0, first8, sizeof first8), text, n);
    if (st == GM_OK) st = gm_safetensors_parse(path, text, n, size, s);
    free(text);
    return st;
}

static gm_status check_header(const char *path, int fd, uint64_t size, const gm_index_file *f, gm_safetensors *s)
{
    uint32_t crc = 0;
    if (size != f->bytes)
        return GM_FAIL(GM_ECORRUPT, "%s: has %llu bytes, the index tells %llu", path, (unsigned long long)size,
                       (unsigned long long)f->bytes);
    GM_TRY(read_header(path, fd, size, s, &crc));
    if (crc == f->header_crc) return GM_OK;
    gm_safetensors_free(s);
    return GM_FAIL(GM_ECORRUPT, "%s: its header is damaged: its CRC32C is %08x, the index tells %08x", path, crc,
                   f->header_crc);
}

static gm_status check_file(gm_checkpoint *c, int i)
{
    uint64_t       size;
    gm_safetensors s = {0};
    char          *path = gm_files_join(c->path, c->index.files[i].name);
    gm_status      st = path ? GM_OK : GM_FAIL(GM_ENOMEM, "%s: no memory to open it", c->path);
    if (st == GM_OK && c->partly && access(path, F_OK)) {
        free(path);
        return GM_OK;
    }
    if (st == GM_OK) st = gm_files_open(c->path, c->index.files[i].name, &c->fds[i], &size);
    if (st == GM_OK) st = check_header(path, c->fds[i], size, &c->index.files[i], &s);
    if (st == GM_OK) st = check_boxes(c, i, path, &s);
    gm_safetensors_free(&s);
    free(path);
    return st;
}

/* how: part, parts, partly. index: the name of the file that tells what there is. */
static gm_status open_as(const char *path, const char *index, gm_index_kind kind, const gm_checkpoint *how,
                         gm_checkpoint **out)
{
    gm_checkpoint *c = calloc(1, sizeof *c);
    if (c) *c = *how;
    else return GM_FAIL(GM_ENOMEM, "%s: no memory to open it", path);
    gm_status st = (c->path = strdup(path)) && (c->buffer = malloc(BUFFER))
                       ? GM_OK
                       : GM_FAIL(GM_ENOMEM, "%s: no memory to open it", path);
    if (st == GM_OK) st = read_index(c, index, kind);
    if (st == GM_OK && !(c->fds = malloc((size_t)c->index.n_files * sizeof *c->fds)))
        st = GM_FAIL(GM_ENOMEM, "%s: no memory to open it", path);
    for (int i = 0; st == GM_OK && i < c->index.n_files; i++) c->fds[i] = -1;
    for (int i = 0; st == GM_OK && i < c->index.n_files; i++) st = check_file(c, i);
    if (st == GM_OK) *out = c;
    else gm_checkpoint_close(c);
    return st;
}

gm_status gm_checkpoint_open(const char *path, int part, int parts, gm_checkpoint **out)
{
    return open_as(path, GM_INDEX_NAME, GM_INDEX_WHOLE, &(gm_checkpoint){.part = part, .parts = parts}, out);
}

gm_status gm_checkpoint_open_partly(const char *path, gm_checkpoint **out)
{
    return open_as(path, GM_INDEX_NAME, GM_INDEX_WHOLE, &(gm_checkpoint){.partly = true}, out);
}

gm_status gm_checkpoint_open_part(const char *path, int rank, bool data, gm_checkpoint **out)
{
    char *index = gm_part_index(rank);
    if (!index) return GM_FAIL(GM_ENOMEM, "%s: no memory to open it", path);
    gm_status st = open_as(path, index, GM_INDEX_PART, &(gm_checkpoint){.parts = data ? 1 : 0}, out);
    free(index);
    return st;
}

void gm_checkpoint_close(gm_checkpoint *c)
{
    if (!c) return;
    for (int i = 0; c->fds && i < c->index.n_files; i++)
        if (c->fds[i] >= 0) close(c->fds[i]);
    gm_index_free(&c->index);
    free(c->fds);
    free(c->buffer);
    free(c->path);
    free(c);
}

/* ---- asking ---- */

const char *gm_checkpoint_meta(const gm_checkpoint *c) { return c->index.meta; }
int         gm_checkpoint_world(const gm_checkpoint *c) { return c->index.world; }
int         gm_checkpoint_count(const gm_checkpoint *c) { return c->index.n_tensors; }

gm_stored gm_checkpoint_at(const gm_checkpoint *c, int i)
{
    const gm_index_tensor *t = &c->index.tensors[i];
    gm_stored              s = {.name = t->name, .dtype = t->dtype, .ndim = t->ndim, .boxes = t->n_boxes};
    memcpy(s.shape, t->shape, sizeof s.shape);
    for (int k = 0; k < t->n_boxes; k++) s.bytes += t->boxes[k].bytes;
    return s;
}

int gm_checkpoint_find(const gm_checkpoint *c, const char *name)
{
    int low = 0, high = c->index.n_tensors;
    while (low < high) {
        int middle = low + (high - low) / 2, order = strcmp(c->index.tensors[middle].name, name);
        if (!order) return middle;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

/* ---- reading ---- */

/* n elements at `run` into dtype `to`, from the end so that a wider dtype does not overwrite what is
 * still to come; the buffer has room for both. */
static void convert(gm_dtype from, gm_dtype to, char *run, int64_t n)
{
    if (from == to) return;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = gm_dtype_size(to) > gm_dtype_size(from) ? n - 1 - k : k;
        gm_store(to, run, i, gm_load(from, run, i));
    }
}

/* Copies what the box and the wanted block have in common. */
static gm_status read_box(const gm_checkpoint *c, gm_dtype from, const gm_index_box *b, const gm_extent *wanted,
                          const gm_tensor *to, void *elements)
{
    gm_extent part;
    if (!gm_extent_meet(&b->extent, wanted, &part)) return GM_OK;
    if (c->fds[b->file] < 0)
        return GM_FAIL(GM_EIO, "%s: %s is not on this machine", c->path, c->index.files[b->file].name);
    size_t  size = gm_dtype_size(from), out = gm_dtype_size(to->dtype), wide = size > out ? size : out;
    int64_t total = gm_extent_numel(&part), run = gm_extent_run(&part, &b->extent), most = (int64_t)(BUFFER / wide);
    for (int64_t first = 0; first < total; first += run) {
        uint64_t begin = b->begin + (uint64_t)gm_extent_place(&part, &b->extent, first) * size;
        for (int64_t done = 0; done < run; done += most) {
            int64_t n = run - done < most ? run - done : most;
            GM_TRY(gm_files_read(c->fds[b->file], c->index.files[b->file].name, begin + (uint64_t)done * size,
                                 (size_t)n * size, c->buffer));
            convert(from, to->dtype, c->buffer, n);
            gm_extent_copy(&part, first + done, n, out, c->buffer, elements, to->stride, wanted->offset, false);
        }
    }
    return GM_OK;
}

static gm_status check_fit(const gm_index_tensor *t, const gm_piece *to, const int64_t *offset, bool cast)
{
    char      got[96], have[96];
    int       nd = to->ndim;
    gm_extent wanted = {.ndim = nd};
    memcpy(wanted.shape, to->shape, (size_t)nd * sizeof *to->shape);
    if (offset) memcpy(wanted.offset, offset, (size_t)nd * sizeof *offset);
    bool fits = nd == t->ndim && gm_extent_inside(&wanted, t->shape);
    for (int i = 0; fits && !offset && i < t->ndim; i++) fits = to->shape[i] == t->shape[i];
    if (!fits)
        return GM_FAIL(GM_ESHAPE, "tensor '%s' is %s in the checkpoint, %s here", t->name,
                       gm_shape_describe(t->ndim, t->shape, have, sizeof have),
                       gm_shape_describe(nd, to->shape, got, sizeof got));
    if (t->dtype != to->dtype && !cast)
        return GM_FAIL(GM_ESHAPE, "tensor '%s' is %s in the checkpoint, %s here; ask for a cast if that is meant",
                       t->name, gm_dtype_name(t->dtype), gm_dtype_name(to->dtype));
    return GM_OK;
}

gm_status gm_checkpoint_read(const gm_checkpoint *c, const gm_mesh *mesh, int rank, const gm_piece *to,
                             const int64_t *offset, bool cast)
{
    gm_planned planned;
    int        i = gm_checkpoint_find(c, to->name);
    if (i < 0) return GM_FAIL(GM_EINVAL, "%s: has no tensor '%s'", c->path, to->name);
    const gm_index_tensor *t = &c->index.tensors[i];
    GM_TRY(check_fit(t, to, offset, cast));
    GM_TRY(gm_plan(mesh, rank, to, 1, &planned));
    if (!gm_tensor_numel(to->tensor)) return GM_OK;
    if (!gm_tensor_has_data(to->tensor))
        return GM_FAIL(GM_EINVAL, "tensor '%s' has no memory to read into on this device", to->name);
    gm_host_elements elements;
    GM_TRY(gm_host_open(to->tensor, &elements));
    gm_status st = GM_OK;
    gm_extent_clear_rest(to->tensor, elements.data, planned.extent.shape);
    gm_extent wanted = planned.extent;
    for (int d = 0; offset && d < wanted.ndim; d++) wanted.offset[d] += offset[d];
    for (int k = 0; k < t->n_boxes && st == GM_OK; k++)
        st = read_box(c, t->dtype, &t->boxes[k], &wanted, to->tensor, elements.data);
    if (st == GM_OK) st = gm_host_changed(&elements);
    gm_host_close(&elements);
    return st;
}

gm_status gm_checkpoint_files(const gm_checkpoint *c, const gm_mesh *mesh, int rank, const gm_piece *to, bool *needed)
{
    gm_planned planned;
    gm_extent  part;
    int        i = gm_checkpoint_find(c, to->name);
    if (i < 0) return GM_FAIL(GM_EINVAL, "%s: has no tensor '%s'", c->path, to->name);
    const gm_index_tensor *t = &c->index.tensors[i];
    GM_TRY(check_fit(t, to, NULL, true));
    GM_TRY(gm_plan(mesh, rank, to, 1, &planned));
    for (int k = 0; k < t->n_boxes && gm_tensor_numel(to->tensor); k++)
        if (gm_extent_meet(&t->boxes[k].extent, &planned.extent, &part)) needed[t->boxes[k].file] = true;
    return GM_OK;
}

uint64_t gm_checkpoint_file_bytes(const gm_checkpoint *c, int i) { return c->index.files[i].bytes; }
