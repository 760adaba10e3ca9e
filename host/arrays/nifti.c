/* nifti.c - reads volumes of NIfTI-1 in one file: .nii, and .nii.gz (https://nifti.nimh.nih.gov/nifti-1).
 *
 *     348 bytes of header | 4 bytes, or extensions | elements from vox_offset on, the first dimension innermost
 *
 * A file is one array without a name. Its shape is that of the file in reverse order: a series of volumes is
 * (time, z, y, x). Headers of either byte order are read. Where scl_slope and scl_inter say more than the elements
 * themselves, the array is slope x + inter, worked out when the file is opened: f32, or f64 if f32 could not hold the
 * elements. Pairs of .hdr and .img, NIfTI-2, colours and complex numbers are refused by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "formats.h"

#define HEADER 348
#define HEAD   352 /* with the four bytes that tell whether extensions follow */

#define BAD(why, ...) GM_FAIL(GM_ECORRUPT, "%s: its header is not NIfTI-1's: " why, __VA_ARGS__) /* path first */

typedef struct header {
    gm_array a; /* element, swapped, ndim, shape, begin, bytes */
    double   slope, inter;
} header;

/* ---- the header ---- */

static uint64_t whole(const unsigned char *p, int bytes, bool swapped)
{
    uint64_t n = 0;
    for (int i = 0; i < bytes; i++) n |= (uint64_t)p[swapped ? bytes - 1 - i : i] << 8 * i;
    return n;
}

static int short_at(const unsigned char *h, int at, bool swapped) { return (int16_t)whole(h + at, 2, swapped); }

static float float_at(const unsigned char *h, int at, bool swapped)
{
    uint32_t bits = (uint32_t)whole(h + at, 4, swapped);
    float    f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static gm_status read_type(const char *path, const unsigned char *h, gm_array *a)
{
    static const struct {
        int        code, bits;
        gm_element element;
    } known[] = {{2, 8, GM_ELEMENT_U8},     {4, 16, GM_ELEMENT_I16},   {8, 32, GM_ELEMENT_I32},
                 {16, 32, GM_ELEMENT_F32},  {64, 64, GM_ELEMENT_F64},  {256, 8, GM_ELEMENT_I8},
                 {512, 16, GM_ELEMENT_U16}, {768, 32, GM_ELEMENT_U32}, {1024, 64, GM_ELEMENT_I64},
                 {1280, 64, GM_ELEMENT_U64}};
    int code = short_at(h, 70, a->swapped), bits = short_at(h, 72, a->swapped);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].code != code) continue;
        a->element = known[i].element;
        return known[i].bits == bits ? GM_OK : BAD("bitpix is %d, datatype %d has %d", path, bits, code, known[i].bits);
    }
    return GM_FAIL(GM_ECORRUPT, "%s: elements of NIfTI's datatype %d; whole numbers and floats up to 64 bits are known",
                   path, code);
}

static gm_status read_shape(const char *path, const unsigned char *h, gm_array *a)
{
    a->ndim = short_at(h, 40, a->swapped);
    if (a->ndim < 1 || a->ndim > 7) return BAD("dim[0] is %d; it must be from 1 to 7", path, a->ndim);
    for (int d = 1; d <= a->ndim; d++) {
        int size = short_at(h, 40 + 2 * d, a->swapped);
        if (size < 1) return BAD("dim[%d] is %d; it must be from 1 on", path, d, size);
        a->shape[a->ndim - d] = size;
    }
    if (!gm_array_size(a->element, a->ndim, a->shape, &a->bytes)) return BAD("its sizes overflow", path);
    return GM_OK;
}

/* The byte order is the one in which the header's length is 348. */
static gm_status read_order(const char *path, const unsigned char *h, gm_array *a)
{
    uint64_t n = whole(h, 4, false);
    a->swapped = n != HEADER;
    if (n == 540 || whole(h, 4, true) == 540)
        return GM_FAIL(GM_ECORRUPT, "%s: is NIfTI-2; convert it to NIfTI-1, which is read", path);
    if (a->swapped && whole(h, 4, true) != HEADER) return BAD("it does not begin with its length, 348", path);
    if (!memcmp(h + 344, "ni1", 4))
        return GM_FAIL(GM_ECORRUPT, "%s: its elements are in another file (.img); convert it to one .nii file", path);
    return memcmp(h + 344, "n+1", 4) ? BAD("its bytes 344 to 347 are not 'n+1'", path) : GM_OK;
}

static gm_status read_header(const char *path, const unsigned char *h, size_t got, header *out)
{
    gm_array *a = &out->a;
    if (got < HEAD) return GM_FAIL(GM_ECORRUPT, "%s: ends inside its header, at byte %zu of %d", path, got, HEAD);
    GM_TRY(read_order(path, h, a));
    GM_TRY(read_type(path, h, a));
    GM_TRY(read_shape(path, h, a));
    double begin = (double)float_at(h, 108, a->swapped);
    if (!(begin >= HEAD && begin <= 1 << 24) || begin != floor(begin))
        return BAD("vox_offset is %g; it must be a whole number from %d to 2^24", path, begin, HEAD);
    a->begin = (uint64_t)begin;
    out->slope = (double)float_at(h, 112, a->swapped), out->inter = (double)float_at(h, 116, a->swapped);
    if (out->slope == 0 || isnan(out->slope)) { /* which mean that there is no scale */
        out->slope = 1, out->inter = 0;
        return GM_OK;
    }
    if (isinf(out->slope) || !isfinite(out->inter)) return BAD("scl_slope or scl_inter is not finite", path);
    return GM_OK;
}

static gm_status total_size(const char *path, const unsigned char *h, size_t got, size_t *total)
{
    header read = {0};
    GM_TRY(read_header(path, h, got, &read));
    *total = (size_t)(read.a.begin + read.a.bytes);
    return GM_OK;
}

/* ---- scales ---- */

/* Puts slope x + inter in the place of the array's elements. */
static gm_status scale(gm_arrays *s, gm_array *a, const header *h)
{
    bool     wide = a->element == GM_ELEMENT_F64 || (gm_element_bytes(a->element) > 2 && a->element != GM_ELEMENT_F32);
    size_t   n = (size_t)(a->bytes / gm_element_bytes(a->element)), size = n * (wide ? sizeof(double) : sizeof(float));
    gm_bytes b = {.path = strdup(s->path), .size = size};
    void    *data = malloc(size);
    b.data = data;
    gm_extent box = {.ndim = a->ndim};
    int64_t   stride[GM_MAX_DIMS], step = 1;
    for (int d = a->ndim - 1; d >= 0; d--) {
        box.shape[d] = a->shape[d];
        stride[d] = step;
        step *= a->shape[d];
    }
    gm_status st = data && b.path ? gm_arrays_read(s, a, &box, wide ? GM_F64 : GM_F32, data, stride)
                                  : GM_FAIL(GM_ENOMEM, "%s: no memory for %zu scaled elements", s->path, n);
    if (st != GM_OK) {
        gm_bytes_close(&b);
        return st;
    }
    double *d = data;
    float  *f = data;
    if (wide)
        for (size_t i = 0; i < n; i++) d[i] = h->slope * d[i] + h->inter;
    else
        for (size_t i = 0; i < n; i++) f[i] = (float)(h->slope * (double)f[i] + h->inter);
    a->element = wide ? GM_ELEMENT_F64 : GM_ELEMENT_F32;
    a->swapped = false, a->begin = 0, a->bytes = size;
    return gm_arrays_take(s, &b, &a->file);
}

gm_status gm_nifti_add(gm_arrays *s, const char *path, bool zipped)
{
    unsigned char head[HEAD] = {0};
    header        h = {0};
    gm_array     *a;
    int           file = 0;
    if (zipped) {
        gm_bytes b = {0};
        GM_TRY(gm_bytes_inflate(path, HEAD, total_size, &b));
        GM_TRY(gm_arrays_take(s, &b, &file));
    } else GM_TRY(gm_arrays_map(s, path, &file));
    const gm_bytes *b = &s->files[file];
    size_t          got = b->size < HEAD ? b->size : HEAD;
    GM_TRY(gm_bytes_copy(b, 0, got, head));
    GM_TRY(read_header(path, head, got, &h));
    if (h.a.begin > b->size || h.a.bytes != b->size - h.a.begin)
        return GM_FAIL(GM_ECORRUPT, "%s: has %zu bytes, its header tells %llu; fetch it again", path, b->size,
                       (unsigned long long)(h.a.begin + h.a.bytes));
    GM_TRY(gm_arrays_add(s, "", 0, file, &a));
    char *name = a->name;
    *a = h.a;
    a->name = name, a->file = file;
    return h.slope == 1 && h.inter == 0 ? GM_OK : scale(s, a, &h);
}
