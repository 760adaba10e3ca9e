/* array_file.c - see array_file.h. */
#include "array_file.h"

#include <string.h>

#define HEAD_MAX (4 + 4 * GM_MAX_DIMS)

static uint32_t big32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static size_t element_size(int type)
{
    switch (type) {
    case GM_IDX_U8:
    case GM_IDX_I8: return 1;
    case GM_IDX_I16: return 2;
    case GM_IDX_I32:
    case GM_IDX_F32: return 4;
    case GM_IDX_F64: return 8;
    default: return 0;
    }
}

/* Reads the header in head[got] into a; *total is the whole file's size by it. */
static gm_status parse(const char *path, const unsigned char *head, size_t got, gm_array_file *a, size_t *total)
{
    if (got < 4 || head[0] || head[1] || !element_size(head[2]))
        return GM_FAIL(GM_ECORRUPT, "%s: is not an IDX file (it must begin with bytes 0 0 TYPE DIMENSIONS)", path);
    a->type = (gm_idx_type)head[2], a->element = element_size(head[2]), a->ndim = head[3];
    if (a->ndim < 1 || a->ndim > GM_MAX_DIMS)
        return GM_FAIL(GM_ECORRUPT, "%s: %d dimensions at offset 3; 1 to %d are possible", path, a->ndim, GM_MAX_DIMS);
    a->header = 4 + 4 * (size_t)a->ndim;
    if (got < a->header)
        return GM_FAIL(GM_ECORRUPT, "%s: ends inside its header, at byte %zu of %zu; fetch it again", path, got,
                       a->header);
    size_t bytes = a->element;
    for (int i = 0; i < a->ndim; i++) {
        a->shape[i] = big32(head + 4 + 4 * i);
        if (__builtin_mul_overflow(bytes, (size_t)a->shape[i], &bytes) || bytes > (size_t)1 << 47)
            return GM_FAIL(GM_ECORRUPT, "%s: the sizes in its header (offset %d) make more than 2^47 bytes", path,
                           4 + 4 * i);
    }
    a->numel = (int64_t)(bytes / a->element);
    *total = a->header + bytes;
    return GM_OK;
}

static gm_status idx_size(const char *path, const unsigned char *head, size_t got, size_t *total)
{
    gm_array_file a;
    return parse(path, head, got, &a, total);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

gm_status gm_array_open(const char *path, gm_array_file *out)
{
    unsigned char head[HEAD_MAX];
    size_t        total, got;
    gm_status     st;
    *out = (gm_array_file){0};
    bool zipped = ends_with(path, ".gz");
    GM_TRY(zipped ? gm_bytes_inflate(path, sizeof head, idx_size, &out->bytes)
                  : gm_bytes_map(path, GM_ACCESS_RANDOM, &out->bytes));
    got = out->bytes.size < sizeof head ? out->bytes.size : sizeof head;
    GM_TRY_OR(gm_bytes_copy(&out->bytes, 0, got, head), st, failed);
    GM_TRY_OR(parse(path, head, got, out, &total), st, failed);
    if (out->bytes.size != total) {
        st = GM_FAIL(GM_ECORRUPT, "%s: has %zu bytes, its header tells %zu; fetch it again", path, out->bytes.size,
                     total);
        goto failed;
    }
    return GM_OK;
failed:
    gm_array_close(out);
    return st;
}

void gm_array_close(gm_array_file *a)
{
    gm_bytes_close(&a->bytes);
    *a = (gm_array_file){0};
}

static gm_status check_range(const gm_array_file *a, int64_t first, int64_t n)
{
    if (first < 0 || n < 0 || n > a->numel || first > a->numel - n)
        return GM_FAIL(GM_EINVAL, "%s: elements %lld to %lld of %lld", a->bytes.path, (long long)first,
                       (long long)(first + n), (long long)a->numel);
    return GM_OK;
}

gm_status gm_array_read_u8(const gm_array_file *a, int64_t first, int64_t n, uint8_t *to)
{
    GM_TRY(check_range(a, first, n));
    if (a->type != GM_IDX_U8) return GM_FAIL(GM_EINVAL, "%s: its elements are not bytes", a->bytes.path);
    return gm_bytes_copy(&a->bytes, a->header + (size_t)first, (size_t)n, to);
}

static double decode(gm_idx_type type, const unsigned char *p)
{
    uint64_t wide;
    uint32_t narrow;
    float    f;
    double   d;
    switch (type) {
    case GM_IDX_U8: return p[0];
    case GM_IDX_I8: return (int8_t)p[0];
    case GM_IDX_I16: return (int16_t)((uint16_t)p[0] << 8 | p[1]);
    case GM_IDX_I32: return (int32_t)big32(p);
    case GM_IDX_F32:
        narrow = big32(p);
        memcpy(&f, &narrow, 4);
        return f;
    default:
        wide = (uint64_t)big32(p) << 32 | big32(p + 4);
        memcpy(&d, &wide, 8);
        return d;
    }
}

gm_status gm_array_read_f64(const gm_array_file *a, int64_t first, int64_t n, double *to)
{
    unsigned char raw[4096];
    int64_t       step = (int64_t)(sizeof raw / a->element);
    GM_TRY(check_range(a, first, n));
    for (int64_t done = 0; done < n; done += step) {
        int64_t m = n - done < step ? n - done : step;
        GM_TRY(gm_bytes_copy(&a->bytes, a->header + (size_t)(first + done) * a->element, (size_t)m * a->element, raw));
        for (int64_t i = 0; i < m; i++) to[done + i] = decode(a->type, raw + (size_t)i * a->element);
    }
    return GM_OK;
}
