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

static void F(norm_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const norm_job *j = context;
    int64_t         n = j->width;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const T *v = cpu_row_at(&j->x, r);
        T       *y = cpu_row_at(&j->y, r), *sum = j->has_sum ? cpu_row_at(&j->sum, r) : y;
        double   mean = 0;
        if (j->has_residual) {
            mean = F(add_sum_row)(n, v, cpu_row_at(&j->residual, r), sum) / (double)n;
            v = sum;
        } else {
            if (j->has_sum) memcpy(sum, v, (size_t)n * sizeof(T));
            if (!j->rms) mean = F(sum_row)(n, v) / (double)n;
        }
        if (j->rms) mean = 0;
        T      high = (T)mean, low = (T)(mean - (double)high);
        double rstd = 1 / sqrt(F(squares_row)(n, v, high, low) / (double)n + j->eps);
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

/* dx = rstd (h - mean(h) - hat mean(h hat)) + gsum, h = g w; dw += g hat, db += g */
static void F(norm_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const norm_job *j = context;
    const T        *w = j->w;
    int64_t         n = j->width;
    double         *dw = j->partial + 2 * thread * n, *db = dw + n;
    T               row[CPU_ROW] __attribute__((aligned(64))); /* where dx goes past the caches */
    for (int64_t r = begin; r < end; r++) {
        const T *g = cpu_row_at(&j->g, r), *x = cpu_row_at(&j->x, r);
        const T *gsum = j->gsum.data ? cpu_row_at(&j->gsum, r) : NULL;
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
        for (int64_t i = 0; i < n; i += LANES) {
            V hat = (F(at)(x, i, n - i) - mean) * rstd, d = (F(at)(dx, i, n - i) - mean_h - hat * mean_hh) * rstd;
            F(put)(dx, i, n - i, gsum ? d + F(at)(gsum, i, n - i) : d);
        }
        if (j->stream) stream_out(target, row, n * (int64_t)sizeof(T));
    }
    stream_end();
}
