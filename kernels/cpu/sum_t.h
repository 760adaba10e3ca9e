/* sum_t.h - rows of sums for one element type (as.h), bf16 included; see reduce.c. */

/* The sum of a row. Of bf16 two elements are added in f32 before they are added in double, which halves the dearest
 * part, the widening to double. Where their exponents differ by more than 15, this costs 2^-24 of the larger one. The
 * result is rounded to 8 bits. */
static inline double M(sum_terms)(int64_t n, const E *x)
{
#if E_BITS == 16
    vf64    a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        if (CPU_DIRECT) __builtin_prefetch((const char *)(x + i) + 1024);
        F(add_wide)(&a, &b, half_sums_bf16(x + i));
        F(add_wide)(&c, &d, half_sums_bf16(x + i + 2 * LANES));
    }
    return 2 * sum_v_wide((a + b) + (c + d)) + M(sum_row)(n - i, x + i);
#else
    return M(sum_row)(n, x);
#endif
}

/* *sum += the sum of a row at any stride */
static void M(reduce_row)(const sum_job *j, int64_t n, const char *from, double *sum)
{
    const E *x = (const E *)from;
    int64_t  step = j->x_stride[j->ndim - 1];
    double   s = 0;
    if (step == 1) s = M(sum_terms)(n, x);
    else
        for (int64_t i = 0; i < n; i++) s += (double)M(get)(x + i * step);
    *sum += s;
}

/* sum[i] += x[i] */
static void M(add_rows)(const sum_job *j, int64_t n, const char *from, double *sum)
{
    const E *x = (const E *)from;
    int64_t  step = j->x_stride[j->ndim - 1];
    if (step == 1) M(add_columns)(n, x, sum);
    else
        for (int64_t i = 0; i < n; i++) sum[i] += (double)M(get)(x + i * step);
}

/* The same of SUM_ROWS rows, in their order, step elements apart; as many more are asked for. */
static void M(add_many)(int64_t n, const void *from, int64_t step, double *sum)
{
    const E *x = from;
    int64_t  i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf64 a = *(any_f64 *)(sum + i), b = *(any_f64 *)(sum + i + LANES - CPU_VECTOR / 8); /* b of f64: unused */
#pragma GCC unroll 8
        for (int k = 0; k < SUM_ROWS; k++) {
            __builtin_prefetch(x + i + (k + SUM_ROWS) * step);
            M(add_wide_at)(&a, &b, x + i + k * step);
        }
        if (T_BITS == 32) *(any_f64 *)(sum + i + LANES - CPU_VECTOR / 8) = b;
        *(any_f64 *)(sum + i) = a;
    }
    for (; i < n; i++)
        for (int k = 0; k < SUM_ROWS; k++) sum[i] += (double)M(get)(x + i + k * step);
}

/* sum[i % n] += x[i], of `rows` rows of n elements that follow each other: as columns of longer rows. n <= SUM_FLAT */
static void M(add_flat)(int64_t n, int64_t rows, const void *from, double *sum)
{
    double        room[SUM_FLAT] = {0};
    const E      *x = from;
    const int64_t period = SUM_FLAT / n * n;
    int64_t       left = n * rows;
    for (; left >= period; left -= period, x += period) M(add_columns)(period, x, room);
    M(add_columns)(left, x, room);
    for (int64_t i = 0; i < period; i++) sum[i % n] += room[i];
}

/* sums[r] = the sum of row r: n neighbours, `step` elements behind those of the row before. */
static void M(sum_across)(int64_t n, int64_t rows, const char *from, int64_t step, double *sums)
{
    const E *x = (const E *)from;
    for (int64_t r = 0; r < rows; r++, x += step) sums[r] = M(sum_terms)(n, x);
}
