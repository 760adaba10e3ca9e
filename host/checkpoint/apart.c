/* apart.c - see apart.h. */
#define _GNU_SOURCE
#include "apart.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../kernels/device.h"
#include "checkpoint.h"
#include "files.h"
#include "index.h"
#include "parts.h"

/* ---- what a part says ---- */

static gm_status read_meta(const char *folder, int rank, const char *text, gm_apart *out)
{
    json_t     *meta = json_loads(text, 0, NULL);
    const char *token = json_string_value(json_object_get(meta, "token"));
    const char *digest = json_string_value(json_object_get(meta, "digest"));
    bool        fits = token && digest && json_integer_value(json_object_get(meta, "rank")) == rank;
    fits = fits && strlen(token) < sizeof out->token && strlen(digest) < sizeof out->digest;
    if (fits) {
        strcpy(out->token, token);
        strcpy(out->digest, digest);
    }
    json_decref(meta);
    return fits ? GM_OK : GM_FAIL(GM_ECORRUPT, "%s: what is called the part of rank %d is none", folder, rank);
}

gm_status gm_apart_look(const char *folder, int rank, bool data, gm_apart *out)
{
    gm_checkpoint *c;
    *out = (gm_apart){0};
    GM_TRY(gm_checkpoint_open_part(folder, rank, data, &c));
    gm_status st = read_meta(folder, rank, gm_checkpoint_meta(c), out);
    out->world = gm_checkpoint_world(c);
    if (st == GM_OK) out->bytes = gm_checkpoint_file_bytes(c, 0);
    gm_checkpoint_close(c);
    return st;
}

/* ---- joining ---- */

static gm_status read_part(const char *folder, int rank, gm_index *out)
{
    int       fd = -1;
    uint64_t  size = 0;
    char     *name = gm_part_index(rank), *text = NULL;
    gm_status st = name ? gm_files_open(folder, name, &fd, &size) : GM_FAIL(GM_ENOMEM, "%s: no memory", folder);
    if (st == GM_OK && size > GM_INDEX_MAX) st = GM_FAIL(GM_ECORRUPT, "%s/%s: is too long", folder, name);
    if (st == GM_OK && !(text = malloc((size_t)size + 1))) st = GM_FAIL(GM_ENOMEM, "%s: no memory to read it", folder);
    if (st == GM_OK) st = gm_files_read(fd, name, 0, (size_t)size, text);
    if (st == GM_OK) st = gm_index_parse(name, text, (size_t)size, GM_INDEX_PART, out);
    if (fd >= 0) close(fd);
    free(text);
    free(name);
    return st;
}

static int by_name(const void *a, const void *b)
{
    const gm_index_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Takes up the tensors of the parts, each once and without boxes, in order of their names. */
static gm_status list_tensors(const gm_index *parts, int n, gm_index *whole)
{
    size_t all = 1;
    for (int r = 0; r < n; r++) all += (size_t)parts[r].n_tensors;
    gm_index_tensor *t = whole->tensors = calloc(all, sizeof *t);
    if (!t) return GM_FAIL(GM_ENOMEM, "no memory for an index of %zu boxes", all);
    all = 0;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < parts[r].n_tensors; i++) t[all++] = parts[r].tensors[i]; /* names borrowed until below */
    qsort(t, all, sizeof *t, by_name);
    for (size_t i = 0; i < all; i++) {
        gm_index_tensor from = t[i];
        if (i && whole->n_tensors && !strcmp(t[whole->n_tensors - 1].name, from.name)) continue;
        from.boxes = NULL, from.n_boxes = 0;
        if (!(from.name = strdup(from.name))) return GM_FAIL(GM_ENOMEM, "no memory for an index of %zu boxes", all);
        t[whole->n_tensors++] = from;
    }
    return GM_OK;
}

/* The state that rank 0 has kept, and that all parts are of one save. */
static gm_status agree(const char *folder, const gm_index *parts, int n, gm_index *whole)
{
    gm_apart first, other;
    GM_TRY(read_meta(folder, 0, parts[0].meta, &first));
    for (int r = 1; r < n; r++) {
        GM_TRY(read_meta(folder, r, parts[r].meta, &other));
        if (strcmp(first.token, other.token) || strcmp(first.digest, other.digest) || parts[r].world != n)
            return GM_FAIL(GM_ECORRUPT, "%s: the parts of ranks 0 and %d are not of one save", folder, r);
    }
    json_t *meta = json_loads(parts[0].meta, JSON_ALLOW_NUL, NULL), *state = json_object_get(meta, "state");
    whole->meta = state ? json_dumps(state, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(meta);
    return whole->meta ? GM_OK : GM_FAIL(GM_ECORRUPT, "%s: the part of rank 0 has no state", folder);
}

static gm_status write_index(const char *folder, const gm_index *whole)
{
    char     *text = NULL;
    size_t    size;
    gm_writer w = {.fd = -1};
    GM_TRY(gm_index_format(whole, &text, &size));
    gm_status st = gm_writer_open(folder, GM_INDEX_NAME, &w);
    if (st == GM_OK) st = gm_writer_write(&w, text, size);
    if (st == GM_OK) st = gm_writer_finish(&w);
    gm_writer_drop(&w);
    free(text);
    return st;
}

static gm_status join(const char *folder, gm_index *parts, int world, gm_index *whole)
{
    for (int r = 0; r < world; r++) GM_TRY(read_part(folder, r, &parts[r]));
    GM_TRY(agree(folder, parts, world, whole));
    GM_TRY(list_tensors(parts, world, whole));
    whole->world = world;
    if (!(whole->files = calloc((size_t)world, sizeof *whole->files)))
        return GM_FAIL(GM_ENOMEM, "no memory for the index of %d ranks", world);
    for (int r = 0; r < world; r++) GM_TRY(gm_index_merge(whole, &parts[r]));
    GM_TRY(gm_index_check_cover(folder, whole));
    return write_index(folder, whole);
}

gm_status gm_apart_join(const char *folder, int world)
{
    gm_index  whole = {0};
    gm_index *parts = calloc((size_t)world, sizeof *parts);
    gm_status st = parts ? join(folder, parts, world, &whole) : GM_FAIL(GM_ENOMEM, "no memory for %d parts", world);
    for (int r = 0; parts && r < world; r++) gm_index_free(&parts[r]);
    free(parts);
    gm_index_free(&whole);
    return st;
}

/* ---- files as tensors ---- */

typedef struct mapping {
    gm_home home; /* first */
    void   *at;
    size_t  bytes;
} mapping;

static gm_status stay(gm_home *h)
{
    (void)h;
    return GM_OK; /* the bytes are always there */
}

static void leave(gm_home *h, bool changed) { (void)h, (void)changed; }

static void unmap(gm_home *h)
{
    mapping *m = (mapping *)(void *)h;
    if (m->at) munmap(m->at, m->bytes);
    free(m);
}

static gm_status map(gm_device *dev, int fd, const char *path, uint64_t bytes, int protection, gm_tensor **out)
{
    mapping *m = calloc(1, sizeof *m);
    if (!m) return GM_FAIL(GM_ENOMEM, "%s: no memory to open it", path);
    m->home = (gm_home){stay, leave, unmap};
    m->bytes = (size_t)bytes;
    m->at = bytes ? mmap(NULL, m->bytes, protection, MAP_SHARED, fd, 0) : NULL;
    gm_status st = m->at == MAP_FAILED ? GM_FAIL(GM_EIO, "%s: cannot be mapped: %s", path, strerror(errno)) : GM_OK;
    if (st == GM_OK) st = gm_tensor_new_absent(dev, GM_U8, 1, (int64_t[]){(int64_t)bytes}, out);
    if (st != GM_OK) {
        if (m->at == MAP_FAILED) m->at = NULL;
        unmap(&m->home);
        return st;
    }
    (*out)->storage->data = m->at;
    (*out)->storage->home = &m->home;
    return GM_OK;
}

gm_status gm_apart_send(gm_device *dev, const char *path, gm_tensor **out)
{
    struct stat s;
    int         fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &s)) {
        gm_status st = GM_FAIL(GM_EIO, "%s: cannot be opened: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return st;
    }
    gm_status st = map(dev, fd, path, (uint64_t)s.st_size, PROT_READ, out);
    close(fd);
    return st;
}

gm_status gm_apart_receive(gm_device *dev, const char *path, uint64_t bytes, gm_tensor **out)
{
    unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return GM_FAIL(GM_EIO, "%s: cannot be made: %s", path, strerror(errno));
    int       error = bytes && fallocate(fd, 0, 0, (off_t)bytes) ? errno : 0; /* never writes the file */
    gm_status st = error ? GM_FAIL(GM_EIO, "%s: no room for %llu bytes: %s", path, (unsigned long long)bytes,
                                   strerror(error))
                         : map(dev, fd, path, bytes, PROT_READ | PROT_WRITE, out);
    if (st != GM_OK) unlink(path);
    close(fd);
    return st;
}
