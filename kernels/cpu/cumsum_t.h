/* cumsum_t.h - sums along a dimension for one element type (as.h); see cumsum.c. */

static void F(cumsum_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const cumsum_job *j = context;
    (void)thread;
    for (int64_t item = begin; item < end; item++) {
        int64_t outer = item / j->panels, first = item % j->panels * CUMSUM_LINES;
        int64_t lines = j->inner - first < CUMSUM_LINES ? j->inner - first : CUMSUM_LINES;
        double  sum[CUMSUM_LINES] = {0};
        for (int64_t i = 0; i < j->n; i++) {
            int64_t  at = (outer * j->n + (j->inverse ? j->n - 1 - i : i)) * j->inner + first;
            const T *x = (const T *)j->x + at;
            T       *y = (T *)j->y + at;
            for (int64_t k = 0; k < lines; k++) y[k] = (T)(sum[k] += (double)x[k]);
        }
    }
}
