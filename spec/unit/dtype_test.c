/* dtype_test.c - conversions against an independent method: the values of a 16-bit format are listed with
 * ldexp from the definition of the format, and rounding is a search in that list. */
#include <stdlib.h>

#include "unit.h"

typedef struct format {
    int exponent_bits, mantissa_bits;
} format;
static const format f16 = {5, 10}, bf16 = {8, 7};

/* The value of bits without a sign; infinity for the first pattern that is not finite. */
static double value_of(format f, uint32_t bits)
{
    int bias = (1 << (f.exponent_bits - 1)) - 1;
    int e = (int)(bits >> f.mantissa_bits), m = (int)(bits & ((1u << f.mantissa_bits) - 1));
    if (e == (1 << f.exponent_bits) - 1) return INFINITY;
    return e ? ldexp((1 << f.mantissa_bits) + m, e - bias - f.mantissa_bits) : ldexp(m, 1 - bias - f.mantissa_bits);
}

/* Nearest value to x >= 0, ties to the even pattern. Infinity stands where the next value would be. */
static uint16_t nearest(format f, double x)
{
    int      top_exponent = 1 << (f.exponent_bits - 1);
    uint32_t low = 0, high = (((1u << f.exponent_bits) - 1) << f.mantissa_bits), infinity = high;
    if (x >= ldexp(1, top_exponent)) return (uint16_t)infinity;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (value_of(f, middle) <= x) low = middle;
        else high = middle;
    }
    double above = high == infinity ? ldexp(1, top_exponent) : value_of(f, high);
    double down = x - value_of(f, low), up = above - x; /* both exact: neighbours in a short format */
    if (down != up) return (uint16_t)(down < up ? low : high);
    return (uint16_t)(low % 2 == 0 ? low : high);
}

static float float_of(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

void gm_test_dtype_names(void **state)
{
    (void)state;
    static const size_t sizes[GM_DTYPE_COUNT] = {4, 8, 2, 2, 4, 8, 1};
    for (int i = 0; i < GM_DTYPE_COUNT; i++) {
        gm_dtype t = GM_DTYPE_NONE;
        assert_true(gm_dtype_parse(gm_dtype_name((gm_dtype)i), &t));
        assert_int_equal(t, i);
        assert_int_equal(gm_dtype_size(t), sizes[i]);
    }
    gm_dtype t = GM_F64;
    assert_false(gm_dtype_parse("f31", &t));
    assert_int_equal(t, GM_F64);
    assert_string_equal(gm_dtype_name(GM_DTYPE_NONE), "none");
    assert_true(gm_dtype_is_float(GM_F16) && !gm_dtype_is_float(GM_I32) && gm_dtype_is_narrow(GM_BF16));
    assert_true(gm_dtype_wide(GM_F16) == GM_F32 && gm_dtype_wide(GM_F64) == GM_F64 && gm_dtype_wide(GM_I64) == GM_I64);
}

void gm_test_f16_round_trip(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float v = gm_f16_to_f32((uint16_t)h);
        if (isnan(v)) assert_true((h & 0x7c00) == 0x7c00 && (h & 0x3ff));
        else assert_int_equal(gm_f32_to_f16(v), h);
    }
}

void gm_test_f16_values(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0x7c00; h++) {
        double want = value_of(f16, h);
        assert_true((double)gm_f16_to_f32((uint16_t)h) == want);
        assert_true((double)gm_f16_to_f32((uint16_t)(h | 0x8000)) == -want);
        assert_true(signbit(gm_f16_to_f32((uint16_t)(h | 0x8000))));
    }
}

/* x, its neighbours and their negatives. */
static void check_around(format f, uint16_t (*convert)(float), float x)
{
    float xs[3] = {nextafterf(x, 0), x, nextafterf(x, INFINITY)};
    for (int i = 0; i < 3; i++) {
        uint16_t want = nearest(f, xs[i]);
        assert_int_equal(convert(xs[i]), want);
        assert_int_equal(convert(-xs[i]), want | 0x8000);
    }
}

static void check_rounding(format f, uint16_t (*convert)(float))
{
    uint32_t infinity = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    for (uint32_t h = 0; h < infinity; h++) {
        double above = h + 1 == infinity ? ldexp(1, 1 << (f.exponent_bits - 1)) : value_of(f, h + 1);
        check_around(f, convert, (float)((value_of(f, h) + above) / 2)); /* the tie */
        check_around(f, convert, (float)value_of(f, h));
    }
    unit_random r = {1};
    for (int i = 0; i < 1000000; i++) {
        float x = float_of((uint32_t)unit_bits(&r) & 0x7fffffffu);
        if (!isnan(x)) assert_int_equal(convert(x), nearest(f, x));
    }
    assert_int_equal(convert(INFINITY), infinity);
    assert_int_equal(convert(-INFINITY), infinity | 0x8000);
}

void gm_test_f16_rounding(void **state)
{
    (void)state;
    check_rounding(f16, gm_f32_to_f16);
}

void gm_test_bf16_rounding(void **state)
{
    (void)state;
    check_rounding(bf16, gm_f32_to_bf16);
    for (uint32_t h = 0; h < 0x7f80; h++) assert_true((double)gm_bf16_to_f32((uint16_t)h) == value_of(bf16, h));
}

void gm_test_nan_stays_nan(void **state)
{
    (void)state;
    for (uint32_t mantissa = 1; mantissa < 0x800000; mantissa = mantissa * 3 / 2 + 1)
        for (uint32_t sign = 0; sign < 2; sign++) {
            float x = float_of(sign << 31 | 0x7f800000u | mantissa);
            assert_true(isnan(gm_f16_to_f32(gm_f32_to_f16(x))));
            assert_true(isnan(gm_bf16_to_f32(gm_f32_to_bf16(x))));
        }
}

void gm_test_casts_saturate(void **state)
{
    (void)state;
    static const struct {
        gm_dtype t;
        double   v;
        int64_t  want;
    } cases[] = {
        {GM_U8, -1, 0},
        {GM_U8, -0.9, 0},
        {GM_U8, 255.9, 255},
        {GM_U8, 256, 255},
        {GM_U8, 1e300, 255},
        {GM_U8, 17.99, 17},
        {GM_U8, NAN, 0},
        {GM_U8, INFINITY, 255},
        {GM_U8, -INFINITY, 0},
        {GM_I32, 2147483647.0, INT32_MAX},
        {GM_I32, 2147483647.9, INT32_MAX},
        {GM_I32, 2147483648.0, INT32_MAX},
        {GM_I32, -2147483648.9, INT32_MIN},
        {GM_I32, -2147483649.0, INT32_MIN},
        {GM_I32, -3.99, -3},
        {GM_I32, 3.99, 3},
        {GM_I32, NAN, 0},
        {GM_I32, INFINITY, INT32_MAX},
        {GM_I32, -INFINITY, INT32_MIN},
        {GM_I64, 0x1p63, INT64_MAX},
        {GM_I64, -0x1p63, INT64_MIN},
        {GM_I64, 0x1.fffffffffffffp62, 0x7ffffffffffffc00},
        {GM_I64, -1e300, INT64_MIN},
        {GM_I64, NAN, 0},
        {GM_I64, -7.5, -7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        union {
            uint8_t u8[16];
            int32_t i32[4];
            int64_t i64[2];
        } room = {.i64 = {-2, -2}};
        gm_store(cases[i].t, &room, 1, cases[i].v);
        int64_t have = cases[i].t == GM_U8 ? room.u8[1] : cases[i].t == GM_I32 ? room.i32[1] : room.i64[1];
        assert_int_equal(have, cases[i].want);
        assert_true(gm_load(cases[i].t, &room, 1) == (double)cases[i].want);
    }
}
