/* experts_t.h - moves rows to experts and back, for one element type (as.h). */

static inline T F(weight_of)(const travel_job *j, int64_t c)
{
    return j->weight ? *(const T *)(const void *)(j->weight + c / j->k * j->line + c % j->k * j->step) : 1;
}

static void F(gather_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const travel_job *j = context;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t c = *number_at(&j->way, r), n = j->to.width;
        T      *y = cpu_row_at(&j->to, r);
        if (c < 0) {
            memset(y, 0, (size_t)(n * j->to.size));
            continue;
        }
        const T *x = cpu_row_at(&j->from, c / j->k), w = F(weight_of)(j, c);
        if (!j->weight) memcpy(y, x, (size_t)(n * j->to.size));
        else
            for (int64_t i = 0; i < n; i++) y[i] = w * x[i];
    }
}

static void F(combine_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const travel_job *j = context;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        T      *x = cpu_row_at(&j->to, t);
        int64_t n = j->to.width;
        if (!j->accumulate) memset(x, 0, (size_t)(n * j->to.size));
        for (int64_t c = t * j->k; c < (t + 1) * j->k; c++) {
            int64_t at = *number_at(&j->way, c);
            if (at < 0) continue;
            const T *y = cpu_row_at(&j->from, at), w = F(weight_of)(j, c);
            for (int64_t i = 0; i < n; i++) x[i] += w * y[i];
        }
    }
}

static void F(combine_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const travel_job *j = context;
    (void)thread;
    for (int64_t c = begin; c < end; c++) {
        int64_t at = *number_at(&j->way, c), n = j->from.width, i = 0;
        double  sum = 0;
        if (at >= 0) {
            const T *y = cpu_row_at(&j->from, at), *g = cpu_row_at(&j->g, c / j->k);
            V        part = F(splat)(0);
            for (; i + LANES <= n; i += LANES) part += F(load)(y + i) * F(load)(g + i);
            for (int lane = 0; lane < LANES; lane++) sum += (double)part[lane];
            for (; i < n; i++) sum += (double)y[i] * (double)g[i];
        }
        *(T *)cpu_row_at(&j->to, c) = (T)sum;
    }
}
