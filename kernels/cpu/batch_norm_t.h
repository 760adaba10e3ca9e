/* batch_norm_t.h - steps of batch norm for one element type (as.h), bf16 included; see batch_norm.c. */

/* Sum of (v - high - low)^2; missing lanes count for nothing. */
static double M(squares_row)(int64_t n, const E *v, T high, T low)
{
    vf64    a = {0}, b = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        V d = M(load)(v + i) - high - low;
        F(mul_wide)(&a, &b, d, d);
    }
    double s = sum_v_wide(a + b);
    for (; i < n; i++) {
        double d = (double)(M(get)(v + i) - high - low);
        s += d * d;
    }
    return s;
}

/* Images of a few elements, as those of (n, c) are, go without vectors. */
CPU_INLINE double M(short_sum)(int64_t n, const E *x)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)M(get)(x + i);
    return sum;
}

CPU_INLINE double M(short_squares)(int64_t n, const E *x, T high, T low)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)(M(get)(x + i) - high - low);
        sum += d * d;
    }
    return sum;
}

static void M(channel_sums_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    int64_t            n = j->x.inner;
    (void)thread;
    for (int64_t c = begin; c < end; c++) {
        double sum = 0, m2 = 0;
        for (int64_t i = 0; i < j->x.n; i++) {
            const E *x = cpu_image_at(&j->x, i, c);
            sum += n < LANES ? M(short_sum)(n, x) : M(sum_row)(n, x);
        }
        double mean = j->x.n * n > 0 ? sum / (double)(j->x.n * n) : 0;
        T      high = (T)mean, low = (T)(mean - (double)high);
        for (int64_t i = 0; i < j->x.n; i++) {
            const E *x = cpu_image_at(&j->x, i, c);
            m2 += n < LANES ? M(short_squares)(n, x, high, low) : M(squares_row)(n, x, high, low);
        }
        ((T *)j->first)[c] = high;
        ((T *)j->second)[c] = (T)m2;
    }
}

/* Number c of an array that may be absent. */
CPU_INLINE T M(number_of)(const void *array, int64_t c, T without)
{
    return array ? M(get)((const E *)array + c) : without;
}

/* y = (x - mean) rstd w + b */
static void M(channel_apply_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    int64_t            n = j->x.inner;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t  i = r / j->x.c, c = r % j->x.c;
        const E *x = cpu_image_at(&j->x, i, c);
        E       *y = cpu_image_at(&j->y, i, c);
        T        mean = ((const T *)j->mean)[c], by = ((const T *)j->rstd)[c], add = M(number_of)(j->b, c, 0);
        if (j->w) by *= M(number_of)(j->w, c, 1);
        for (int64_t k = 0; k < n; k += LANES) M(put)(y, k, n - k, (M(at)(x, k, n - k) - mean) * by + add);
    }
}

static void M(grad_sums_row)(int64_t n, const E *g, const E *x, T mean, T rstd, double *h, double *hh)
{
    vf64    h0 = {0}, h1 = {0}, hh0 = {0}, hh1 = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        V gv = M(load)(g + i), hat = (M(load)(x + i) - mean) * rstd;
        F(add_wide)(&h0, &h1, gv);
        F(mul_wide)(&hh0, &hh1, gv, hat);
    }
    *h += sum_v_wide(h0 + h1);
    *hh += sum_v_wide(hh0 + hh1);
    for (; i < n; i++) {
        T gv = M(get)(g + i);
        *h += (double)gv;
        *hh += (double)gv * (double)((M(get)(x + i) - mean) * rstd);
    }
}

static void M(channel_grad_sums_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    (void)thread;
    for (int64_t c = begin; c < end; c++) {
        double h = 0, hh = 0;
        T      mean = ((const T *)j->mean)[c], rstd = ((const T *)j->rstd)[c];
        for (int64_t i = 0; i < j->x.n; i++) {
            const E *g = cpu_image_at(&j->g, i, c), *x = cpu_image_at(&j->x, i, c);
            M(grad_sums_row)(j->x.inner, g, x, mean, rstd, &h, &hh);
        }
        ((T *)j->first)[c] = (T)h;
        ((T *)j->second)[c] = (T)hh;
    }
}

/* dx = (g - mean(h) - hat mean(h hat)) rstd w */
static void M(channel_grad_apply_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    int64_t            n = j->x.inner;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t  i = r / j->x.c, c = r % j->x.c;
        const E *x = cpu_image_at(&j->x, i, c), *g = cpu_image_at(&j->g, i, c);
        E       *dx = cpu_image_at(&j->y, i, c);
        T        mean = ((const T *)j->mean)[c], rstd = ((const T *)j->rstd)[c];
        T        by = j->w ? rstd * M(number_of)(j->w, c, 1) : rstd, h = j->h ? ((const T *)j->h)[c] : 0;
        T        hh = j->hh ? ((const T *)j->hh)[c] * rstd : 0;
        if (j->hh)
            for (int64_t k = 0; k < n; k += LANES)
                M(put)(dx, k, n - k, (M(at)(g, k, n - k) - h - (M(at)(x, k, n - k) - mean) * hh) * by);
        else
            for (int64_t k = 0; k < n; k += LANES) M(put)(dx, k, n - k, M(at)(g, k, n - k) * by);
    }
}
