/* dtype.c - see dtype.h. */
#include "element.h"

#include <math.h>

static const struct {
    const char   *name, *file_name;
    gm_dtype_kind kind;
} info[GM_DTYPE_COUNT] = {
#define GM_DTYPE(NAME, name, bytes, kind) {#name, #NAME, GM_##kind},
#include "dtypes.def"
#undef GM_DTYPE
};

size_t        gm_dtype_size(gm_dtype t) { return gm_element_size(t); }
const char   *gm_dtype_name(gm_dtype t) { return t == GM_DTYPE_NONE ? "none" : info[t].name; }
const char   *gm_dtype_file_name(gm_dtype t) { return info[t].file_name; }
gm_dtype_kind gm_dtype_kind_of(gm_dtype t) { return info[t].kind; }
bool          gm_dtype_is_float(gm_dtype t) { return t == GM_DTYPE_NONE || info[t].kind != GM_WHOLE; }
bool          gm_dtype_is_narrow(gm_dtype t) { return t != GM_DTYPE_NONE && info[t].kind == GM_NARROW; }

bool gm_dtype_parse(const char *name, gm_dtype *t)
{
    for (int i = 0; i < GM_DTYPE_COUNT; i++)
        if (!strcmp(info[i].name, name)) {
            *t = (gm_dtype)i;
            return true;
        }
    return false;
}

float gm_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 0x3ff, u;
    if (exp == 31) u = sign | 0x7f800000u | (man << 13);
    else if (exp) u = sign | ((exp + 112) << 23) | (man << 13);
    else { /* zero or subnormal: man * 2^-24 exactly */ float f = (float)man * 0x1p-24f;
        memcpy(&u, &f, 4);
        u |= sign;
    }
    float f;
    memcpy(&f, &u, 4);
    return f;
}

uint16_t gm_f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) return sign | 0x7e00;
    if (u >= 0x477ff000u) return sign | 0x7c00; /* rounds to 65536 or more: infinity */
    if (u < 0x38800000u) {                      /* below 2^-14: subnormal, the addition rounds */
        float a;
        memcpy(&a, &u, 4);
        a += 0.5f; /* ulp of 0.5 is 2^-24, the unit of subnormal f16 */
        memcpy(&u, &a, 4);
        return sign | (uint16_t)(u - 0x3f000000u);
    }
    u += 0xfffu + ((u >> 13) & 1);
    return sign | (uint16_t)((u - 0x38000000u) >> 13);
}

static uint16_t f16_by_chance(float f, uint32_t chance)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000);
    u &= 0x7fffffffu;
    if (u < 0x38800000u) { /* below 2^-14: multiples of 2^-24, here with 16 more bits */
        float a;
        memcpy(&a, &u, 4);
        return sign | (uint16_t)(((uint32_t)(a * 0x1p40f) + chance) >> 16);
    }
    u = (u + (chance >> 3) - 0x38000000u) >> 13;
    return sign | (uint16_t)(u < 0x7c00 ? u : 0x7c00);
}

uint16_t gm_round_by_chance(gm_dtype t, float f, uint32_t word)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    bool number = (u & 0x7f800000u) != 0x7f800000u;
    if (t == GM_F16) return number ? f16_by_chance(f, word >> 16) : gm_f32_to_f16(f);
    return number ? (uint16_t)((u + (word >> 16)) >> 16) : gm_f32_to_bf16(f);
}

/* Toward zero, saturating; NaN gives 0. hi is exclusive and a power of two, so exact in double. */
static int64_t to_integer(double v, double lo, double hi, int64_t min, int64_t max)
{
    if (isnan(v)) return 0;
    return v <= lo ? min : v >= hi ? max : (int64_t)v;
}

/* Element i, of C type `type`, from double v. */
#define ELEMENT(name, type, from_double) \
    static void store_##name(void *base, int64_t i, double v) { ((type *)base)[i] = (type)(from_double); }
ELEMENT(f32, float, v)
ELEMENT(f64, double, v)
ELEMENT(bf16, uint16_t, gm_f32_to_bf16((float)v))
ELEMENT(f16, uint16_t, gm_f32_to_f16((float)v))
ELEMENT(i32, int32_t, to_integer(v, -0x1p31, 0x1p31, INT32_MIN, INT32_MAX))
ELEMENT(i64, int64_t, to_integer(v, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX))
ELEMENT(u8, uint8_t, to_integer(v, 0, 256, 0, 255))

double gm_load(gm_dtype t, const void *base, int64_t i) { return gm_element(t, base, i); }

void gm_store(gm_dtype t, void *base, int64_t i, double v)
{
    switch (t) {
#define GM_DTYPE(NAME, name, bytes, kind) \
    case GM_##NAME:                       \
        store_##name(base, i, v);         \
        break;
#include "dtypes.def"
#undef GM_DTYPE
    default: break;
    }
}
