/* batch_norm_t.h - steps of batch norm for one element type (as.h); see batch_norm.c. */

/* Images of a few elements, as those of (n, c) are, go without vectors. */
CPU_INLINE double F(short_sum)(int64_t n, const T *x)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i];
    return sum;
}

CPU_INLINE double F(short_squares)(int64_t n, const T *x, T high, T low)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)(x[i] - high - low);
        sum += d * d;
    }
    return sum;
}

static void F(channel_sums_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    int64_t            n = j->x.inner;
    (void)thread;
    for (int64_t c = begin; c < end; c++) {
        double sum = 0, m2 = 0;
        for (int64_t i = 0; i < j->x.n; i++) {
            const T *x = cpu_image_at(&j->x, i, c);
            sum += n < LANES ? F(short_sum)(n, x) : F(sum_row)(n, x);
        }
        double mean = j->x.n * n > 0 ? sum / (double)(j->x.n * n) : 0;
        T      high = (T)mean, low = (T)(mean - (double)high);
        for (int64_t i = 0; i < j->x.n; i++) {
            const T *x = cpu_image_at(&j->x, i, c);
            m2 += n < LANES ? F(short_squares)(n, x, high, low) : F(squares_row)(n, x, high, low);
        }
        ((T *)j->first)[c] = high;
        ((T *)j->second)[c] = (T)m2;
    }
}

/* y = (x - mean) rstd w + b */
static void F(channel_apply_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    int64_t            n = j->x.inner;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t  i = r / j->x.c, c = r % j->x.c;
        const T *x = cpu_image_at(&j->x, i, c);
        T       *y = cpu_image_at(&j->y, i, c), mean = ((const T *)j->mean)[c], by = ((const T *)j->rstd)[c];
        T        add = j->b ? ((const T *)j->b)[c] : 0;
        if (j->w) by *= ((const T *)j->w)[c];
        for (int64_t k = 0; k < n; k++) y[k] = (x[k] - mean) * by + add;
    }
}

static void F(grad_sums_row)(int64_t n, const T *g, const T *x, T mean, T rstd, double *h, double *hh)
{
    vf64    h0 = {0}, h1 = {0}, hh0 = {0}, hh1 = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        V gv = F(load)(g + i), hat = (F(load)(x + i) - mean) * rstd;
        F(add_wide)(&h0, &h1, gv);
        F(mul_wide)(&hh0, &hh1, gv, hat);
    }
    *h += sum_v_wide(h0 + h1);
    *hh += sum_v_wide(hh0 + hh1);
    for (; i < n; i++) {
        *h += (double)g[i];
        *hh += (double)g[i] * (double)((x[i] - mean) * rstd);
    }
}

static void F(channel_grad_sums_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    (void)thread;
    for (int64_t c = begin; c < end; c++) {
        double h = 0, hh = 0;
        T      mean = ((const T *)j->mean)[c], rstd = ((const T *)j->rstd)[c];
        for (int64_t i = 0; i < j->x.n; i++) {
            const T *g = cpu_image_at(&j->g, i, c), *x = cpu_image_at(&j->x, i, c);
            F(grad_sums_row)(j->x.inner, g, x, mean, rstd, &h, &hh);
        }
        ((T *)j->first)[c] = (T)h;
        ((T *)j->second)[c] = (T)hh;
    }
}

/* dx = (g - mean(h) - hat mean(h hat)) rstd w */
static void F(channel_grad_apply_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    int64_t            n = j->x.inner;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t  i = r / j->x.c, c = r % j->x.c;
        const T *x = cpu_image_at(&j->x, i, c), *g = cpu_image_at(&j->g, i, c);
        T       *dx = cpu_image_at(&j->y, i, c), mean = ((const T *)j->mean)[c], rstd = ((const T *)j->rstd)[c];
        T        by = j->w ? rstd * ((const T *)j->w)[c] : rstd, h = j->h ? ((const T *)j->h)[c] : 0;
        T        hh = j->hh ? ((const T *)j->hh)[c] * rstd : 0;
        if (j->hh)
            for (int64_t k = 0; k < n; k++) dx[k] = (g[k] - h - (x[k] - mean) * hh) * by;
        else
            for (int64_t k = 0; k < n; k++) dx[k] = g[k] * by;
    }
}
