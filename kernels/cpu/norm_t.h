/* norm_t.h - rows of the norms for one element type (as.h); see norm.c. */

/* v = x + residual, kept in out; returns the row's sum. */
static double F(add_sum_row)(int64_t n, const T *x, const T *residual, T *out)
{
    vf64 a = {0}, b = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        V v = F(at)(x, i, n - i) + F(at)(residual, i, n - i);
        F(put)(out, i, n - i, v);
        F(add_wide)(&a, &b, v);
    }
    return sum_v_wide(a + b);
}

/* Sum of (v - high - low)^2; missing lanes count for nothing. */
static double F(squares_row)(int64_t n, const T *v, T high, T low)
{
    vf64    a = {0}, b = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        V d = F(load)(v + i) - high - low;
        F(mul_wide)(&a, &b, d, d);
    }
    double s = sum_v_wide(a + b);
    for (; i < n; i++) {
        double d = (double)(v[i] - high - low);
        s += d * d;
    }
    return s;
}

/* y = (v - high - low) rstd w + b */
static void F(scale_shift_row)(int64_t n, const T *v, T high, T low, T rstd, const T *w, const T *b, T *y)
{
    for (int64_t i = 0; i < n; i += LANES) {
        V h = (F(at)(v, i, n - i) - high - low) * rstd;
        if (w) h = h * F(at)(w, i, n - i);
        if (b) h = h + F(at)(b, i, n - i);
        F(put)(y, i, n - i, h);
    }
}

/* The same for a y past the caches, by way of a buffer. */
static void F(scale_shift_stream)(int64_t n, const T *v, T high, T low, T rstd, const T *w, const T *b, T *y)
{
    T room[CPU_CHUNK] __attribute__((aligned(64)));
    for (int64_t i = 0; i < n; i += CPU_CHUNK) {
        int64_t m = n - i < CPU_CHUNK ? n - i : CPU_CHUNK;
        F(scale_shift_row)(m, v + i, high, low, rstd, w ? w + i : NULL, b ? b + i : NULL, room);
        stream_out(y + i, room, m * (int64_t)sizeof(T));
    }
}

/* The row that is normalised, x or x + residual, and its mean (of layer norm; else 0); NULL where absent. sum receives
 * the row where it is given, as it must be with a residual. */
CPU_INLINE const T *F(row_and_mean)(int64_t n, const T *x, const T *residual, T *sum, bool wants_mean, double *mean)
{
    double total = 0;
    if (residual) {
        total = F(add_sum_row)(n, x, residual, sum);
        x = sum;
    } else {
        if (sum) memcpy(sum, x, (size_t)n * sizeof(T));
        if (wants_mean) total = F(sum_row)(n, x);
    }
    *mean = wants_mean ? total / (double)n : 0;
    return x;
}

/* Number r of a column that may be absent: 0 then. */
CPU_INLINE T F(number_at)(const cpu_rows *column, int64_t r) { return column->data ? *(T *)cpu_row_at(column, r) : 0; }

CPU_INLINE T *F(row_or_none)(const cpu_rows *rows, int64_t r) { return rows->data ? cpu_row_at(rows, r) : NULL; }

static void F(norm_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const norm_job *j = context;
    int64_t         n = j->width;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        T       *y = cpu_row_at(&j->y, r), *sum = F(row_or_none)(&j->sum, r);
        double   mean;
        const T *residual = F(row_or_none)(&j->residual, r);
        const T *v = F(row_and_mean)(n, cpu_row_at(&j->x, r), residual, residual && !sum ? y : sum, !j->rms, &mean);
        T        high = (T)mean, low = (T)(mean - (double)high);
        double   rstd = 1 / sqrt(F(squares_row)(n, v, high, low) / (double)n + j->eps);
        if (j->stream) F(scale_shift_stream)(n, v, high, low, (T)rstd, j->w, j->b, y);
        else F(scale_shift_row)(n, v, high, low, (T)rstd, j->w, j->b, y);
        if (!j->rms) *(T *)cpu_row_at(&j->mean, r) = high;
        *(T *)cpu_row_at(&j->rstd, r) = (T)rstd;
    }
    stream_end();
}

CPU_INLINE void F(add_to)(double *acc, int64_t i, int64_t m, V v)
{
#if T_BITS == 32
    if (m >= LANES) {
        *(any_f64 *)(acc + i) += widen(low_half(v));
        *(any_f64 *)(acc + i + LANES / 2) += widen(high_half(v));
        return;
    }
#else
    if (m >= LANES) {
        *(any_f64 *)(acc + i) += v;
        return;
    }
#endif
    for (int64_t k = 0; k < m; k++) acc[i + k] += v[k];
}

/* dx = rstd (h - mean(h) - hat mean(h hat)) + gsum; dx may be h, gsum NULL. */
CPU_INLINE void F(input_gradient_row)(int64_t n, const T *h, const T *x, T mean, T rstd, T mean_h, T mean_hh,
                                      const T *gsum, T *dx)
{
    for (int64_t i = 0; i < n; i += LANES) {
        V hat = (F(at)(x, i, n - i) - mean) * rstd, d = (F(at)(h, i, n - i) - mean_h - hat * mean_hh) * rstd;
        F(put)(dx, i, n - i, gsum ? d + F(at)(gsum, i, n - i) : d);
    }
}

/* dx of that with h = g w; dw += g hat, db += g */
static void F(norm_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const norm_job *j = context;
    const T        *w = j->w;
    int64_t         n = j->width;
    double         *dw = j->partial + 2 * thread * n, *db = dw + n;
    T               row[CPU_ROW] __attribute__((aligned(64))); /* where dx goes past the caches */
    for (int64_t r = begin; r < end; r++) {
        const T *g = cpu_row_at(&j->g, r), *x = cpu_row_at(&j->x, r);
        const T *gsum = F(row_or_none)(&j->gsum, r);
        T       *target = cpu_row_at(&j->dx, r), *dx = j->stream ? row : target;
        T        mean = j->rms ? 0 : *(T *)cpu_row_at(&j->mean, r), rstd = *(T *)cpu_row_at(&j->rstd, r);
        vf64     h0 = {0}, h1 = {0}, hh0 = {0}, hh1 = {0};
        for (int64_t i = 0; i < n; i += LANES) {
            V gv = F(at)(g, i, n - i), hat = (F(at)(x, i, n - i) - mean) * rstd, h = w ? gv * F(at)(w, i, n - i) : gv;
            F(add_wide)(&h0, &h1, h); /* missing lanes have g = 0 */
            F(mul_wide)(&hh0, &hh1, h, hat);
            F(add_to)(dw, i, n - i, gv * hat);
            F(add_to)(db, i, n - i, gv);
            F(put)(dx, i, n - i, h); /* rounded: fused into the difference below it would not cancel */
        }
        T mean_h = j->rms ? 0 : (T)(sum_v_wide(h0 + h1) / (double)n), mean_hh = (T)(sum_v_wide(hh0 + hh1) / (double)n);
        F(input_gradient_row)(n, dx, x, mean, rstd, mean_h, mean_hh, gsum, dx);
        if (j->stream) stream_out(target, row, n * (int64_t)sizeof(T));
    }
    stream_end();
}
