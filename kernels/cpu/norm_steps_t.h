/* norm_steps_t.h - steps of the norms for one element type (as.h); see norm_steps.c. */

static void F(norm_sums_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const norm_step *j = context;
    int64_t          n = j->width;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        double mean, squares;
        F(row_moments)
        (n, cpu_row_at(&j->x, r), F(row_or_none)(&j->residual, r), F(row_or_none)(&j->sum, r), j->mean.data != NULL,
         &mean, &squares);
        if (j->mean.data) *(T *)cpu_row_at(&j->mean, r) = (T)mean;
        *(T *)cpu_row_at(&j->m2, r) = (T)squares;
    }
}

static void F(norm_apply_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const norm_step *j = context;
    int64_t          n = j->width;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const T *x = cpu_row_at(&j->x, r);
        T       *y = cpu_row_at(&j->y, r), mean = F(number_at)(&j->mean, r), rstd = F(number_at)(&j->rstd, r);
        F(scale_shift_row)(n, x, mean, 0, rstd, j->w, j->b, y, j->stream, x + n);
    }
    gm_stream_end();
}

/* dw += g hat, db += g; sums of h = g w and of h hat */
static void F(norm_grad_sums_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const norm_step *j = context;
    const T         *w = j->w;
    int64_t          n = j->width;
    double          *dw = j->partial + 2 * thread * n, *db = dw + n;
    for (int64_t r = begin; r < end; r++) {
        const T *g = cpu_row_at(&j->g, r), *x = cpu_row_at(&j->x, r);
        T        mean = F(number_at)(&j->mean, r), rstd = F(number_at)(&j->rstd, r);
        vf64     h0 = {0}, h1 = {0}, hh0 = {0}, hh1 = {0};
        for (int64_t i = 0; i < n; i += LANES) {
            V gv = F(at)(g, i, n - i), hat = (F(at)(x, i, n - i) - mean) * rstd, h = w ? gv * F(at)(w, i, n - i) : gv;
            F(add_wide)(&h0, &h1, h); /* missing lanes have g = 0 */
            F(mul_wide)(&hh0, &hh1, h, hat);
            F(add_to)(dw, i, n - i, gv * hat);
            F(add_to)(db, i, n - i, gv);
        }
        if (j->h.data) *(T *)cpu_row_at(&j->h, r) = (T)sum_v_wide(h0 + h1);
        if (j->h_hat.data) *(T *)cpu_row_at(&j->h_hat, r) = (T)sum_v_wide(hh0 + hh1);
    }
}

/* dx = rstd (h - mean(h) - hat mean(h hat)) + gsum, h = g w */
static void F(norm_grad_apply_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const norm_step *j = context;
    const T         *w = j->w;
    int64_t          n = j->width;
    T                row[CPU_ROW] __attribute__((aligned(64))); /* where dx goes past the caches */
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const T *g = cpu_row_at(&j->g, r), *x = cpu_row_at(&j->x, r);
        T       *dx = cpu_row_at(&j->y, r), *h = j->stream ? row : dx;
        T        mean = F(number_at)(&j->mean, r), rstd = F(number_at)(&j->rstd, r);
        T        mean_h = F(number_at)(&j->h, r), mean_hh = F(number_at)(&j->h_hat, r);
        for (int64_t i = 0; w && i < n; i += LANES) /* rounded: fused into the difference it would not cancel */
            F(put)(h, i, n - i, F(at)(g, i, n - i) * F(at)(w, i, n - i));
        const T *gsum = F(row_or_none)(&j->gsum, r);
        F(input_gradient_row)(n, w ? h : g, x, mean, rstd, mean_h, mean_hh, gsum, dx, j->stream, g + n, x + n);
    }
    gm_stream_end();
}
