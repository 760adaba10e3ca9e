/* tar_dataset.c - pictures and labels in tar files (WebDataset), see dataset.h.
 *
 * Opening goes from header to header and reads no member. Nothing is unpacked: names of members are only names. Headers
 * are those of POSIX ustar, with the long names and sizes of GNU and of pax. */
#include "dataset.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "names.h"

#define BLOCK      512
#define LABEL_MOST 32        /* bytes of a label */
#define EXTRA_MOST (1 << 20) /* of a long name, or of a pax header */

typedef struct place {
    uint64_t at, size; /* of a member's bytes; size 0: there is none */
} place;

typedef struct entry {
    int   shard;
    place image, label;
} entry;

typedef struct tar_dataset {
    gm_dataset base;
    gm_bytes  *shards;
    int        n_shards;
    entry     *list; /* one for each name: a stem */
    gm_names   stems;
    int64_t    room, others; /* members that are neither a picture nor a label */
} tar_dataset;

/* What is known of the next member. */
typedef struct member {
    char     name[PATH_MAX];
    uint64_t at, size;
    char     type;
    bool     end; /* there is no member any more */
} member;

/* ---- headers ---- */

/* A number of a header: octal text, or with its first bit set big-endian binary. */
static bool number_of(const unsigned char *field, size_t n, uint64_t *out)
{
    uint64_t v = 0;
    size_t   i = 0;
    if (field[0] & 0x80) {
        for (i = 1; i < n; i++) {
            if (v >> 55) return false;
            v = v << 8 | field[i];
        }
        *out = v;
        return field[0] == 0x80;
    }
    while (i < n && field[i] == ' ') i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++) {
        if (v >> 60) return false;
        v = v << 3 | (uint64_t)(field[i] - '0');
    }
    *out = v;
    return i == n || !field[i] || field[i] == ' ';
}

static bool checksum_fits(const unsigned char *h)
{
    uint64_t sum = 0, want;
    for (int i = 0; i < BLOCK; i++) sum += i >= 148 && i < 156 ? ' ' : h[i];
    return number_of(h + 148, 8, &want) && sum == want;
}

static bool is_end(const unsigned char *h)
{
    for (int i = 0; i < BLOCK; i++)
        if (h[i]) return false;
    return true;
}

static void name_of(const unsigned char *h, member *m)
{
    bool ustar = !memcmp(h + 257, "ustar\0", 6) && h[345]; /* GNU's own format has other things there */
    snprintf(m->name, sizeof m->name, "%.155s%s%.100s", ustar ? (const char *)h + 345 : "", ustar ? "/" : "",
             (const char *)h);
}

/* Takes path and size out of pax records: "LENGTH KEY=VALUE\n". */
static bool read_pax(const char *text, size_t n, char *name, uint64_t *size, bool *sized)
{
    for (size_t at = 0; at < n && text[at];) {
        char  *key;
        size_t length = strtoul(text + at, &key, 10);
        if (length < 5 || length > n - at || *key != ' ' || text[at + length - 1] != '\n') return false;
        const char *end = text + at + length - 1, *value = strchr(key + 1, '=');
        if (!value || value >= end) return false;
        key++, value++;
        if (!strncmp(key, "path=", 5)) snprintf(name, PATH_MAX, "%.*s", (int)(end - value), value);
        if (!strncmp(key, "size=", 5)) *size = strtoull(value, NULL, 10), *sized = true;
        at += length;
    }
    return true;
}

/* ---- one shard ---- */

static gm_status broken(const gm_bytes *f, uint64_t at, const char *what)
{
    return GM_FAIL(GM_ECORRUPT, "%s: byte %llu: %s", f->path, (unsigned long long)at, what);
}

/* Reads the member whose header is at *at, with what stands before it for it; moves *at behind it. */
static gm_status next_member(const gm_bytes *f, uint64_t *at, member *m)
{
    unsigned char h[BLOCK];
    char          name[PATH_MAX] = "", *extra;
    uint64_t      size = 0;
    bool          sized = false, fits = true;
    for (;; *at = m->at + (m->size + BLOCK - 1) / BLOCK * BLOCK) {
        m->end = true;
        if (*at >= f->size) return GM_OK; /* some writers leave out the empty blocks at the end */
        if (f->size - *at < BLOCK) return broken(f, *at, "the tar file is cut off in a header");
        GM_TRY(gm_bytes_copy(f, *at, BLOCK, h));
        if (is_end(h)) return GM_OK;
        if (!checksum_fits(h)) return broken(f, *at, "is no header of a tar file: its checksum is wrong");
        if (!number_of(h + 124, 12, &m->size)) return broken(f, *at, "the size of a member is no number");
        m->at = *at + BLOCK, m->type = (char)h[156];
        m->end = false;
        bool about = m->type == 'L' || m->type == 'x';
        if (!about && sized) m->size = size;
        if (m->size > f->size - m->at) return broken(f, *at, "the tar file is cut off in a member");
        if (!about) break;
        if (m->size > EXTRA_MOST) return broken(f, *at, "a name is too long");
        if (!(extra = calloc(1, (size_t)m->size + 1))) return GM_FAIL(GM_ENOMEM, "no memory for a long name");
        gm_status st = gm_bytes_copy(f, m->at, (size_t)m->size, extra);
        if (st == GM_OK && m->type == 'x') fits = read_pax(extra, (size_t)m->size, name, &size, &sized);
        else if (st == GM_OK) snprintf(name, sizeof name, "%s", extra);
        free(extra);
        GM_TRY(st);
        if (!fits) return broken(f, *at, "a pax header is damaged");
    }
    if (name[0]) snprintf(m->name, sizeof m->name, "%s", name);
    else name_of(h, m);
    *at = m->at + (m->size + BLOCK - 1) / BLOCK * BLOCK;
    return GM_OK;
}

static bool is_picture(const char *ending)
{
    return !strcasecmp(ending, "png") || !strcasecmp(ending, "jpg") || !strcasecmp(ending, "jpeg");
}

static gm_status add_entry(tar_dataset *d, int shard, const char *stem, size_t length)
{
    if (d->base.length == d->room) {
        int64_t room = 2 * d->room + 256;
        entry  *more = realloc(d->list, (size_t)room * sizeof *more);
        if (!more) return GM_FAIL(GM_ENOMEM, "no memory for %lld samples", (long long)room);
        d->list = more, d->room = room;
    }
    d->list[d->base.length++] = (entry){.shard = shard};
    return gm_names_add(&d->stems, stem, length);
}

/* The members of a sample follow one another: their names are equal up to the first dot of the last part. */
static gm_status add_member(tar_dataset *d, int shard, int64_t first, const member *m)
{
    const char *base = strrchr(m->name, '/'), *dot = strchr(base ? base + 1 : m->name, '.');
    size_t      length = dot ? (size_t)(dot - m->name) : strlen(m->name);
    if (m->type != '0' && m->type != 0 && m->type != '7') return GM_OK; /* folders, links */
    bool picture = dot && is_picture(dot + 1), label = dot && !strcasecmp(dot + 1, "cls");
    if (!picture && !label) {
        d->others++;
        return GM_OK;
    }
    const char *stem = d->base.length > first ? gm_names_get(&d->stems, d->base.length - 1) : NULL;
    if (!stem || strncmp(stem, m->name, length) || stem[length]) GM_TRY(add_entry(d, shard, m->name, length));
    entry *e = &d->list[d->base.length - 1];
    place *p = picture ? &e->image : &e->label;
    if (p->size || !m->size)
        return GM_FAIL(GM_ECORRUPT, "%s: %s: %s", d->shards[shard].path, m->name,
                       m->size ? "the sample has another one already" : "is empty");
    *p = (place){m->at, m->size};
    return GM_OK;
}

static gm_status check_entries(const tar_dataset *d, int shard, int64_t first)
{
    for (int64_t i = first; i < d->base.length; i++)
        if (!d->list[i].image.size || !d->list[i].label.size)
            return GM_FAIL(GM_EINVAL, "%s: %s has no %s; a sample is a picture (.png, .jpg, .jpeg) and a number (.cls)",
                           d->shards[shard].path, gm_names_get(&d->stems, i),
                           d->list[i].image.size ? "label" : "picture");
    return GM_OK;
}

static gm_status open_shard(tar_dataset *d, const char *path)
{
    int      shard = d->n_shards;
    int64_t  first = d->base.length;
    uint64_t at = 0;
    member   m;
    GM_TRY(gm_bytes_map(path, GM_ACCESS_RANDOM, &d->shards[shard]));
    d->n_shards++;
    for (;;) {
        GM_TRY(next_member(&d->shards[shard], &at, &m));
        if (m.end) break;
        GM_TRY(add_member(d, shard, first, &m));
    }
    if (d->base.length == first) return GM_FAIL(GM_EINVAL, "%s: has no pictures (.png, .jpg, .jpeg)", path);
    return check_entries(d, shard, first);
}

/* ---- samples ---- */

static gm_status read_label(const tar_dataset *d, int64_t i, int64_t *y)
{
    const entry *e = &d->list[i];
    char         text[LABEL_MOST + 1] = "", *end;
    if (e->label.size <= LABEL_MOST)
        GM_TRY(gm_bytes_copy(&d->shards[e->shard], (size_t)e->label.at, (size_t)e->label.size, text));
    *y = strtoll(text, &end, 10);
    while (isspace((unsigned char)*end)) end++;
    if (end == text || *end || *y < 0 || *y >= d->base.classes)
        return GM_FAIL(GM_ECORRUPT, "%s: %s.cls (sample %lld): is no class from 0 to %lld", d->shards[e->shard].path,
                       gm_names_get(&d->stems, i), (long long)i + 1, (long long)d->base.classes - 1);
    return GM_OK;
}

static gm_status tar_image(const gm_dataset *base, uint64_t epoch, int64_t i, const gm_window_rule *rule, gm_image *x,
                           int64_t *y)
{
    (void)epoch;
    const tar_dataset *d = (const tar_dataset *)base;
    const entry       *e = &d->list[i];
    const gm_bytes    *f = &d->shards[e->shard];
    char               name[2 * PATH_MAX + 64];
    snprintf(name, sizeof name, "%s: %s (sample %lld)", f->path, gm_names_get(&d->stems, i), (long long)i + 1);
    GM_TRY(read_label(d, i, y));
    GM_TRY(gm_image_file_room(x, name, e->image.size));
    GM_TRY(gm_bytes_copy(f, (size_t)e->image.at, (size_t)e->image.size, x->file));
    return gm_image_decode(&(gm_encoded){x->file, x->file_size, name}, base->x_shape[0], rule, x);
}

static gm_status tar_checksum(const gm_dataset *base, uint32_t *sum)
{
    const tar_dataset *d = (const tar_dataset *)base;
    *sum = (uint32_t)crc32_z(0, (const unsigned char *)d->stems.text, d->stems.used);
    for (int64_t i = 0; i < base->length; i++)
        *sum = (uint32_t)crc32_z(*sum, (const unsigned char *)&d->list[i].image, sizeof d->list[i].image);
    return GM_OK;
}

static void tar_free(gm_dataset *base)
{
    tar_dataset *d = (tar_dataset *)base;
    for (int i = 0; i < d->n_shards; i++) gm_bytes_close(&d->shards[i]);
    gm_damage_free(base->damage);
    gm_names_free(&d->stems);
    free(d->shards);
    free(d->list);
    free(d);
}

int64_t gm_tar_others(const gm_dataset *d) { return ((const tar_dataset *)d)->others; }

gm_status gm_tar_dataset_new(const char *const *paths, int n, const gm_tar_options *o, gm_dataset **out)
{
    gm_status    st = GM_OK;
    tar_dataset *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    d->base = (gm_dataset){.refs = 1,
                           .x_dtype = GM_U8,
                           .x_ndim = 3,
                           .x_shape = {o->channels, GM_ANY_SIZE, GM_ANY_SIZE},
                           .classes = o->classes,
                           .image = tar_image,
                           .checksum = tar_checksum,
                           .free = tar_free};
    if (!(d->shards = calloc((size_t)n + 1, sizeof *d->shards))) st = GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    for (int i = 0; st == GM_OK && i < n; i++) st = open_shard(d, paths[i]);
    if (st == GM_OK && o->skip_damaged) st = gm_damage_new(d->base.length, &d->base.damage);
    if (st == GM_OK) *out = &d->base;
    else tar_free(&d->base);
    return st;
}
