/* emulated_avx512_test.c - the intrinsics of AVX-512 that tests emulate (kernels/cpu/emulated_avx512.h) against what
 * Intel's manual says of them: numbers computed by hand, and plain loops. Compiled for AVX2, and skipped without. */
#include "unit.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && !defined(__AVX512F__)
#include <sys/mman.h>
#include <unistd.h>

#include "../../kernels/cpu/emulated_avx512.h"

static bool can_run(void)
{
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return true;
    print_message("skipped: this CPU lacks AVX2\n");
    return false;
}

static void expect(double got, double want, double y, double n)
{
    if (isnan(want) ? isnan(got) : got == want && !signbit(got) == !signbit(want)) return;
    fail_msg("%a 2^floor(%a) is %a, not %a", y, n, got, want);
}

void gm_test_emulated_scale(void **state)
{
    (void)state;
    if (!can_run()) return;
    static const struct {
        float y, n, want;
    } narrow[] = {
        {1.5f, 3.75f, 12},
        {1.5f, -3.25f, 0x1.8p-4f},
        {1, -149, 0x1p-149f},
        {3, -150, 0x1p-148f},
        {1, -150, 0},
        {-1, -1e30f, -0.0f},
        {1, 1e30f, INFINITY},
        {0x1p-149f, 276, 0x1p127f},
        {0, 1e30f, 0},
        {0x1p-149f, 277, INFINITY},
        {NAN, INFINITY, INFINITY},
        {NAN, -INFINITY, 0},
        {0, INFINITY, NAN},
        {INFINITY, -INFINITY, NAN},
        {-2, INFINITY, -INFINITY},
        {-2, -INFINITY, -0.0f},
        {INFINITY, NAN, NAN},
        {NAN, 2, NAN},
        {-INFINITY, -5, -INFINITY},
    };
    static const struct {
        double y, n, want;
    } wide_numbers[] = {{3, -1075, 0x1p-1073}, {1, 1024, INFINITY}, {0x1p-1074, 2097, 0x1p1023}, {-1, -1e300, -0.0}};
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        const wide y = {.ps = _mm512_set1_ps(narrow[i].y)}, n = {.ps = _mm512_set1_ps(narrow[i].n)};
        const wide got = {.ps = _mm512_scalef_ps(y.ps, n.ps)};
        expect(got.f32[i % 16], narrow[i].want, narrow[i].y, narrow[i].n);
    }
    for (size_t i = 0; i < sizeof wide_numbers / sizeof *wide_numbers; i++) {
        wide y = {.pd = {0}}, n = y;
        y.f64[7 - i] = wide_numbers[i].y, n.f64[7 - i] = wide_numbers[i].n;
        y.pd = _mm512_scalef_pd(y.pd, n.pd);
        expect(y.f64[7 - i], wide_numbers[i].want, wide_numbers[i].y, wide_numbers[i].n);
    }
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void gm_test_emulated_bf16_rounding(void **state)
{
    (void)state;
    if (!can_run()) return;
    static const uint32_t rows[][2] = {
        {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80},
        {0x7f7fffff, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0xffa12345, 0xffe1}, {0x007fffff, 0x0000},
        {0x80400000, 0x8000}, {0x00800000, 0x0080}, {0x80000000, 0x8000},
    };
    wide x = {.si = {0}}, two;
    for (int i = 0; i < 13; i++) x.i32[i] = (int32_t)rows[i][0];
    const wide r = {.half_si = {(__m256i)_mm512_cvtneps_pbh(x.ps)}};
    two.si = (__m512i)_mm512_cvtne2ps_pbh(x.ps, _mm512_set1_ps(-2));
    for (int i = 0; i < 13; i++) {
        assert_int_equal(r.u16[i], rows[i][1]);
        assert_int_equal(two.u16[i], 0xc000);
        assert_int_equal(two.u16[16 + i], rows[i][1]);
    }
}

/* Pairs of bf16: x, y as the first and u, v as the second numbers. */
static float pairs(float c, float x, float y, float u, float v)
{
    wide a = {.si = {0}}, b = a, sum = {.ps = _mm512_set1_ps(c)};
    memcpy(&a.u16[22], (char *)&x + 2, 2), memcpy(&a.u16[23], (char *)&u + 2, 2);
    memcpy(&b.u16[22], (char *)&y + 2, 2), memcpy(&b.u16[23], (char *)&v + 2, 2);
    sum.ps = _mm512_dpbf16_ps(sum.ps, (__m512bh)a.si, (__m512bh)b.si);
    return sum.f32[11];
}

void gm_test_emulated_bf16_products(void **state)
{
    (void)state;
    if (!can_run()) return;
    assert_true(pairs(0.5f, 2, 3, 5, -7) == -28.5f);
    assert_true(pairs(0x1p24f, 1, 1, 1, 1) == 0x1p24f);      /* each sum is rounded: twice to the even number */
    assert_true(pairs(0x1p24f, -1, 1, 1, 1) == 0x1p24f - 1); /* the second numbers come first */
    assert_true(pairs(0x1p-127f, 0, 0, 0, 0) == 0);
    assert_true(pairs(0, of_bits(0x00400000), 0x1p100f, 0, 0) == 0);
    assert_true(pairs(0, 0, 0, 0x1p100f, of_bits(0x00010000)) == 0);
    assert_true(pairs(0, 0x1p-63f, 0x1p-64f, 0, 0) == 0 && pairs(0, 0x1p-63f, 0x1p-63f, 0, 0) == 0x1p-126f);
    assert_true(signbit(pairs(-0x1p-127f, 0, -1, 0, -1)));
    assert_true(isnan(pairs(0, INFINITY, 0, 0, 0)) && pairs(0, INFINITY, 1, 0, 0) == INFINITY);
}

void gm_test_emulated_bytes(void **state)
{
    (void)state;
    if (!can_run()) return;
    unit_random r = {5};
    wide        a, b, c, got;
    for (int i = 0; i < 64; i++) {
        a.u8[i] = (uint8_t)(i < 8 ? 255 : unit_below(&r, 256));
        b.i8[i] = (int8_t)(i < 8 ? -128 : (int)unit_below(&r, 256) - 128);
    }
    for (int i = 0; i < 16; i++) c.i32[i] = i == 0 ? INT32_MIN : i;
    got.si = _mm512_dpbusd_epi32(c.si, a.si, b.si);
    for (int i = 0; i < 16; i++) {
        int64_t sum = c.i32[i];
        for (int k = 4 * i; k < 4 * i + 4; k++) sum += (int64_t)a.u8[k] * b.i8[k];
        assert_int_equal((uint32_t)got.i32[i], (uint32_t)sum); /* the first one wraps */
    }
    got.half_si[1] = _mm512_cvtepi16_epi8(a.si);
    for (int i = 0; i < 32; i++) assert_int_equal(got.u8[32 + i], a.u8[2 * i]);
}

void gm_test_emulated_permutations(void **state)
{
    (void)state;
    if (!can_run()) return;
    unit_random r = {7};
    wide        a, b, index, one, two, low, high, some, logic;
    for (int i = 0; i < 32; i++) {
        a.u16[i] = (uint16_t)unit_below(&r, 65536), b.u16[i] = (uint16_t)unit_below(&r, 65536);
        index.u16[i] = (uint16_t)unit_below(&r, 65536);
    }
    one.si = _mm512_permutexvar_epi16(index.si, a.si);
    two.si = _mm512_permutex2var_epi16(a.si, index.si, b.si);
    for (int i = 0; i < 32; i++) {
        const int k = index.u16[i] % 64;
        assert_int_equal(one.u16[i], a.u16[k % 32]);
        assert_int_equal(two.u16[i], k < 32 ? a.u16[k] : b.u16[k - 32]);
    }
    one.ps = _mm512_permutexvar_ps(index.si, a.ps);
    low.ps = _mm512_unpacklo_ps(a.ps, b.ps), high.ps = _mm512_unpackhi_ps(a.ps, b.ps);
    two.ps = _mm512_shuffle_ps(a.ps, b.ps, 0x4e);
    some.si = _mm512_shuffle_epi32(a.si, _MM_PERM_DDBB);
    logic.si = _mm512_ternarylogic_epi64(a.si, b.si, index.si, 0xca); /* a ? b : c */
    for (int i = 0; i < 16; i++) {
        const int first = i / 4 * 4, k = i % 4;
        assert_int_equal(one.i32[i], a.i32[index.i32[i] & 15]);
        assert_int_equal(low.i32[i], (k % 2 ? &b : &a)->i32[first + k / 2]);
        assert_int_equal(high.i32[i], (k % 2 ? &b : &a)->i32[first + 2 + k / 2]);
        assert_int_equal(two.i32[i], (k < 2 ? &a : &b)->i32[first + (0x4e >> 2 * k & 3)]);
        assert_int_equal(some.i32[i], a.i32[first + (k < 2 ? 1 : 3)]);
        assert_int_equal(logic.i32[i], (a.i32[i] & b.i32[i]) | (~a.i32[i] & index.i32[i]));
    }
}

/* Of n numbers before memory that may not be touched, masks load and store these alone. */
void gm_test_emulated_masks(void **state)
{
    (void)state;
    if (!can_run()) return;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char        *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    assert_int_equal(mprotect(p + page, page, PROT_NONE), 0);
    for (int n = 0; n <= 16; n++) {
        float *x = (float *)(void *)(p + page) - n;
        wide   got, ones = {.ps = _mm512_set1_ps(1)};
        for (int i = 0; i < n; i++) x[i] = (float)(n + i);
        got.ps = _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), x);
        for (int i = 0; i < 16; i++) assert_true(got.f32[i] == (i < n ? (float)(n + i) : 0));
        _mm512_mask_storeu_ps(x, (__mmask16)((1u << n) - 1), _mm512_mul_ps(got.ps, _mm512_set1_ps(2)));
        for (int i = 0; i < n; i++) assert_true(x[i] == (float)(2 * (n + i)));
        got.ps = _mm512_mask_blend_ps((__mmask16)(1u << n), ones.ps, got.ps);
        for (int i = 0; i < 16; i++) assert_true(got.f32[i] == (i == n ? 0 : 1));
        got.si = _mm512_maskz_loadu_epi16((__mmask32)((1ull << 2 * n) - 1), x);
        assert_memory_equal(&got, x, (size_t)(4 * n));
        for (int i = 2 * n; i < 32; i++) assert_int_equal(got.u16[i], 0);
    }
    for (int n = 0; n <= 8; n++) {
        double *x = (double *)(void *)(p + page) - n;
        wide    got;
        for (int i = 0; i < n; i++) x[i] = n + i;
        got.pd = _mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), x);
        for (int i = 0; i < 8; i++) assert_true(got.f64[i] == (i < n ? n + i : 0));
        _mm512_mask_storeu_pd(x, (__mmask8)((1u << n) - 1), got.pd + got.pd);
        for (int i = 0; i < n; i++) assert_true(x[i] == 2 * (n + i));
    }
    munmap(p, 2 * page);
}

void gm_test_emulated_comparisons(void **state)
{
    (void)state;
    if (!can_run()) return;
    const wide a = {.f32 = {1, 2, NAN, 0, -0.0f, NAN, 3, -INFINITY}}, b = {.f32 = {2, 2, 1, NAN, 0, NAN, 1, 0}};
    assert_int_equal(_mm512_cmp_ps_mask(a.ps, b.ps, _CMP_LT_OQ), 1 | 1 << 7);
    assert_int_equal(_mm512_cmp_ps_mask(a.ps, b.ps, _CMP_LE_OQ), 0xff00 | 1 | 1 << 1 | 1 << 4 | 1 << 7);
    assert_int_equal(_mm512_movepi32_mask(a.si), 1 << 4 | 1 << 7);
    const wide low = {.ps = _mm512_min_ps(a.ps, b.ps)}, high = {.ps = _mm512_max_ps(b.ps, a.ps)};
    assert_true(low.f32[2] == 1 && isnan(low.f32[3]) && !signbit(low.f32[4])); /* the second where it is no number */
    assert_true(isnan(high.f32[2]) && high.f32[3] == 0 && signbit(high.f32[4]) && high.f32[6] == 3);
}
#else
#define SKIPPED(name)                                          \
    void gm_test_emulated_##name(void **state)                 \
    {                                                          \
        (void)state;                                           \
        print_message("skipped: no compiler for AVX2 here\n"); \
    }
SKIPPED(scale)
SKIPPED(bf16_rounding)
SKIPPED(bf16_products)
SKIPPED(bytes)
SKIPPED(permutations)
SKIPPED(masks)
SKIPPED(comparisons)
#endif
