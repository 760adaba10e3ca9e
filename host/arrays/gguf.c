/* gguf.c - reads .gguf files, versions 2 and 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
 *
 *     "GGUF" | version u32 | arrays u64 | keys u64
 *     for each key: name, type u32, value                 texts are a length u64 and bytes; all is little-endian
 *     for each array: name, dimensions u32, sizes u64 (innermost first), type u32, offset u64 (from the data on)
 *     padding | data, each array at a multiple of general.alignment
 *
 * The keys become gm_arrays.meta. Counts and lengths are compared with the bytes that are left before memory is
 * taken. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "formats.h"

#define DEPTH_MAX 4 /* arrays in arrays */

typedef struct cursor {
    const gm_bytes *b;
    size_t          at;
} cursor;

static size_t left(const cursor *c) { return c->b->size - c->at; }

static gm_status take(cursor *c, size_t n, void *to)
{
    if (n > left(c)) return GM_FAIL(GM_ECORRUPT, "%s: ends inside of its header, at byte %zu", c->b->path, c->b->size);
    GM_TRY(gm_bytes_copy(c->b, c->at, n, to));
    c->at += n;
    return GM_OK;
}

/* A number of `n` bytes, at most 8. */
static gm_status take_word(cursor *c, size_t n, uint64_t *out)
{
    unsigned char raw[8];
    GM_TRY(take(c, n, raw));
    *out = 0;
    for (size_t i = 0; i < n; i++) *out |= (uint64_t)raw[i] << 8 * i;
    return GM_OK;
}

/* A text with a zero behind it, to be freed. */
static gm_status take_text(cursor *c, char **out, size_t *length)
{
    uint64_t n;
    *out = NULL;
    GM_TRY(take_word(c, 8, &n));
    if (n > left(c))
        return GM_FAIL(GM_ECORRUPT, "%s: a text of %llu bytes at byte %zu is longer than the file", c->b->path,
                       (unsigned long long)n, c->at);
    if (!(*out = malloc((size_t)n + 1))) return GM_FAIL(GM_ENOMEM, "%s: no memory for its header", c->b->path);
    (*out)[n] = 0;
    *length = (size_t)n;
    gm_status st = take(c, (size_t)n, *out);
    if (st == GM_OK) return GM_OK;
    free(*out);
    *out = NULL;
    return st;
}

/* ---- keys ---- */

typedef enum type { U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, LIST, U64, I64, F64, TYPES } type;

static const size_t size_of[TYPES] = {[U8] = 1,  [I8] = 1,   [U16] = 2, [I16] = 2, [U32] = 4, [I32] = 4,
                                      [F32] = 4, [BOOL] = 1, [U64] = 8, [I64] = 8, [F64] = 8};

static json_t *number(type t, uint64_t u)
{
    uint32_t narrow = (uint32_t)u;
    double   d;
    float    f;
    switch (t) {
    case I8: return json_integer((int8_t)u);
    case I16: return json_integer((int16_t)u);
    case I32: return json_integer((int32_t)u);
    case BOOL: return json_boolean(u);
    case F32:
        memcpy(&f, &narrow, 4);
        d = (double)f;
        break;
    case F64: memcpy(&d, &u, 8); break;
    case U64:
        if (u >> 63) return json_real((double)u);
        return json_integer((json_int_t)u);
    default: return json_integer((json_int_t)u);
    }
    json_t *real = json_real(d);
    return real ? real : json_string(d != d ? "nan" : d > 0 ? "inf" : "-inf"); /* JSON has no such number */
}

static gm_status take_value(cursor *c, uint64_t t, int depth, json_t **out);

static gm_status take_list(cursor *c, int depth, json_t **out)
{
    uint64_t t, n;
    GM_TRY(take_word(c, 4, &t));
    GM_TRY(take_word(c, 8, &n));
    if (t >= TYPES || depth == DEPTH_MAX)
        return GM_FAIL(GM_ECORRUPT, "%s: a list before byte %zu has a type that is not known", c->b->path, c->at);
    size_t least = t == TEXT ? 8 : t == LIST ? 12 : size_of[t];
    if (n > left(c) / least)
        return GM_FAIL(GM_ECORRUPT, "%s: a list of %llu values before byte %zu is longer than the file", c->b->path,
                       (unsigned long long)n, c->at);
    if (!(*out = json_array())) return GM_FAIL(GM_ENOMEM, "%s: no memory for its header", c->b->path);
    for (uint64_t i = 0; i < n; i++) {
        json_t *v;
        GM_TRY(take_value(c, t, depth + 1, &v));
        if (json_array_append_new(*out, v)) return GM_FAIL(GM_ENOMEM, "%s: no memory for its header", c->b->path);
    }
    return GM_OK;
}

/* Texts that are not UTF-8 (pieces of some vocabularies) are refused: JSON has none. */
static gm_status take_json_text(cursor *c, json_t **out)
{
    char  *text;
    size_t n, at = c->at;
    GM_TRY(take_text(c, &text, &n));
    *out = json_stringn(text, n);
    free(text);
    return *out ? GM_OK : GM_FAIL(GM_ECORRUPT, "%s: the text at byte %zu is not UTF-8", c->b->path, at);
}

/* On failure *out may hold what has come so far, which the caller drops. */
static gm_status take_value(cursor *c, uint64_t t, int depth, json_t **out)
{
    uint64_t u;
    *out = NULL;
    if (t == TEXT) return take_json_text(c, out);
    if (t == LIST) {
        gm_status st = take_list(c, depth, out);
        if (st == GM_OK) return GM_OK;
        json_decref(*out);
        *out = NULL;
        return st;
    }
    if (t >= TYPES)
        return GM_FAIL(GM_ECORRUPT, "%s: a key before byte %zu has a type that is not known", c->b->path, c->at);
    GM_TRY(take_word(c, size_of[t], &u));
    *out = number((type)t, u);
    return *out ? GM_OK : GM_FAIL(GM_ENOMEM, "%s: no memory for its header", c->b->path);
}

static gm_status take_key(cursor *c, json_t *meta)
{
    char    *name;
    size_t   length;
    uint64_t t;
    json_t  *v = NULL;
    GM_TRY(take_text(c, &name, &length));
    gm_status st = take_word(c, 4, &t);
    if (st == GM_OK) st = take_value(c, t, 0, &v);
    if (st == GM_OK && json_object_get(meta, name))
        st = GM_FAIL(GM_ECORRUPT, "%s: has the key '%.80s' twice", c->b->path, name);
    if (st == GM_OK && json_object_set(meta, name, v))
        st = GM_FAIL(GM_ECORRUPT, "%s: a key before byte %zu is not UTF-8", c->b->path, c->at);
    json_decref(v);
    free(name);
    return st;
}

/* ---- arrays ---- */

/* GGUF's number of a type -> ours. Numbers that are missing here are older formats, or ones of under 4 bits. */
static gm_element element_of(uint64_t type)
{
    static const struct {
        int        type;
        gm_element element;
    } known[] = {{0, GM_ELEMENT_F32},   {1, GM_ELEMENT_F16},   {2, GM_ELEMENT_Q4_0}, {3, GM_ELEMENT_Q4_1},
                 {6, GM_ELEMENT_Q5_0},  {7, GM_ELEMENT_Q5_1},  {8, GM_ELEMENT_Q8_0}, {12, GM_ELEMENT_Q4_K},
                 {13, GM_ELEMENT_Q5_K}, {14, GM_ELEMENT_Q6_K}, {24, GM_ELEMENT_I8},  {25, GM_ELEMENT_I16},
                 {26, GM_ELEMENT_I32},  {27, GM_ELEMENT_I64},  {28, GM_ELEMENT_F64}, {30, GM_ELEMENT_BF16}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if ((uint64_t)known[i].type == type) return known[i].element;
    return GM_ELEMENT_COUNT;
}

/* Refuses a type that is not read here, by the name that llama.cpp gives it: its files are sound. */
static gm_status refuse_type(const gm_bytes *b, const char *array, uint64_t type)
{
    static const char *const names[] = {
        [4] = "Q4_2",     [5] = "Q4_3",    [9] = "Q8_1",     [10] = "Q2_K",  [11] = "Q3_K",   [15] = "Q8_K",
        [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",
        [22] = "IQ2_S",   [23] = "IQ4_XS", [29] = "IQ1_M",   [34] = "TQ1_0", [35] = "TQ2_0",  [39] = "MXFP4",
    };
    const char *name = type < sizeof names / sizeof *names ? names[type] : NULL;
    if (!name)
        return GM_FAIL(GM_ECORRUPT, "%s: array '%s' has GGML's type %llu, which is not known here", b->path, array,
                       (unsigned long long)type);
    return GM_FAIL(GM_EINVAL,
                   "%s: the numbers of array '%s' are of GGML's type %s, which this program does not read; take the "
                   "model in another type, such as Q8_0, Q4_K_M or Q6_K",
                   b->path, array, name);
}

static gm_status take_sizes(cursor *c, gm_array *a)
{
    uint64_t n;
    GM_TRY(take_word(c, 4, &n));
    if (n > GM_MAX_DIMS)
        return GM_FAIL(GM_ECORRUPT, "%s: array '%s' has %llu dimensions; at most %d are possible", c->b->path, a->name,
                       (unsigned long long)n, GM_MAX_DIMS);
    a->ndim = (int)n;
    for (int i = a->ndim - 1; i >= 0; i--) {
        GM_TRY(take_word(c, 8, &n));
        if (n >> 62) return GM_FAIL(GM_ECORRUPT, "%s: array '%s' has a size that is not possible", c->b->path, a->name);
        a->shape[i] = (int64_t)n;
    }
    return GM_OK;
}

static gm_status take_array(cursor *c, gm_arrays *s, int file)
{
    gm_array *a;
    char     *name;
    size_t    length;
    uint64_t  t;
    GM_TRY(take_text(c, &name, &length));
    gm_status st = gm_arrays_add(s, name, length, file, &a);
    free(name);
    GM_TRY(st);
    GM_TRY(take_sizes(c, a));
    GM_TRY(take_word(c, 4, &t));
    GM_TRY(take_word(c, 8, &a->begin)); /* from the data on, until place() */
    a->element = element_of(t);
    if (a->element == GM_ELEMENT_COUNT) return refuse_type(c->b, a->name, t);
    if (!gm_array_size(a->element, a->ndim, a->shape, &a->bytes))
        return GM_FAIL(GM_ECORRUPT, "%s: the shape of array '%s' overflows, or is no multiple of its blocks",
                       c->b->path, a->name);
    return GM_OK;
}

static int by_begin(const void *a, const void *b)
{
    const gm_array *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Offsets become places in the file: aligned, apart from each other, and inside. */
static gm_status place(const cursor *c, gm_arrays *s, int first, uint64_t alignment)
{
    uint64_t data = (c->at + alignment - 1) / alignment * alignment, end = 0;
    if (s->n > first) qsort(s->list + first, (size_t)(s->n - first), sizeof *s->list, by_begin);
    for (int i = first; i < s->n; i++) {
        gm_array *a = &s->list[i];
        if (a->begin % alignment || a->begin < end)
            return GM_FAIL(GM_ECORRUPT, "%s: array '%s' overlaps another, or is not aligned", c->b->path, a->name);
        if (data > c->b->size || a->begin > c->b->size - data || a->bytes > c->b->size - data - a->begin)
            return GM_FAIL(GM_ECORRUPT, "%s: array '%s' reaches beyond the end of the file; fetch it again", c->b->path,
                           a->name);
        end = a->begin + a->bytes;
        a->begin += data;
    }
    return GM_OK;
}

static gm_status read_alignment(const cursor *c, const json_t *meta, uint64_t *out)
{
    const json_t *v = json_object_get(meta, "general.alignment");
    json_int_t    n = v ? json_integer_value(v) : 32;
    if (n < 1 || n > 1 << 20 || n & (n - 1))
        return GM_FAIL(GM_ECORRUPT, "%s: general.alignment is no power of 2 up to 2^20", c->b->path);
    *out = (uint64_t)n;
    return GM_OK;
}

static gm_status read_all(cursor *c, gm_arrays *s, int file, json_t *meta)
{
    uint64_t version, arrays, keys, alignment = 1;
    int      first = s->n;
    GM_TRY(take_word(c, 4, &version));
    if (version < 2 || version > 3)
        return GM_FAIL(GM_ECORRUPT, "%s: GGUF of version %llu; 2 and 3 are known", c->b->path,
                       (unsigned long long)version);
    GM_TRY(take_word(c, 8, &arrays));
    GM_TRY(take_word(c, 8, &keys));
    if (keys > left(c) / 13 || arrays > left(c) / 24) /* what the smallest take */
        return GM_FAIL(GM_ECORRUPT, "%s: %llu arrays and %llu keys are more than the file can hold", c->b->path,
                       (unsigned long long)arrays, (unsigned long long)keys);
    for (uint64_t i = 0; i < keys; i++) GM_TRY(take_key(c, meta));
    for (uint64_t i = 0; i < arrays; i++) GM_TRY(take_array(c, s, file));
    GM_TRY(read_alignment(c, meta, &alignment));
    return place(c, s, first, alignment);
}

gm_status gm_gguf_add(gm_arrays *s, int file)
{
    cursor   c = {.b = &s->files[file]};
    uint64_t magic;
    if (c.b->size < 4) return GM_FAIL(GM_ECORRUPT, "%s: is no GGUF file, which begins with GGUF", c.b->path);
    GM_TRY(take_word(&c, 4, &magic));
    if (magic != 0x46554747) return GM_FAIL(GM_ECORRUPT, "%s: is no GGUF file, which begins with GGUF", c.b->path);
    json_t   *meta = json_object();
    gm_status st = meta ? read_all(&c, s, file, meta) : GM_FAIL(GM_ENOMEM, "%s: no memory for its header", c.b->path);
    if (st == GM_OK && !s->meta && !(s->meta = json_dumps(meta, JSON_COMPACT)))
        st = GM_FAIL(GM_ENOMEM, "%s: no memory for its header", c.b->path);
    json_decref(meta);
    return st;
}
