/* elements.c - see elements.h. */
#include "elements.h"

#include <string.h>
#include "../../kernels/float8.h"
#include "blocks.h"

static const struct {
    const char *name;
    int         block;
    size_t      bytes;
} elements[] = {
#define GM_ELEMENT(NAME, name, elements, bytes) {name, elements, bytes},
#include "elements.def"
#undef GM_ELEMENT
};

const char *gm_element_name(gm_element e) { return elements[e].name; }
int         gm_element_block(gm_element e) { return elements[e].block; }
size_t      gm_element_bytes(gm_element e) { return elements[e].bytes; }

gm_element gm_element_named(const char *name)
{
    int e = 0;
    while (e < GM_ELEMENT_COUNT && strcmp(elements[e].name, name) != 0) e++;
    return (gm_element)e;
}

gm_dtype gm_element_dtype(gm_element e)
{
    for (int t = 0; t < GM_DTYPE_COUNT; t++)
        if (!strcmp(gm_dtype_file_name((gm_dtype)t), elements[e].name)) return (gm_dtype)t;
    return GM_DTYPE_NONE;
}

gm_element gm_element_of(gm_dtype t) { return gm_element_named(gm_dtype_file_name(t)); }

/* ---- one number ---- */

static double float8(int format, unsigned char code)
{
    uint32_t bits = gm_float8_value(format, code);
    float    v;
    memcpy(&v, &bits, sizeof v);
    return (double)v;
}

static bool is_whole(gm_element e) { return e >= GM_ELEMENT_I64 && e <= GM_ELEMENT_BOOL; }

/* The number's bytes as a little-endian word. */
static uint64_t word_of(const unsigned char *p, size_t bytes, bool swapped)
{
    uint64_t u = 0;
    for (size_t i = 0; i < bytes; i++) u |= (uint64_t)p[swapped ? bytes - 1 - i : i] << 8 * i;
    return u;
}

static int64_t whole_number(gm_element e, uint64_t u)
{
    switch (e) {
    case GM_ELEMENT_I32: return (int32_t)u;
    case GM_ELEMENT_I16: return (int16_t)u;
    case GM_ELEMENT_I8: return (int8_t)u;
    case GM_ELEMENT_BOOL: return u != 0;
    default: return (int64_t)u;
    }
}

static double real_number(gm_element e, uint64_t u)
{
    uint32_t narrow = (uint32_t)u;
    double   d;
    float    f;
    switch (e) {
    case GM_ELEMENT_F64: memcpy(&d, &u, 8); return d;
    case GM_ELEMENT_F32: memcpy(&f, &narrow, 4); return (double)f;
    case GM_ELEMENT_F16: return (double)gm_f16_to_f32((uint16_t)u);
    case GM_ELEMENT_BF16: return (double)gm_bf16_to_f32((uint16_t)u);
    case GM_ELEMENT_F8_E4M3: return float8(GM_FLOAT8_E4M3, (unsigned char)u);
    case GM_ELEMENT_F8_E5M2: return float8(GM_FLOAT8_E5M2, (unsigned char)u);
    case GM_ELEMENT_U64: return (double)u;
    default: return (double)whole_number(e, u);
    }
}

/* ---- rows ---- */

static void store_whole(gm_dtype to, void *out, int64_t i, int64_t v)
{
    if (to == GM_I64) ((int64_t *)out)[i] = v;
    else if (to == GM_I32) ((int32_t *)out)[i] = (int32_t)v;
    else ((uint8_t *)out)[i] = (uint8_t)v;
}

static void decode_plain(gm_element e, bool swapped, const unsigned char *from, int64_t n, gm_dtype to, void *out)
{
    size_t bytes = elements[e].bytes;
    bool   whole = is_whole(e) && !gm_dtype_is_float(to);
    for (int64_t i = 0; i < n; i++, from += bytes) {
        uint64_t u = word_of(from, bytes, swapped);
        if (whole) store_whole(to, out, i, whole_number(e, u));
        else gm_store(to, out, i, real_number(e, u));
    }
}

static void decode_blocks(gm_element e, const unsigned char *from, int64_t n, gm_dtype to, void *out)
{
    float numbers[GM_ELEMENT_BLOCK];
    int   block = elements[e].block;
    for (int64_t i = 0; i < n; i += block, from += elements[e].bytes) {
        gm_block_decode(e, from, numbers);
        for (int k = 0; k < block && i + k < n; k++) gm_store(to, out, i + k, (double)numbers[k]);
    }
}

/* The pairs that models come in are worth loops of their own. */
static bool decode_fast(gm_element e, const unsigned char *from, int64_t n, gm_dtype to, void *out)
{
    const uint16_t *halves = (const void *)from; /* buffers are aligned */
    float          *f = out;
    if (gm_element_dtype(e) == to) memcpy(out, from, (size_t)n * elements[e].bytes);
    else if (e == GM_ELEMENT_BF16 && to == GM_F32)
        for (int64_t i = 0; i < n; i++) f[i] = gm_bf16_to_f32(halves[i]);
    else if (e == GM_ELEMENT_F16 && to == GM_F32)
        for (int64_t i = 0; i < n; i++) f[i] = gm_f16_to_f32(halves[i]);
    else return false;
    return true;
}

void gm_elements_decode(gm_element e, bool swapped, const unsigned char *from, int64_t n, gm_dtype to, void *out)
{
    if (elements[e].block > 1) decode_blocks(e, from, n, to, out);
    else if (swapped || !decode_fast(e, from, n, to, out)) decode_plain(e, swapped, from, n, to, out);
}
