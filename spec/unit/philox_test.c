/* philox_test.c - the generator against the vectors published with Random123 (kat_vectors,
 * philox4x32 of 10 and of 7 rounds), and what words mean against the distributions they should have. */
#include <stdlib.h>

#include "../../kernels/drop.h"
#include "unit.h"

#define DRAWS (1 << 20)

static void check_known(uint64_t key, uint64_t block, uint64_t step, const uint32_t want[4])
{
    gm_philox p = gm_philox_at(key, block, step);
    assert_memory_equal(p.v, want, sizeof p.v);
}

void gm_test_philox_known(void **state)
{
    (void)state;
    check_known(0, 0, 0, (uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    check_known(UINT64_MAX, UINT64_MAX, UINT64_MAX, (uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    check_known(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e,
                (uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

void gm_test_philox_words(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100; i++) assert_int_equal(gm_philox_word(5, i, 9), gm_philox_at(5, i / 4, 9).v[i % 4]);
    assert_int_not_equal(gm_stream_key(1, GM_PURPOSE_INIT, 7), gm_stream_key(1, GM_PURPOSE_DROPOUT, 7));
    assert_int_not_equal(gm_stream_key(1, GM_PURPOSE_INIT, 7), gm_stream_key(2, GM_PURPOSE_INIT, 7));
    assert_int_not_equal(gm_stream_key(1, GM_PURPOSE_INIT, 7), gm_stream_key(1, GM_PURPOSE_INIT, 8));
    /* FNV-1a of "a" and "foobar", from its authors' page. */
    assert_true(gm_hash_text(GM_HASH_START, "a") == 0xaf63dc4c8601ec8cu);
    assert_true(gm_hash_text(gm_hash_text(GM_HASH_START, "foo"), "bar") == 0x85944171f73967e8u);
}

static uint32_t word(uint64_t i) { return gm_philox_word(gm_stream_key(3, GM_PURPOSE_USER, 4), i, 2); }

/* Means of 2^20 draws stray by std / 1024; 5 of these are passed by chance once in two million. The draws
 * are fixed, so this fails always or never. */
static void check_moments(const double *x, double mean, double variance, double fourth)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < DRAWS; i++) {
        sum += x[i];
        squares += (x[i] - mean) * (x[i] - mean);
    }
    assert_true(fabs(sum / DRAWS - mean) < 5 * sqrt(variance / DRAWS));
    assert_true(fabs(squares / DRAWS - variance) < 5 * sqrt((fourth - variance * variance) / DRAWS));
}

void gm_test_uniform_moments(void **state)
{
    (void)state;
    double *x = malloc(DRAWS * sizeof *x);
    for (int i = 0; i < DRAWS; i++) {
        x[i] = gm_sample_uniform(-2, 4, word((uint64_t)i));
        assert_true(x[i] >= -2 && x[i] < 4);
    }
    check_moments(x, 1, 3, 16.2); /* width 6: variance 36 / 12, fourth moment 6^4 / 80 */
    assert_true(gm_sample_uniform(-2, 4, 0) == -2);
    assert_true(gm_uniform_of(UINT32_MAX) == 1 - 0x1p-24f);
    free(x);
}

void gm_test_normal_moments(void **state)
{
    (void)state;
    double *x = malloc(DRAWS * sizeof *x), within = 0, product = 0;
    for (int i = 0; i < DRAWS; i += 2) {
        gm_sample_normal(3, 2, word((uint64_t)i), word((uint64_t)i + 1), &x[i], &x[i + 1]);
        product += (x[i] - 3) * (x[i + 1] - 3) / 4;
    }
    check_moments(x, 3, 4, 48);
    for (int i = 0; i < DRAWS; i++) within += fabs(x[i] - 3) < 2;
    assert_true(fabs(within / DRAWS - erf(sqrt(0.5))) < 5 * sqrt(0.6827 * 0.3173 / DRAWS));
    assert_true(fabs(product / (DRAWS / 2)) < 5 / sqrt(DRAWS / 2)); /* the two of a pair are independent */
    double even, odd;
    gm_sample_normal(0, 1, 0, 0, &even, &odd); /* the largest radius: sqrt(48 ln 2) */
    assert_true(fabs(even - sqrt(48 * log(2))) < 1e-14 && odd == 0);
    gm_sample_normal(0, 1, UINT32_MAX, 0x40000000, &even, &odd); /* u1 = 1: radius 0 */
    assert_true(even == 0 && odd == 0);
    free(x);
}

#define TURN 6.28318530717958647692528676655900577L

/* The steps of a draw against libm in long double, over a part of the 2^24 words that differ. The logarithm is within
 * two units of the last place, sin and cos within two of the radius. */
void gm_test_normal_functions(void **state)
{
    (void)state;
    double even, odd, radius = sqrt(48 * log(2));
    for (uint32_t i = 0; i < 1 << 24; i += 61) {
        double      u = (double)(i + 1) * 0x1p-24, log_u = gm_sample_log(u);
        long double wanted = logl((long double)u), angle = TURN * (long double)i * 0x1p-24L;
        assert_true(fabsl((long double)log_u - wanted) <= 2 * 0x1p-52L * fabsl(wanted));
        gm_sample_normal(0, 1, 0, i << 8 | (i & 0xff), &even, &odd);
        assert_true(fabsl((long double)even - (long double)radius * cosl(angle)) <= 2 * 0x1p-50L);
        assert_true(fabsl((long double)odd - (long double)radius * sinl(angle)) <= 2 * 0x1p-50L);
    }
    assert_true(gm_sample_log(1) == 0);
}

/* The quantile undoes the distribution function, which comes from libm's erfc. An error of eps in p moves
 * z by eps p / density(z); z itself is rounded. */
void gm_test_normal_quantile(void **state)
{
    (void)state;
    for (double z = -37; z < 8; z += 0.00137) {
        double p = 0.5 * erfc(-z / sqrt(2)), density = exp(-z * z / 2) / sqrt(2 * acos(-1));
        double allowed = 4 * 0x1p-52 * (fabs(z) + p / density);
        assert_true(fabs(gm_normal_quantile(p) - z) <= allowed);
    }
    assert_true(gm_normal_quantile(0.5) == 0);
}

static void check_truncated(double mean, double std, double low, double high, double want_mean)
{
    gm_truncated t = gm_truncated_of(mean, std, low, high);
    double       sum = 0, squares = 0;
    for (int i = 0; i < DRAWS; i++) {
        double x = gm_sample_truncated(&t, word((uint64_t)i));
        assert_true(x >= low && x <= high);
        sum += x;
        squares += (x - want_mean) * (x - want_mean);
    }
    assert_true(fabs(sum / DRAWS - want_mean) < 5 * sqrt(squares) / DRAWS);
}

/* Means of truncated normals: mean + std (phi(a) - phi(b)) / (Phi(b) - Phi(a)). */
void gm_test_truncated_normal(void **state)
{
    (void)state;
    check_truncated(0, 0.02, -0.04, 0.04, 0);
    check_truncated(1, 2, 1, 1e9, 1 + 2 * sqrt(2 / acos(-1)));
    double phi_a = exp(-4.5) / sqrt(2 * acos(-1)), phi_b = exp(-12.5) / sqrt(2 * acos(-1));
    double mass = 0.5 * (erfc(3 / sqrt(2)) - erfc(5 / sqrt(2)));
    check_truncated(0, 1, 3, 5, (phi_a - phi_b) / mass);
    check_truncated(0, 1, -5, -3, -(phi_a - phi_b) / mass);
    gm_truncated t = gm_truncated_of(0, 1, 30, 31); /* far out in the upper tail digits remain */
    assert_true(gm_sample_truncated(&t, 0x80000000) > 30 && gm_sample_truncated(&t, 0x80000000) < 30.1);
}

void gm_test_event_threshold(void **state)
{
    (void)state;
    assert_int_equal(gm_event_threshold(0), 0);
    assert_int_equal(gm_event_threshold(0.5), 0x80000000u);
    assert_int_equal(gm_event_threshold(0.25), 0x40000000u);
    assert_int_equal(gm_event_threshold(1), UINT32_MAX);
    int dropped = 0;
    for (int i = 0; i < DRAWS; i++) dropped += word((uint64_t)i) < gm_event_threshold(0.1);
    assert_true(abs(dropped - DRAWS / 10) < 5 * sqrt(0.09 * DRAWS));
}

/* ---- dropout of attention's weights ---- */

static void check_block(uint64_t key, uint64_t block, uint64_t step, const uint32_t want[4])
{
    const gm_drop   d = gm_drop_of(key, 0.5);
    const gm_philox words = gm_drop_block(d.round_keys, block, step);
    assert_memory_equal(words.v, want, sizeof words.v);
    for (int i = 0; i < 8; i++) assert_int_equal(gm_drop_number(words, i), want[i / 2] >> (16 * (i % 2)) & 0xffff);
}

void gm_test_drop_block(void **state)
{
    (void)state;
    check_block(0, 0, 0, (uint32_t[]){0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48});
    check_block(UINT64_MAX, UINT64_MAX, UINT64_MAX, (uint32_t[]){0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662});
    check_block(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e,
                (uint32_t[]){0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a});
}

void gm_test_drop_threshold(void **state)
{
    (void)state;
    assert_int_equal(gm_drop_of(1, 0).threshold, 0);
    assert_int_equal(gm_drop_of(1, 0.5).threshold, 0x8000);
    assert_int_equal(gm_drop_of(1, 0.1).threshold, 6554);
    assert_int_equal(gm_drop_of(1, 0x1p-18).threshold, 0); /* nearer to 0 than to 2^-16 */
    assert_int_equal(gm_drop_of(1, 0x1p-17).threshold, 1);
    assert_int_equal(gm_drop_of(1, 1 - 0x1p-40).threshold, 65535); /* never all */
    assert_true(gm_drop_keep(0) == 1 && gm_drop_keep(0x8000) == 2 && gm_drop_keep(65535) == 65536);
    /* Means of what becomes of weights of 1, by the probability that is drawn: 2^20 draws stray by std / 1024. */
    for (double p = 0.1; p < 1; p += 0.4) {
        const gm_drop d = gm_drop_of(gm_stream_key(3, GM_PURPOSE_USER, 4), p);
        const double  keep = gm_drop_keep(d.threshold);
        double        sum = 0, pairs = 0;
        bool          before = false;
        for (int i = 0; i < DRAWS; i++) {
            bool kept = !gm_is_dropped(d.round_keys, d.threshold, (uint64_t)i, 2);
            sum += kept ? keep : 0;
            pairs += kept && before ? keep * keep : 0; /* neighbours are independent */
            before = kept;
        }
        assert_true(fabs(sum / DRAWS - 1) < 5 * sqrt((keep - 1) / DRAWS));
        assert_true(fabs(pairs / DRAWS - 1) < 5 * sqrt((keep * keep - 1) * 3 / DRAWS)); /* 3: pairs share a draw */
    }
}

/* Rows of 13 keys are rows of 16 indices; a part of the whole has the indices of the whole. */
void gm_test_weight_index(void **state)
{
    (void)state;
    const gm_box  whole = {0}, part = {4, {3, 4, 5, 13}, {1, 2, 3, 6}};
    const int64_t shape[4] = {3, 4, 5, 13}, own[4] = {2, 2, 2, 7};
    assert_int_equal(gm_weight_row(&whole, 13), 16);
    assert_int_equal(gm_weight_row(&part, 7), 16);
    assert_int_equal(gm_weight_row(&whole, 16), 16);
    assert_int_equal(gm_weight_index(&whole, shape, (int64_t[]){0, 0, 0, 12}), 12);
    assert_int_equal(gm_weight_index(&whole, shape, (int64_t[]){0, 0, 1, 0}), 16);
    assert_int_equal(gm_weight_index(&whole, shape, (int64_t[]){2, 3, 4, 12}), ((2 * 4 + 3) * 5 + 4) * 16 + 12);
    for (int64_t i = 0; i < 2 * 2 * 2 * 7; i++) {
        const int64_t at[4] = {i / 28, i / 14 % 2, i / 7 % 2, i % 7};
        const int64_t there[4] = {at[0] + 1, at[1] + 2, at[2] + 3, at[3] + 6};
        assert_int_equal(gm_weight_index(&part, own, at), gm_weight_index(&whole, shape, there));
    }
}
