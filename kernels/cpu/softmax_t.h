/* softmax_t.h - rows of softmax for one element type (as.h). */

static void F(softmax_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const softmax_job *j = context;
    int64_t            n = j->width;
    T                  row[CPU_ROW] __attribute__((aligned(64))); /* where results go past the caches */
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const T *x = cpu_row_at(&j->x, r), *next = cpu_row_at(&j->x, r + 1 < end ? r + 1 : r);
        T       *target = cpu_row_at(&j->y, r), *y = j->stream ? row : target;
        T        sum = F(exp_row)(n, x, 1, F(max_row)(n, x), y, next);
        if (j->stream) F(scale_past)(n, 1 / sum, row, target);
        else F(scale_row)(n, 1 / sum, y, y);
    }
    gm_stream_end();
}

/* The sum of exp(x - shift), in double over vector sums of 4 LANES elements. */
static double F(exp_sum_row)(int64_t n, const T *x, T shift)
{
    vf64    a = {0}, b = {0};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        V s = F(exp_down_v)(F(load)(x + i) - shift), t = F(exp_down_v)(F(load)(x + i + LANES) - shift);
        s += F(exp_down_v)(F(load)(x + i + 2 * LANES) - shift);
        t += F(exp_down_v)(F(load)(x + i + 3 * LANES) - shift);
        F(add_wide)(&a, &b, s + t);
    }
    for (; i + LANES <= n; i += LANES) F(add_wide)(&a, &b, F(exp_down_v)(F(load)(x + i) - shift));
    double sum = sum_v_wide(a + b);
    if (i < n) {
        V last = F(exp_down_v)(F(load_n)(x + i, n - i) - shift);
        for (int64_t k = 0; k < n - i; k++) sum += last[k];
    }
    return sum;
}

static void F(log_softmax_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const softmax_job *j = context;
    int64_t            n = j->width;
    T                  row[CPU_ROW] __attribute__((aligned(64))); /* where results go past the caches */
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const T *x = cpu_row_at(&j->x, r);
        T       *target = cpu_row_at(&j->y, r), *y = j->stream ? row : target;
        T        m = F(max_row)(n, x), log_sum = (T)log(F(exp_sum_row)(n, x, m));
        for (int64_t i = 0; i < n; i += LANES) F(put)(y, i, n - i, F(at)(x, i, n - i) - m - log_sum);
        if (j->stream) gm_stream_out(target, row, n * (int64_t)sizeof(T));
    }
    gm_stream_end();
}

/* dx = y (g - sum(g y)) */
static void F(softmax_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const softmax_job *j = context;
    int64_t            n = j->width;
    T                  row[CPU_ROW] __attribute__((aligned(64))); /* where results go past the caches */
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const T *y = cpu_row_at(&j->x, r), *g = cpu_row_at(&j->g, r);
        T       *target = cpu_row_at(&j->y, r), *dx = j->stream ? row : target, sum = (T)F(dot_row)(n, y, g);
        for (int64_t i = 0; i < n; i += LANES) F(put)(dx, i, n - i, F(at)(y, i, n - i) * (F(at)(g, i, n - i) - sum));
        if (j->stream) gm_stream_out(target, row, n * (int64_t)sizeof(T));
    }
    gm_stream_end();
}

/* y = log p: dx = g - p sum(g) */
static void F(log_softmax_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const softmax_job *j = context;
    int64_t            n = j->width;
    T                  row[CPU_ROW] __attribute__((aligned(64))); /* where results go past the caches */
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const T *y = cpu_row_at(&j->x, r), *g = cpu_row_at(&j->g, r);
        T       *target = cpu_row_at(&j->y, r), *dx = j->stream ? row : target, sum = (T)F(sum_row)(n, g);
        for (int64_t i = 0; i < n; i += LANES)
            F(put)(dx, i, n - i, F(at)(g, i, n - i) - F(exp_v)(F(at)(y, i, n - i)) * sum);
        if (j->stream) gm_stream_out(target, row, n * (int64_t)sizeof(T));
    }
    gm_stream_end();
}
