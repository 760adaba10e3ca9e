/* npy.c - reads NumPy's files: .npy, versions 1 to 3, and .npz, a zip file of them
 * (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
 *
 *     0x93 "NUMPY" | major, minor | length of the header, u16 (version 1) or u32, little-endian | header | data
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *
 * The header is an expression of Python, of which exactly this form is read: three keys, in any order. Objects, texts,
 * records and complex numbers are refused by name. */
#include <archive.h>
#include <archive_entry.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "formats.h"

#define HEADER_MAX ((size_t)1 << 16)

#define BAD(b, why) GM_FAIL(GM_ECORRUPT, "%s: its header is not NumPy's: %s", (b)->path, (why))

/* ---- the header ---- */

static bool skip(const char **p, char c)
{
    while (isspace((unsigned char)**p)) (*p)++;
    if (**p != c) return false;
    (*p)++;
    return true;
}

/* A text between quotes of either kind, without escapes. */
static bool text(const char **p, char *out, size_t room)
{
    char   quote = '\'';
    size_t n = 0;
    if (!skip(p, quote) && !skip(p, quote = '"')) return false;
    while (**p && **p != quote && **p != '\\' && n + 1 < room) out[n++] = *(*p)++;
    out[n] = 0;
    return **p == quote && (*p)++;
}

static bool word(const char **p, const char *w)
{
    while (isspace((unsigned char)**p)) (*p)++;
    if (strncmp(*p, w, strlen(w)) != 0) return false;
    *p += strlen(w);
    return true;
}

static gm_status read_descr(const gm_bytes *b, const char **p, gm_array *a)
{
    static const struct {
        const char *kind;
        gm_element  element;
    } known[] = {{"f8", GM_ELEMENT_F64}, {"f4", GM_ELEMENT_F32}, {"f2", GM_ELEMENT_F16}, {"i8", GM_ELEMENT_I64},
                 {"i4", GM_ELEMENT_I32}, {"i2", GM_ELEMENT_I16}, {"i1", GM_ELEMENT_I8},  {"u8", GM_ELEMENT_U64},
                 {"u4", GM_ELEMENT_U32}, {"u2", GM_ELEMENT_U16}, {"u1", GM_ELEMENT_U8},  {"b1", GM_ELEMENT_BOOL}};
    char descr[32];
    if (!text(p, descr, sizeof descr)) return BAD(b, "descr is no short text (a record of several fields, perhaps)");
    a->element = GM_ELEMENT_COUNT;
    for (size_t i = 0; strchr("<>|=", descr[0]) && descr[0] && i < sizeof known / sizeof *known; i++)
        if (!strcmp(descr + 1, known[i].kind)) a->element = known[i].element;
    if (a->element == GM_ELEMENT_COUNT)
        return GM_FAIL(GM_ECORRUPT, "%s: elements of NumPy's type '%s'; floats, whole numbers and booleans are known",
                       b->path, descr);
    a->swapped = descr[0] == '>';
    return GM_OK;
}

static gm_status read_shape(const gm_bytes *b, const char **p, gm_array *a)
{
    a->ndim = 0;
    if (!skip(p, '(')) return BAD(b, "shape is no tuple");
    while (!skip(p, ')')) {
        while (isspace((unsigned char)**p)) (*p)++;
        char     *end;
        long long n = isdigit((unsigned char)**p) ? strtoll(*p, &end, 10) : -1;
        if (n < 0 || n > (long long)1 << 62) return BAD(b, "a size is no number");
        if (a->ndim == GM_MAX_DIMS) return BAD(b, "it has too many dimensions");
        a->shape[a->ndim++] = n;
        *p = end;
        if (!skip(p, ',') && (*p)[0] != ')') return BAD(b, "shape is no tuple");
    }
    return GM_OK;
}

static gm_status read_key(const gm_bytes *b, const char **p, gm_array *a, int *seen)
{
    char key[32];
    if (!text(p, key, sizeof key) || !skip(p, ':')) return BAD(b, "a key is missing");
    int bit = !strcmp(key, "descr") ? 1 : !strcmp(key, "fortran_order") ? 2 : !strcmp(key, "shape") ? 4 : 0;
    if (!bit || *seen & bit) return BAD(b, "a key is unknown, or there twice");
    *seen |= bit;
    if (bit == 1) return read_descr(b, p, a);
    if (bit == 4) return read_shape(b, p, a);
    a->fortran = word(p, "True");
    return a->fortran || word(p, "False") ? GM_OK : BAD(b, "fortran_order is neither True nor False");
}

static gm_status read_dictionary(const gm_bytes *b, const char *p, gm_array *a)
{
    int seen = 0;
    if (!skip(&p, '{')) return BAD(b, "it does not begin with '{'");
    while (!skip(&p, '}')) {
        GM_TRY(read_key(b, &p, a, &seen));
        (void)skip(&p, ',');
    }
    while (isspace((unsigned char)*p)) p++;
    if (*p || seen != 7) return BAD(b, "descr, fortran_order and shape must be there, and no more");
    return GM_OK;
}

/* The length of the header's text, and where it begins. */
static gm_status find_header(const gm_bytes *b, size_t *at, size_t *n)
{
    unsigned char head[12] = {0};
    size_t        got = b->size < sizeof head ? b->size : sizeof head;
    GM_TRY(gm_bytes_copy(b, 0, got, head));
    if (got < 10 || memcmp(head, "\x93NUMPY", 6) != 0) return BAD(b, "it does not begin with \\x93NUMPY");
    if (head[6] < 1 || head[6] > 3) return BAD(b, "its version is not 1, 2 or 3");
    *at = head[6] == 1 ? 10 : 12;
    *n = (size_t)head[8] | (size_t)head[9] << 8;
    if (head[6] > 1) *n |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    if (*at > b->size || *n > b->size - *at || *n > HEADER_MAX)
        return BAD(b, "it is longer than the file, or than 64 KiB");
    return GM_OK;
}

gm_status gm_npy_add(gm_arrays *s, int file, const char *name)
{
    const gm_bytes *b = &s->files[file];
    gm_array       *a;
    size_t          at = 0, n = 0;
    GM_TRY(find_header(b, &at, &n));
    GM_TRY(gm_arrays_add(s, name, strlen(name), file, &a));
    char *header = calloc(1, n + 1);
    if (!header) return GM_FAIL(GM_ENOMEM, "%s: no memory for its header", b->path);
    gm_status st = gm_bytes_copy(b, at, n, header);
    if (st == GM_OK) st = strlen(header) < n ? BAD(b, "it has a zero in it") : read_dictionary(b, header, a);
    free(header);
    GM_TRY(st);
    a->begin = at + n;
    if (!gm_array_size(a->element, a->ndim, a->shape, &a->bytes)) return BAD(b, "its sizes overflow");
    if (a->bytes != b->size - a->begin)
        return GM_FAIL(GM_ECORRUPT, "%s: has %zu bytes of data, its header tells %llu; fetch it again", b->path,
                       b->size - (size_t)a->begin, (unsigned long long)a->bytes);
    return GM_OK;
}

/* ---- npz ---- */

#define EXPANDS 1032 /* times, at most: what deflate can do */

typedef struct zip {
    gm_arrays      *set;
    const char     *path;
    struct archive *a;
    size_t          room; /* bytes that may still come out of it */
} zip;

/* Inflates the entry that the archive is at. */
static gm_status inflate_entry(zip *z, const char *name, gm_bytes *out)
{
    size_t size = 0, room = 0;
    *out = (gm_bytes){.path = NULL};
    unsigned char *data = NULL;
    for (;;) {
        if (size == room) {
            unsigned char *more = realloc(data, room = room ? 2 * room : (size_t)1 << 16);
            if (!more) {
                free(data);
                return GM_FAIL(GM_ENOMEM, "%s: no memory to inflate '%s'", z->path, name);
            }
            data = more;
        }
        la_ssize_t n = archive_read_data(z->a, data + size, room - size);
        if (n <= 0 || (size_t)n > z->room) {
            if (!n) break;
            free(data);
            return GM_FAIL(GM_ECORRUPT, "%s: '%s': %s", z->path, name,
                           n < 0 ? archive_error_string(z->a) : "is larger than such a file can hold");
        }
        size += (size_t)n, z->room -= (size_t)n;
    }
    size_t length = strlen(z->path) + strlen(name) + 2;
    out->data = data, out->size = size;
    if ((out->path = malloc(length))) snprintf(out->path, length, "%s:%s", z->path, name);
    if (out->path) return GM_OK;
    free(data);
    return GM_FAIL(GM_ENOMEM, "%s: no memory for a name", z->path);
}

static gm_status add_entry(zip *z, const char *name)
{
    gm_bytes b;
    size_t   n = strlen(name);
    int      file = 0;
    if (n < 5 || strcmp(name + n - 4, ".npy") != 0)
        return GM_FAIL(GM_ECORRUPT, "%s: '%.80s' in it is no .npy file", z->path, name);
    GM_TRY(inflate_entry(z, name, &b));
    GM_TRY(gm_arrays_take(z->set, &b, &file));
    char *key = strndup(name, n - 4);
    if (!key) return GM_FAIL(GM_ENOMEM, "%s: no memory for a name", z->path);
    gm_status st = gm_npy_add(z->set, file, key);
    free(key);
    return st;
}

static gm_status add_entries(zip *z)
{
    struct archive_entry *e;
    int                   got;
    while ((got = archive_read_next_header(z->a, &e)) == ARCHIVE_OK) {
        const char *name = archive_entry_pathname(e);
        if (!name) return GM_FAIL(GM_ECORRUPT, "%s: an entry has no name", z->path);
        GM_TRY(add_entry(z, name));
    }
    if (got == ARCHIVE_EOF) return GM_OK;
    return GM_FAIL(GM_ECORRUPT, "%s: is no .npz file: %s", z->path, archive_error_string(z->a));
}

gm_status gm_npz_add(gm_arrays *s, int file)
{
    size_t size = s->files[file].size;
    char  *path = strdup(s->files[file].path); /* the list of files moves */
    zip    z = {.set = s, .path = path, .a = archive_read_new(), .room = SIZE_MAX};
    if (size < SIZE_MAX / EXPANDS) z.room = size * EXPANDS;
    gm_status st = path && z.a ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory to open an .npz file");
    if (st == GM_OK) archive_read_support_format_zip(z.a);
    if (st == GM_OK && archive_read_open_filename(z.a, path, (size_t)1 << 16) != ARCHIVE_OK)
        st = GM_FAIL(GM_ECORRUPT, "%s: is no .npz file: %s", path, archive_error_string(z.a));
    if (st == GM_OK) st = add_entries(&z);
    if (z.a) archive_read_free(z.a);
    free(path);
    return st;
}
