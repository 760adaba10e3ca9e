/* cumsum_t.h - sums along a dimension for one element type (as.h); see cumsum.c. */

/* `rows` lines of n neighbours that follow each other, each summed in a register of its own: their additions overlap,
 * where those of one line wait for each other. */
CPU_INLINE void F(cumsum_rows)(int rows, int64_t n, bool inverse, const T *x, T *y)
{
    double        sum[CUMSUM_ROWS] = {0};
    const int64_t step = inverse ? -1 : 1;
    int64_t       at = inverse ? n - 1 : 0;
    for (int64_t i = 0; i < n; i++, at += step) {
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) y[r * n + at] = (T)(sum[r] += (double)x[r * n + at]);
    }
}

/* `lines` lines that are neighbours, elements of a line `inner` apart. */
static void F(cumsum_lines)(const cumsum_job *j, int64_t lines, const T *x, T *y)
{
    double sum[CUMSUM_LINES] = {0};
    for (int64_t i = 0; i < j->n; i++) {
        const int64_t at = (j->inverse ? j->n - 1 - i : i) * j->inner;
        for (int64_t k = 0; k < lines; k++) y[at + k] = (T)(sum[k] += (double)x[at + k]);
    }
}

static void F(cumsum_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const cumsum_job *j = context;
    const T          *x = (const T *)j->x;
    T                *y = (T *)j->y;
    (void)thread;
    if (j->inner == 1) {
        int64_t row = begin, n = j->n;
        for (; row + CUMSUM_ROWS <= end; row += CUMSUM_ROWS)
            F(cumsum_rows)(CUMSUM_ROWS, n, j->inverse, x + row * n, y + row * n);
        for (; row < end; row++) F(cumsum_rows)(1, n, j->inverse, x + row * n, y + row * n);
        return;
    }
    for (int64_t item = begin; item < end; item++) {
        int64_t outer = item / j->panels, first = item % j->panels * CUMSUM_LINES;
        int64_t at = outer * j->n * j->inner + first, lines = j->inner - first;
        F(cumsum_lines)(j, lines < CUMSUM_LINES ? lines : CUMSUM_LINES, x + at, y + at);
    }
}
