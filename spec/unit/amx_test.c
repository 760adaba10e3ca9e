/* amx_test.c - the instructions of AMX in plain C against plain sums, and, where the processor has them, against the
 * instructions, bit for bit; what refuses the use of tiles. */
#include "unit.h"

#include <errno.h>

#include "../../kernels/cpu/amx.h"
#include "../../kernels/cpu/amx_tiles.h"
#include "amx_traps.h"

static void expect_refusal(bool exists, bool kept, int error, const char *words)
{
    char text[160];
    gm_amx_judge(exists, kept, error, text, sizeof text);
    if (words ? !strstr(text, words) : text[0]) fail_msg("'%s', not '%s'", text, words ? words : "");
}

void gm_test_amx_refusals(void **state)
{
    (void)state;
    expect_refusal(true, true, 0, NULL);
    expect_refusal(false, false, 0, "this CPU has no AMX");
    expect_refusal(true, false, 0, "XCR0");
    expect_refusal(true, true, ENOSPC, "signal stack");
    expect_refusal(true, true, EINVAL, "Invalid argument");
    expect_refusal(true, true, EOPNOTSUPP, "5.16");
    if (!gm_amx_exists()) assert_non_null(gm_amx_refusal());
    assert_ptr_equal(gm_amx_refusal(), gm_amx_refusal());
}

void gm_test_amx_configurations(void **state)
{
    (void)state;
    amx_config wrong = amx_whole;
    assert_int_equal(sizeof amx_whole, 64);
    assert_int_equal(offsetof(amx_config, row_bytes), 16);
    assert_int_equal(offsetof(amx_config, rows), 48);
    assert_int_equal((uintptr_t)&amx_whole % 64, 0);
    assert_null(amx_config_fault(&amx_whole));
#define FAULT(change)                              \
    do {                                           \
        wrong = amx_whole;                         \
        change;                                    \
        assert_non_null(amx_config_fault(&wrong)); \
    } while (0)
    FAULT(wrong.palette = 0);
    FAULT(wrong.palette = 2);
    FAULT(wrong.start_row = 1);
    FAULT(wrong.none[13] = 1);
    FAULT(wrong.no_bytes[0] = 1);
    FAULT(wrong.no_rows[7] = 1);
    FAULT(wrong.rows[3] = 17);
    FAULT(wrong.row_bytes[7] = 65);
    FAULT(wrong.rows[0] = 0);
    FAULT(wrong.row_bytes[0] = 0);
#undef FAULT
}

typedef struct matrices {
    uint16_t a[16][32], b[16][32]; /* b: row k holds pair k of each column */
    float    c[16][16];
} matrices;

static uint16_t bf16_of(double x)
{
    float    f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float of_bf16(uint16_t x) { return amx_number((uint32_t)x << 16); }

/* c += a b by plain C in tiles of `rows` rows, `columns` columns and `pairs` pairs. */
static void plain_product(matrices *m, int rows, int columns, int pairs)
{
    amx_config config = {.palette = 1};
    config.rows[0] = config.rows[1] = (uint8_t)rows;
    config.row_bytes[0] = config.row_bytes[2] = (uint16_t)(4 * columns);
    config.row_bytes[1] = (uint16_t)(4 * pairs);
    config.rows[2] = (uint8_t)pairs;
    amx_plain_configure(&config);
    amx_plain_load(0, m->c, sizeof m->c[0]);
    amx_plain_load(1, m->a, sizeof m->a[0]);
    amx_plain_load(2, m->b, sizeof m->b[0]);
    amx_plain_dot(0, 1, 2);
    amx_plain_store(0, m->c, sizeof m->c[0]);
    assert_null(amx_plain.fault);
    amx_plain_release();
}

/* What a processor would refuse is told, and makes NaN. */
void gm_test_amx_faults(void **state)
{
    (void)state;
    amx_config config = amx_whole;
    float      c[16][16] = {{0}};
    amx_plain_store(1, c, sizeof c[0]);
    assert_string_equal(amx_plain.fault, "tiles are used, and were not configured on this thread");
    assert_true(isnan(c[15][15]));
    config.rows[6] = 17;
    amx_plain_configure(&config);
    assert_string_equal(amx_plain.fault, "a tile has at most 16 rows of 64 bytes");
    amx_plain_configure(&amx_whole);
    assert_null(amx_plain.fault);
    amx_plain_dot(1, 2, 2);
    assert_string_equal(amx_plain.fault, "two operands of a product are the same tile");
    config = amx_whole;
    config.rows[3] = 15;
    amx_plain_configure(&config);
    amx_plain_dot(1, 3, 2);
    assert_string_equal(amx_plain.fault, "tiles of a product do not fit");
    config.rows[3] = 0;
    config.row_bytes[3] = 0;
    amx_plain_configure(&config);
    amx_plain_zero(3);
    assert_string_equal(amx_plain.fault, "a tile is used that the configuration does not have");
    amx_plain_release();
    assert_null(amx_plain.fault);
}

/* Whole numbers, whose sums are exact in any order; what lies beside a tile is not read, and stays. */
void gm_test_amx_shapes(void **state)
{
    (void)state;
    unit_random r = {7};
    for (int turn = 0; turn < 200; turn++) {
        const int rows = (int)unit_below(&r, 16) + 1, columns = (int)unit_below(&r, 16) + 1;
        const int pairs = turn % 5 ? (int)unit_below(&r, 16) + 1 : 16;
        matrices  m, before;
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 32; j++) {
                const bool inside_a = i < rows && j < 2 * pairs, inside_b = i < pairs && j < 2 * columns;
                m.a[i][j] = bf16_of(inside_a ? (double)unit_below(&r, 9) - 4 : NAN);
                m.b[i][j] = bf16_of(inside_b ? (double)unit_below(&r, 9) - 4 : NAN);
                if (j < 16) m.c[i][j] = (float)unit_below(&r, 99) - 49;
            }
        before = m;
        plain_product(&m, rows, columns, pairs);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++) {
                double sum = before.c[i][j];
                for (int k = 0; k < 2 * pairs && i < rows && j < columns; k++)
                    sum += (double)of_bf16(m.a[i][k]) * of_bf16(m.b[k / 2][2 * j + k % 2]);
                if (m.c[i][j] != sum) fail_msg("%d x %d x %d: %g, not %g", rows, columns, pairs, m.c[i][j], sum);
            }
    }
}

/* One sum: c, and so many pairs of numbers, each times 1. */
static float sum_of(float c, int pairs, const double (*numbers)[2])
{
    static matrices m;
    memset(&m, 0, sizeof m);
    m.c[0][0] = c;
    for (int k = 0; k < pairs; k++)
        for (int half = 0; half < 2; half++) {
            m.a[0][2 * k + half] = bf16_of(numbers[k][half]);
            m.b[k][half] = bf16_of(1);
        }
    plain_product(&m, 1, 1, pairs);
    return m.c[0][0];
}

/* Which sums are rounded, and how: 2^24 + 1 is between two numbers of f32. */
void gm_test_amx_steps(void **state)
{
    (void)state;
    const float large = 0x1p24f;
    assert_true(sum_of(0, 2, (const double[][2]){{large, 1}, {0, 1}}) == large + 2); /* second numbers apart */
    assert_true(sum_of(0, 2, (const double[][2]){{large, 0}, {1, 0}}) == large);     /* first ones one by one */
    assert_true(sum_of(0, 3, (const double[][2]){{large, 0}, {1, 0}, {1, 0}}) == large);
    assert_true(sum_of(1, 1, (const double[][2]){{large, 1}}) == large); /* c comes last */
    assert_true(sum_of(large, 1, (const double[][2]){{1, 1}}) == large + 2);
    assert_true(sum_of(0, 1, (const double[][2]){{large, 3}}) == large + 4); /* to the nearest even */
    assert_true(sum_of(0, 1, (const double[][2]){{large, 5}}) == large + 4);
    assert_true(isnan(sum_of(0, 1, (const double[][2]){{INFINITY, -INFINITY}})));
    assert_true(isinf(sum_of(1, 1, (const double[][2]){{INFINITY, 2}})));
    assert_true(isnan(sum_of(1, 1, (const double[][2]){{NAN, 2}})));
}

/* What is below 2^-126 is zero: factors, products, sums, and what is added to. */
void gm_test_amx_small(void **state)
{
    (void)state;
    static matrices m;
    assert_true(sum_of(0, 1, (const double[][2]){{0x1p-126, 0}}) == 0x1p-126f);
    assert_true(sum_of(0, 1, (const double[][2]){{0x1p-127, 0}}) == 0);
    assert_true(sum_of(0x1p-127f, 1, (const double[][2]){{0x1p-126, 0}}) == 0x1p-126f);
    assert_true(sum_of(0, 2, (const double[][2]){{1.5 * 0x1p-126, 0}, {-0x1p-126, 0}}) == 0);
    assert_true(sum_of(0, 1, (const double[][2]){{1.5 * 0x1p-126, -0x1p-126}}) == 0);
    assert_true(sum_of(-1.5f * 0x1p-126f, 1, (const double[][2]){{0x1p-126, 0}}) == 0);
    m.a[0][0] = m.b[0][0] = bf16_of(0x1p-64); /* 2^-128 */
    plain_product(&m, 1, 1, 1);
    assert_true(m.c[0][0] == 0);
    m.a[0][1] = bf16_of(0x1p-130), m.b[0][1] = bf16_of(INFINITY); /* 0 times infinity */
    plain_product(&m, 1, 1, 1);
    assert_true(isnan(m.c[0][0]));
}

#if defined(__x86_64__)
AMX_TARGET static void real_product(matrices *m)
{
    amx_real_configure(&amx_whole);
    amx_real_load(0, m->c, sizeof m->c[0]);
    amx_real_load(1, m->a, sizeof m->a[0]);
    amx_real_load(2, m->b, sizeof m->b[0]);
    amx_real_dot(0, 1, 2);
    amx_real_store(0, m->c, sizeof m->c[0]);
    amx_real_release();
}
#else
static void real_product(matrices *m) { (void)m; }
#endif

static double any_number(unit_random *r, int turn)
{
    const int    span = turn % 4 == 0 ? 130 : 20;
    const double size = ldexp(1 + unit_between(r, 0, 1), (int)unit_below(r, 2 * span) - span);
    return unit_below(r, 2) ? size : -size;
}

/* Numbers of all sizes, also subnormal and past the range: numbers, infinities and NaN are where plain C has them. */
void gm_test_amx_real(void **state)
{
    (void)state;
    if (gm_amx_refusal()) {
        print_message("skipped: %s\n", gm_amx_refusal());
        skip();
    }
    unit_random r = {11};
    for (int turn = 0; turn < 400; turn++) {
        matrices m, real;
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 32; j++) {
                m.a[i][j] = bf16_of(any_number(&r, turn));
                m.b[i][j] = bf16_of(any_number(&r, turn));
                if (j < 16) m.c[i][j] = (float)any_number(&r, turn);
            }
        real = m;
        plain_product(&m, 16, 16, 16);
        real_product(&real);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 16; j++) {
                const float x = real.c[i][j], y = m.c[i][j];
                if (x != y && !(isnan(x) && isnan(y)))
                    fail_msg("turn %d, row %d, column %d: the processor says %.9g, plain C %.9g", turn, i, j, x, y);
            }
    }
}

/* ---- the kernels: by the instructions, which a processor without them leaves to amx_traps.c, and by plain C ---- */

extern const gm_backend gm_cpu_amx __attribute__((weak)), gm_cpu_amx_emulated __attribute__((weak));

static gm_tensor *bf16_tensor(gm_device *dev, unit_random *r, int64_t rows, int64_t columns)
{
    gm_tensor *t;
    OK(gm_tensor_new(dev, GM_BF16, SHAPE(rows, columns), &t));
    uint16_t *data = gm_tensor_data(t);
    for (int64_t i = 0; i < rows * columns; i++) data[i] = bf16_of(unit_between(r, -1, 1));
    return t;
}

typedef struct shape {
    int64_t m, n, k;
    bool    turned;
} shape;

/* a b by both tables has the same bits; counts[what]: how often the blocks of tiles ask for each step. */
static void same_product(gm_device *dev, unit_random *r, const shape *s)
{
    gm_tensor *in[2] = {s->turned ? bf16_tensor(dev, r, s->k, s->m) : bf16_tensor(dev, r, s->m, s->k),
                        s->turned ? bf16_tensor(dev, r, s->n, s->k) : bf16_tensor(dev, r, s->k, s->n)};
    gm_tensor *out[2];
    gm_attrs   at = gm_attrs_default();
    at.transpose_a = at.transpose_b = s->turned;
    at.dtype = GM_F32;
    for (int i = 0; i < 2; i++) {
        OK(gm_tensor_new(dev, GM_F32, SHAPE(s->m, s->n), &out[i]));
        OK(gm_run_with(dev, i ? &gm_cpu_amx_emulated : &gm_cpu_amx, &(gm_call){GM_OP_matmul, 2, 1, in, &out[i], &at}));
    }
    assert_memory_equal(gm_tensor_data(out[0]), gm_tensor_data(out[1]), (size_t)(s->m * s->n) * sizeof(float));
    for (int i = 0; i < 2; i++) {
        gm_tensor_release(in[i]);
        gm_tensor_release(out[i]);
    }
}

static bool has_tables(void)
{
    if (&gm_cpu_amx && gm_backend_find("cpu-avx512bf16")) return true;
    print_message("skipped: no AVX512-BF16 here, or not in this build\n");
    return false;
}

void gm_test_amx_kernels(void **state)
{
    (void)state;
    static const shape shapes[] = {{1, 1, 1, false},    {16, 16, 32, true},  {17, 15, 33, false}, {33, 40, 70, true},
                                   {15, 17, 130, true}, {64, 64, 64, false}, {40, 33, 600, false}};
    unit_random        r = {3};
    if (!has_tables()) skip();
    for (int threads = 1; threads <= 3; threads += 2) {
        gm_device *dev;
        OK(gm_device_new("cpu", threads, &dev));
        if (gm_amx_refusal()) amx_traps_begin();
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) same_product(dev, &r, &shapes[i]);
        if (gm_amx_refusal()) amx_traps_end();
        gm_device_free(dev);
    }
}

/* What a block asks for: four loads and four products for 32 numbers along k, and tiles that are given back. */
void gm_test_amx_block(void **state)
{
    (void)state;
    const int64_t steps = 3;
    unit_random   r = {5};
    gm_device    *dev;
    if (!has_tables()) skip();
    if (!gm_amx_refusal()) skip(); /* nothing traps */
    OK(gm_device_new("cpu", 1, &dev));
    amx_traps_begin();
    same_product(dev, &r, &(shape){32, 32, 32 * steps, false});
    amx_traps_end();
    assert_int_equal(amx_traps_count(AMX_LOAD), 4 * steps);
    assert_int_equal(amx_traps_count(AMX_DOT), 4 * steps);
    assert_int_equal(amx_traps_count(AMX_ZERO), 4);
    assert_int_equal(amx_traps_count(AMX_STORE), 4);
    assert_true(amx_traps_count(AMX_CONFIGURE) > 0);
    assert_int_equal(amx_traps_count(AMX_CONFIGURE), amx_traps_count(AMX_RELEASE));
    gm_device_free(dev);
}

/* A batch of small products configures tiles once for each piece of the batch that a thread takes, not for each. */
void gm_test_amx_batch(void **state)
{
    (void)state;
    gm_device *dev;
    gm_tensor *in[2], *out;
    gm_attrs   at = gm_attrs_default();
    if (!has_tables()) skip();
    if (!gm_amx_refusal()) skip(); /* nothing traps */
    OK(gm_device_new("cpu", 1, &dev));
    OK(gm_tensor_new(dev, GM_BF16, SHAPE(40, 5, 6), &in[0]));
    OK(gm_tensor_new(dev, GM_BF16, SHAPE(40, 6, 7), &in[1]));
    OK(gm_tensor_new(dev, GM_BF16, SHAPE(40, 5, 7), &out));
    memset(gm_tensor_data(in[0]), 0, 2 * 40 * 30);
    memset(gm_tensor_data(in[1]), 0, 2 * 40 * 42);
    amx_traps_begin();
    OK(gm_run_with(dev, &gm_cpu_amx, &(gm_call){GM_OP_matmul, 2, 1, in, &out, &at}));
    amx_traps_end();
    assert_int_equal(amx_traps_count(AMX_DOT), 40);
    assert_in_range(amx_traps_count(AMX_CONFIGURE), 1, 8);
    assert_int_equal(amx_traps_count(AMX_CONFIGURE), amx_traps_count(AMX_RELEASE));
    for (int i = 0; i < 2; i++) gm_tensor_release(in[i]);
    gm_tensor_release(out);
    gm_device_free(dev);
}

/* Instructions as an assembler writes them. */
void gm_test_amx_encodings(void **state)
{
    (void)state;
    static const struct {
        uint8_t code[10];
        int     what, length, c, a, b, base, index;
        int64_t offset;
    } known[] = {
        {{0xc4, 0xe2, 0x78, 0x49, 0x05, 0x10, 0, 0, 0}, AMX_CONFIGURE, 9, 0, 0, 0, -1, -1, 16}, /* 16(%rip) */
        {{0xc4, 0xe2, 0x78, 0x49, 0x07}, AMX_CONFIGURE, 5, 0, 0, 0, 7, -1, 0},                  /* (%rdi) */
        {{0xc4, 0xe2, 0x78, 0x49, 0xc0}, AMX_RELEASE, 5, 0, 0, 0, 0, 0, 0},
        {{0xc4, 0xe2, 0x7b, 0x49, 0xd8}, AMX_ZERO, 5, 3, 0, 0, 0, 0, 0},              /* %tmm3 */
        {{0xc4, 0xe2, 0x7b, 0x4b, 0x34, 0x37}, AMX_LOAD, 6, 6, 0, 0, 7, 6, 0},        /* (%rdi,%rsi,1), %tmm6 */
        {{0xc4, 0xa2, 0x7b, 0x4b, 0x6c, 0x00, 0x40}, AMX_LOAD, 7, 5, 0, 0, 0, 8, 64}, /* 64(%rax,%r8,1), %tmm5 */
        {{0xc4, 0xc2, 0x7a, 0x4b, 0x14, 0x10}, AMX_STORE, 6, 2, 0, 0, 8, 2, 0},       /* %tmm2, (%r8,%rdx,1) */
        {{0xc4, 0xe2, 0x4a, 0x5c, 0xcc}, AMX_DOT, 5, 1, 4, 6, 0, 0, 0},               /* %tmm6, %tmm4, %tmm1 */
        {{0xc4, 0xe2, 0x7d, 0x49, 0xc0}, AMX_NONE, 5, 0, 0, 0, 0, 0, 0},
        {{0x0f, 0x0b}, AMX_NONE, 5, 0, 0, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const amx_step s = amx_read(known[i].code);
        assert_int_equal(s.what, known[i].what);
        if (s.what == AMX_NONE) continue;
        assert_int_equal(s.length, known[i].length);
        assert_int_equal(s.c, known[i].c);
        assert_int_equal(s.a, known[i].a);
        assert_int_equal(s.b, known[i].b);
        if (!s.memory) continue;
        assert_int_equal(s.base, known[i].base);
        assert_int_equal(s.index, known[i].index);
        assert_int_equal(s.offset, known[i].offset);
    }
}
