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

static void M(channel_sums_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    int64_t            n = j->x.inner;
    (void)thread;
    for (int64_t c = begin; c < end; c++) {
        double sum = 0, m2 = 0;
        for (int64_t i = 0; i < j->x.n; i++) sum += M(sum_row)(n, cpu_image_at(&j->x, i, c));
        double mean = j->x.n * n > 0 ? sum / (double)(j->x.n * n) : 0;
        T      high = (T)mean, low = (T)(mean - (double)high);
        for (int64_t i = 0; i < j->x.n; i++) m2 += M(squares_row)(n, cpu_image_at(&j->x, i, c), high, low);
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

/* dx = (g w - mean_h - hat mean_h_hat) rstd */
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
        T        by = j->w ? rstd * M(number_of)(j->w, c, 1) : rstd, h = j->h ? ((const T *)j->h)[c] * rstd : 0;
        T        hh = j->hh ? ((const T *)j->hh)[c] * rstd * rstd : 0;
        if (j->hh)
            for (int64_t k = 0; k < n; k += LANES)
                M(put)(dx, k, n - k, M(at)(g, k, n - k) * by - h - (M(at)(x, k, n - k) - mean) * hh);
        else
            for (int64_t k = 0; k < n; k += LANES) M(put)(dx, k, n - k, M(at)(g, k, n - k) * by);
    }
}

/* ---- samples as rows of columns, which are whole vectors (batch_norm.c) ---- */

/* Numbers and sums of a block of columns; those behind the last are 0. */
typedef struct M(column_block) {
    int64_t first, channels, n; /* the channels, and their columns */
    T       mean[CHANNEL_ROOM], other[CHANNEL_ROOM];
    double  sum[CHANNEL_ROOM], more[CHANNEL_ROOM];
} M(column_block);

/* The block of at most CHANNEL_COLUMNS columns that begins with channel c; no channel from `end` on. */
CPU_INLINE void M(begin_columns)(const channel_job *j, int64_t c, int64_t end, M(column_block) * k)
{
    const int64_t most = CHANNEL_COLUMNS / j->x.inner;
    memset(k, 0, sizeof *k);
    k->first = c;
    k->channels = end - c < most ? end - c : most;
    k->n = k->channels * j->x.inner;
}

/* The sum of the columns of a channel of the block. */
CPU_INLINE double M(sum_columns)(const double *sum, int64_t inner, int64_t channel)
{
    double all = 0;
    for (int64_t i = 0; i < inner; i++) all += sum[channel * inner + i];
    return all;
}

CPU_INLINE void M(set_columns)(T *numbers, int64_t inner, int64_t channel, T number)
{
    for (int64_t i = 0; i < inner; i++) numbers[channel * inner + i] = number;
}

/* `more` += (x - mean - other)^2; missing lanes have x = mean = other = 0 */
static void M(square_columns)(const channel_job *j, M(column_block) * k)
{
    for (int64_t s = 0; s < j->x.n; s++) {
        const E *x = cpu_image_at(&j->x, s, k->first);
        for (int64_t i = 0; i < k->n; i += LANES) {
            V d = M(at)(x, i, k->n - i) - F(load)(k->mean + i) - F(load)(k->other + i);
            F(add_product_to)(k->more + i, d, d);
        }
    }
}

static void M(column_sums_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    const int64_t      inner = j->x.inner, count = j->x.n * inner;
    M(column_block) k;
    (void)thread;
    for (int64_t c = begin; c < end; c += k.channels) {
        M(begin_columns)(j, c, end, &k);
        for (int64_t s = 0; s < j->x.n; s++) M(add_columns)(k.n, cpu_image_at(&j->x, s, c), k.sum);
        for (int64_t i = 0; i < k.channels; i++) {
            double mean = count > 0 ? M(sum_columns)(k.sum, inner, i) / (double)count : 0;
            ((T *)j->first)[c + i] = (T)mean;
            M(set_columns)(k.mean, inner, i, (T)mean);
            M(set_columns)(k.other, inner, i, (T)(mean - (double)(T)mean));
        }
        M(square_columns)(j, &k);
        for (int64_t i = 0; i < k.channels; i++) ((T *)j->second)[c + i] = (T)M(sum_columns)(k.more, inner, i);
    }
}

static void M(column_grad_sums_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    const int64_t      inner = j->x.inner;
    M(column_block) k;
    (void)thread;
    for (int64_t c = begin; c < end; c += k.channels) {
        M(begin_columns)(j, c, end, &k);
        for (int64_t i = 0; i < k.channels; i++) {
            M(set_columns)(k.mean, inner, i, ((const T *)j->mean)[c + i]);
            M(set_columns)(k.other, inner, i, ((const T *)j->rstd)[c + i]);
        }
        for (int64_t s = 0; s < j->x.n; s++) {
            const E *g = cpu_image_at(&j->g, s, c), *x = cpu_image_at(&j->x, s, c);
            for (int64_t i = 0; i < k.n; i += LANES) {
                V gv = M(at)(g, i, k.n - i);
                F(add_to)(k.sum, i, LANES, gv);
                F(add_product_to)
                (k.more + i, gv, (M(at)(x, i, k.n - i) - F(load)(k.mean + i)) * F(load)(k.other + i));
            }
        }
        for (int64_t i = 0; i < k.channels; i++) {
            ((T *)j->first)[c + i] = (T)M(sum_columns)(k.sum, inner, i);
            ((T *)j->second)[c + i] = (T)M(sum_columns)(k.more, inner, i);
        }
    }
}

/* Mean, factor and what is added of each column, one array behind the other; see channel_apply_part. */
static void M(column_numbers)(const channel_job *j, void *room)
{
    T *mean = room, *by = mean + j->x.c * j->x.inner, *add = by + j->x.c * j->x.inner;
    for (int64_t c = 0; c < j->x.c; c++) {
        T factor = ((const T *)j->rstd)[c];
        if (j->w) factor *= M(number_of)(j->w, c, 1);
        M(set_columns)(mean, j->x.inner, c, ((const T *)j->mean)[c]);
        M(set_columns)(by, j->x.inner, c, factor);
        M(set_columns)(add, j->x.inner, c, M(number_of)(j->b, c, 0));
    }
}

/* Mean, factor, h and h hat of each column; see channel_grad_apply_part. */
static void M(column_grad_numbers)(const channel_job *j, void *room)
{
    const int64_t n = j->x.c * j->x.inner;
    T            *mean = room, *by = mean + n, *h = by + n, *hh = h + n;
    for (int64_t c = 0; c < j->x.c; c++) {
        T rstd = ((const T *)j->rstd)[c];
        M(set_columns)(mean, j->x.inner, c, ((const T *)j->mean)[c]);
        M(set_columns)(by, j->x.inner, c, j->w ? rstd * M(number_of)(j->w, c, 1) : rstd);
        M(set_columns)(h, j->x.inner, c, j->h ? ((const T *)j->h)[c] * rstd : 0);
        M(set_columns)(hh, j->x.inner, c, j->hh ? ((const T *)j->hh)[c] * rstd * rstd : 0);
    }
}

/* Some samples, with the numbers of column_numbers. */
static void M(column_apply_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    const int64_t      n = j->x.c * j->x.inner;
    const T           *mean = j->numbers, *by = mean + n, *add = by + n;
    (void)thread;
    for (int64_t s = begin; s < end; s++) {
        const E *x = cpu_image_at(&j->x, s, 0);
        E       *y = cpu_image_at(&j->y, s, 0);
        for (int64_t k = 0; k < n; k += LANES) {
            V v = M(at)(x, k, n - k) - F(at)(mean, k, n - k);
            M(put)(y, k, n - k, v * F(at)(by, k, n - k) + F(at)(add, k, n - k));
        }
    }
}

/* Some samples, with the numbers of column_grad_numbers. */
static void M(column_grad_apply_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const channel_job *j = context;
    const int64_t      n = j->x.c * j->x.inner;
    const T           *mean = j->numbers, *by = mean + n, *h = by + n, *hh = h + n;
    (void)thread;
    for (int64_t s = begin; s < end; s++) {
        const E *x = cpu_image_at(&j->x, s, 0), *g = cpu_image_at(&j->g, s, 0);
        E       *dx = cpu_image_at(&j->y, s, 0);
        for (int64_t k = 0; k < n; k += LANES) {
            V d = M(at)(g, k, n - k) * F(at)(by, k, n - k);
            if (j->hh) d = d - F(at)(h, k, n - k) - (M(at)(x, k, n - k) - F(at)(mean, k, n - k)) * F(at)(hh, k, n - k);
            M(put)(dx, k, n - k, d);
        }
    }
}
