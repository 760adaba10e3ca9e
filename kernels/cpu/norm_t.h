/* norm_t.h - rows of the norms for one element type (as.h), 16 bits included; see norm.c. */

/* out = x + residual */
static void M(add_row_to)(int64_t n, const E *x, const E *residual, E *out)
{
    for (int64_t i = 0; i < n; i += LANES) M(put)(out, i, n - i, M(at)(x, i, n - i) + M(at)(residual, i, n - i));
}

/* d and d^2 are added, d = v - first, in double. */
CPU_INLINE void M(add_moments)(const E *v, double first, vf64 *sum, vf64 *squares)
{
    vf64 d, e;
    M(load_wide)(v, &d, &e);
    d -= first;
    sum[0] += d;
    squares[0] += d * d;
    if (T_BITS == 64) return;
    e -= first;
    sum[1] += e;
    squares[1] += e * e;
}

/* The mean of n elements; returns the sum of squares around it. One pass: sums of d = v - v[0] lose nothing to a mean
 * far from 0, and v[0] itself is at most sqrt(n) standard deviations away, so at most n eps of double go. */
static double M(moments_row)(int64_t n, const E *v, double *mean)
{
    double  first = isfinite(M(get)(v)) ? (double)M(get)(v) : 0; /* an infinite mean is not NaN */
    vf64    sums[2] = {{0}, {0}}, squares[2] = {{0}, {0}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) M(add_moments)(v + i, first, sums, squares);
    double sum = sum_v_wide(sums[0] + sums[1]), square = sum_v_wide(squares[0] + squares[1]);
    for (; i < n; i++) {
        double d = (double)M(get)(v + i) - first;
        sum += d;
        square += d * d;
    }
    double rest = square - sum * (sum / (double)n);
    *mean = first + sum / (double)n;
    return rest < 0 ? 0 : rest;
}

/* m elements of p at i; `whole`: a vector of them, without a branch */
CPU_INLINE V M(some)(const E *p, int64_t i, int64_t m, bool whole)
{
    return whole ? M(load)(p + i) : M(load_n)(p + i, m);
}

/* The vector at i of (v - high) rstd - less, times w, plus b. All is read first: where a branch stands between a
 * product and a sum, compilers do not fuse them, and the ends of rows would get other bits than the rest. */
CPU_INLINE V M(scaled)(int64_t i, int64_t m, bool whole, const E *v, T high, T less, T rstd, const E *w, const E *b)
{
    V h = M(some)(v, i, m, whole), by = w ? M(some)(w, i, m, whole) : h, more = b ? M(some)(b, i, m, whole) : h;
    h = (h - high) * rstd - less;
    if (w) h = h * by;
    return b ? h + more : h;
}

/* y = value(i, m, whole), the vector at i of which m elements are wanted, past the caches if `past`. Loops over whole
 * vectors have no branch of their own, which would take half of their time. ahead: asks for what will be read soon. */
#undef NORM_ROW
#define NORM_ROW(value, ahead)                       \
    int64_t i = 0, head = M(first_step)(y, n, past); \
    if (head < LANES) {                              \
        M(store_n)(y, head, value(0, head, false));  \
        i = head;                                    \
    }                                                \
    for (; past && i + LANES <= n; i += LANES) {     \
        M(store_past)(y + i, value(i, LANES, true)); \
        ahead;                                       \
    }                                                \
    for (; i + LANES <= n; i += LANES) {             \
        M(store)(y + i, value(i, LANES, true));      \
        ahead;                                       \
    }                                                \
    if (i < n) M(store_n)(y + i, n - i, value(i, n - i, false))

/* y = (v - high - low) rstd w + b; next: a row that will be read soon */
CPU_INLINE void M(scale_shift)(int64_t n, const E *v, T high, T low, T rstd, const E *w, const E *b, E *y, bool past,
                               const E *next)
{
    const T less = low * rstd;
#define SCALED(i, m, whole) M(scaled)(i, m, whole, v, high, less, rstd, w, b)
    NORM_ROW(SCALED, __builtin_prefetch(next + i));
#undef SCALED
}

static void M(scale_shift_row)(int64_t n, const E *v, T high, T low, T rstd, const E *w, const E *b, E *y, bool past,
                               const E *next)
{
    if (w && b) M(scale_shift)(n, v, high, low, rstd, w, b, y, past, next);
    else if (w) M(scale_shift)(n, v, high, low, rstd, w, NULL, y, past, next);
    else if (b) M(scale_shift)(n, v, high, low, rstd, NULL, b, y, past, next);
    else M(scale_shift)(n, v, high, low, rstd, NULL, NULL, y, past, next);
}

/* The row that is normalised, x or x + residual. sum receives it where it is given, as it must be with a residual.
 * With `centred` *mean is its mean and *squares the sum of squares around it, else 0 and the sum of squares. */
CPU_INLINE const E *M(row_moments)(int64_t n, const E *x, const E *residual, E *sum, bool centred, double *mean,
                                   double *squares)
{
    if (residual) M(add_row_to)(n, x, residual, sum);
    else if (sum) memcpy(sum, x, (size_t)n * sizeof(E));
    if (residual) x = sum;
    *mean = 0;
    *squares = centred ? M(moments_row)(n, x, mean) : M(square_row)(n, x);
    return x;
}

CPU_INLINE E *M(row_or_none)(const cpu_rows *rows, int64_t r) { return rows->data ? cpu_row_at(rows, r) : NULL; }

static void M(norm_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const norm_job *j = context;
    int64_t         n = j->width;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        E       *y = cpu_row_at(&j->y, r), *sum = M(row_or_none)(&j->sum, r);
        double   mean, squares;
        const E *x = cpu_row_at(&j->x, r), *residual = M(row_or_none)(&j->residual, r);
        const E *v = M(row_moments)(n, x, residual, residual && !sum ? y : sum, !j->rms, &mean, &squares);
        T        high = (T)mean, low = (T)(mean - (double)high);
        double   rstd = 1 / sqrt(squares / (double)n + j->eps);
        const E *next = cpu_row_at(&j->x, r + 1 < end ? r + 1 : r);
        M(scale_shift_row)(n, v, high, low, (T)rstd, j->w, j->b, y, j->stream, next);
        if (!j->rms) *(T *)cpu_row_at(&j->mean, r) = high;
        *(T *)cpu_row_at(&j->rstd, r) = (T)rstd;
    }
    gm_stream_end();
}

/* The vector at i of rstd (h - mean(h) - hat mean(h hat)) + gsum, likewise. */
CPU_INLINE V M(input_gradient)(int64_t i, int64_t m, bool whole, const T *h, const E *x, T mean, T rstd, T mean_h,
                               T mean_hh, const E *gsum)
{
    V hat = M(some)(x, i, m, whole), d = whole ? F(load)(h + i) : F(load_n)(h + i, m);
    V more = gsum ? M(some)(gsum, i, m, whole) : d;
    hat = (hat - mean) * rstd;
    d = (d - mean_h - hat * mean_hh) * rstd;
    return gsum ? d + more : d;
}

CPU_INLINE void M(input_gradients)(int64_t n, const T *h, const E *x, T mean, T rstd, T mean_h, T mean_hh,
                                   const E *gsum, E *y, bool past, const E *next_g, const E *next_x)
{
#define GRADIENT(i, m, whole) M(input_gradient)(i, m, whole, h, x, mean, rstd, mean_h, mean_hh, gsum)
    NORM_ROW(GRADIENT, (__builtin_prefetch(next_g + i), __builtin_prefetch(next_x + i)));
#undef GRADIENT
}

/* dx = rstd (h - mean(h) - hat mean(h hat)) + gsum, past the caches if `past`; dx may be h, gsum NULL. next_g, next_x:
 * rows that will be read soon. */
CPU_INLINE void M(input_gradient_row)(int64_t n, const T *h, const E *x, T mean, T rstd, T mean_h, T mean_hh,
                                      const E *gsum, E *dx, bool past, const E *next_g, const E *next_x)
{
    if (gsum) M(input_gradients)(n, h, x, mean, rstd, mean_h, mean_hh, gsum, dx, past, next_g, next_x);
    else M(input_gradients)(n, h, x, mean, rstd, mean_h, mean_hh, NULL, dx, past, next_g, next_x);
}

/* The vector of h = g w at i, kept rounded: fused into a difference later it would not cancel. Missing lanes have
 * g = 0. */
CPU_INLINE void M(weigh)(int64_t i, int64_t m, const E *g, const E *x, const E *w, T mean, T rstd, T *kept, V *sum,
                         V *sum_hat)
{
    V gv = M(at)(g, i, m), hat = (M(at)(x, i, m) - mean) * rstd, h = w ? gv * M(at)(w, i, m) : gv;
    F(put)(kept, i, m, h);
    *sum += h;
    *sum_hat += h * hat;
}

/* The sums of h and of h hat over a row. Four vectors are added in T before they are added in double: one rounding more
 * than each product has anyway. */
CPU_INLINE void M(weigh_row)(int64_t n, const E *g, const E *x, const E *w, T mean, T rstd, T *kept, double *sum,
                             double *sum_hat)
{
    vf64    h0 = {0}, h1 = {0}, hh0 = {0}, hh1 = {0};
    int64_t i = 0;
    while (i < n) {
        V s = F(splat)(0), q = s;
        if (i + 4 * LANES <= n) {
#pragma GCC unroll 4
            for (int k = 0; k < 4; k++, i += LANES) M(weigh)(i, LANES, g, x, w, mean, rstd, kept, &s, &q);
        } else {
            M(weigh)(i, n - i, g, x, w, mean, rstd, kept, &s, &q);
            i += LANES;
        }
        F(add_wide)(&h0, &h1, s);
        F(add_wide)(&hh0, &hh1, q);
    }
    *sum = sum_v_wide(h0 + h1);
    *sum_hat = sum_v_wide(hh0 + hh1);
}

/* dx of rows [begin, end) */
static void M(norm_grad_inputs)(const norm_job *j, int64_t begin, int64_t end, int thread)
{
    const E *w = j->w;
    int64_t  n = j->width;
    T       *row = j->rows ? (T *)j->rows + thread * n : NULL;
    for (int64_t r = begin; r < end; r++) {
        int64_t  soon = r + 1 < j->x.rows ? r + 1 : r;
        const E *g = cpu_row_at(&j->g, r), *x = cpu_row_at(&j->x, r), *gsum = M(row_or_none)(&j->gsum, r);
        E       *dx = cpu_row_at(&j->dx, r);
        T       *h = row ? row : (T *)(void *)dx;
        T        mean = F(number_at)(&j->mean, r), rstd = F(number_at)(&j->rstd, r);
        double   sum, sum_hat;
        if (w) M(weigh_row)(n, g, x, w, mean, rstd, h, &sum, &sum_hat);
        else M(weigh_row)(n, g, x, NULL, mean, rstd, h, &sum, &sum_hat);
        T mean_h = j->rms ? 0 : (T)(sum / (double)n), mean_hh = (T)(sum_hat / (double)n);
        M(input_gradient_row)
        (n, h, x, mean, rstd, mean_h, mean_hh, gsum, dx, j->stream, cpu_row_at(&j->g, soon), cpu_row_at(&j->x, soon));
    }
}

typedef struct M(norm_rows) {
    const E *g[NORM_ROWS], *x[NORM_ROWS];
    T        mean[NORM_ROWS], rstd[NORM_ROWS];
} M(norm_rows);

/* The vector at i of dw += g hat and db += g over so many rows. */
CPU_INLINE void M(add_weights)(const M(norm_rows) * p, int rows, int64_t i, int64_t m, double *dw, double *db)
{
    V s = F(splat)(0), q = s;
#pragma GCC unroll 4
    for (int k = 0; k < rows; k++) {
        V g = M(at)(p->g[k], i, m);
        s += g;
        q += g * ((M(at)(p->x[k], i, m) - p->mean[k]) * p->rstd[k]);
    }
    F(add_to)(dw, i, m, q);
    F(add_to)(db, i, m, s);
}

/* dw += g hat, db += g over `rows` rows, at most NORM_ROWS of them, which are added in T first. */
static void M(norm_grad_weights)(const norm_job *j, int64_t begin, int rows, double *dw, double *db)
{
    M(norm_rows) p;
    int64_t n = j->width, i = 0;
    for (int k = 0; k < rows; k++) {
        p.g[k] = cpu_row_at(&j->g, begin + k);
        p.x[k] = cpu_row_at(&j->x, begin + k);
        p.mean[k] = F(number_at)(&j->mean, begin + k);
        p.rstd[k] = F(number_at)(&j->rstd, begin + k);
    }
    for (; rows == NORM_ROWS && i + LANES <= n; i += LANES) M(add_weights)(&p, NORM_ROWS, i, LANES, dw, db);
    for (; i < n; i += LANES) M(add_weights)(&p, rows, i, n - i, dw, db);
}

/* Groups of NORM_ROWS rows, so that which rows are added in T does not depend on threads. */
static void M(norm_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const norm_job *j = context;
    double         *dw = j->partial ? j->partial + 2 * thread * j->width : NULL;
    for (int64_t group = begin; group < end; group++) {
        int64_t first = group * NORM_ROWS, rows = j->x.rows - first < NORM_ROWS ? j->x.rows - first : NORM_ROWS;
        M(norm_grad_inputs)(j, first, first + rows, thread);
        if (dw) M(norm_grad_weights)(j, first, (int)rows, dw, dw + j->width);
    }
    gm_stream_end();
}
