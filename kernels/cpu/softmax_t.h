/* softmax_t.h - rows of softmax for one element type (as.h). MAP1 and MAP2: elementwise_t.h. */

/* What softmax does with three rows at once. */
typedef struct F(three_rows) {
    const T *x, *after, *before; /* before: exp of the row before, which times `by` goes to `to` */
    T       *row, *to, shift, by;
} F(three_rows);

/* A vector of them at i: adds to *sum, and *m becomes the larger ones. */
CPU_INLINE void F(softmax_vector)(const F(three_rows) * s, int64_t i, V *sum, V *m)
{
    V e = F(exp_down_v)(F(load)(s->x + i) - s->shift);
    F(store)(s->row + i, e);
    *sum += e;
    *m = F(max_v)(F(load)(s->after + i), *m);
    F(store_past)(s->to + i, F(load)(s->before + i) * s->by);
}

/* row = exp(x - shift), to = before by, past the caches; returns the sum of row, added as in exp_row. *largest: of the
 * row after. n: whole vectors; to: at an address that vectors divide. */
static T F(softmax_step)(int64_t n, const F(three_rows) * rows, T *largest)
{
    const F(three_rows) s = *rows; /* what is stored cannot change it */
    V       m = F(splat)((T)-INFINITY), s0 = F(splat)(0), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        __builtin_prefetch((const char *)(s.after + i) + CPU_AHEAD);
        __builtin_prefetch((const char *)(s.after + i + 2 * LANES) + CPU_AHEAD);
        F(softmax_vector)(&s, i, &s0, &m);
        F(softmax_vector)(&s, i + LANES, &s1, &m);
        F(softmax_vector)(&s, i + 2 * LANES, &s2, &m);
        F(softmax_vector)(&s, i + 3 * LANES, &s3, &m);
    }
    for (; i < n; i += LANES) F(softmax_vector)(&s, i, &s0, &m);
    *largest = F(max_of)(m);
    return F(sum_v)((s0 + s1) + (s2 + s3));
}

/* Rows [begin, end) of which each waits for the next: reading, exp and writing overlap. On a Zen 3 a row alone computes
 * while memory rests, and then waits for it. */
static __attribute__((noinline)) void F(softmax_stream)(const softmax_job *j, int64_t begin, int64_t end)
{
    T       rows[2][CPU_ROW] __attribute__((aligned(64)));
    int64_t n = j->width;
    T       largest = F(max_row)(n, cpu_row_at(&j->x, begin)), by = 0;
    for (int64_t r = begin; r < end; r++) {
        F(three_rows)
        s = {.x = cpu_row_at(&j->x, r), .after = cpu_row_at(&j->x, r + 1 < end ? r + 1 : r), .row = rows[r % 2]};
        s.shift = largest;
        if (r == begin) {
            by = 1 / F(exp_row)(n, s.x, 1, s.shift, s.row, s.after);
            largest = F(max_row)(n, s.after);
            continue;
        }
        s.before = rows[(r - 1) % 2];
        s.to = cpu_row_at(&j->y, r - 1);
        s.by = by;
        by = 1 / F(softmax_step)(n, &s, &largest);
    }
    F(scale_past)(n, by, rows[(end - 1) % 2], cpu_row_at(&j->y, end - 1));
}

static void F(softmax_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const softmax_job *j = context;
    int64_t            n = j->width;
    if (CPU_DIRECT && j->whole) {
        F(softmax_stream)(j, begin, end);
        gm_stream_end();
        return;
    }
    T row[CPU_ROW] __attribute__((aligned(64))); /* where results go past the caches */
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

/* `vectors` vectors of columns of n elements, which lie `step` elements apart; of the last vector the first m lanes.
 * SOFTMAX_ROWS elements are added before their sum is added to the whole: at worst some (SOFTMAX_ROWS + n /
 * SOFTMAX_ROWS) eps. */
CPU_INLINE void F(softmax_lines)(int64_t n, const T *x, int64_t step, int vectors, int64_t m, T *y)
{
    V largest[SOFTMAX_VECTORS], sum[SOFTMAX_VECTORS], part[SOFTMAX_VECTORS];
    for (int u = 0; u < vectors; u++) {
        largest[u] = F(splat)((T)-INFINITY);
        sum[u] = F(splat)(0);
    }
    for (int64_t k = 0; k < n; k++)
#pragma GCC unroll 4
        for (int u = 0; u < vectors; u++) largest[u] = F(max_v)(F(at)(x + k * step, u * LANES, m), largest[u]);
    for (int64_t from = 0; from < n; from += SOFTMAX_ROWS) {
        const int64_t to = n - from < SOFTMAX_ROWS ? n : from + SOFTMAX_ROWS;
        for (int u = 0; u < vectors; u++) part[u] = F(splat)(0);
        for (int64_t k = from; k < to; k++)
#pragma GCC unroll 4
            for (int u = 0; u < vectors; u++) {
                V e = F(exp_down_v)(F(at)(x + k * step, u * LANES, m) - largest[u]);
                F(put)(y + k * step, u * LANES, m, e);
                part[u] += e;
            }
        for (int u = 0; u < vectors; u++) sum[u] += part[u];
    }
    for (int u = 0; u < vectors; u++) sum[u] = 1 / sum[u];
    for (int64_t k = 0; k < n; k++)
#pragma GCC unroll 4
        for (int u = 0; u < vectors; u++)
            F(put)(y + k * step, u * LANES, m, F(at)(y + k * step, u * LANES, m) * sum[u]);
}

/* Strips of SOFTMAX_VECTORS vectors of columns of each of the outer places, a strip an item. */
static void F(softmax_columns_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const softmax_columns *j = context;
    const int64_t          most = SOFTMAX_VECTORS * LANES;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t outer = i / j->strips, first = i % j->strips * most, at = outer * j->n * j->inner + first;
        const int64_t count = j->inner - first < most ? j->inner - first : most;
        const T      *x = (const T *)j->x + at;
        T            *y = (T *)j->y + at;
        if (count == most) F(softmax_lines)(j->n, x, j->inner, SOFTMAX_VECTORS, LANES, y);
        for (int64_t c = 0; count < most && c < count; c += LANES)
            F(softmax_lines)(j->n, x + c, j->inner, 1, count - c < LANES ? count - c : LANES, y + c);
    }
}

static void F(log_softmax_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const softmax_job *j = context;
    int64_t            n = j->width;
    const bool         past = j->stream;
    T                  row[CPU_ROW] __attribute__((aligned(64))); /* where results go past the caches */
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const T *x = cpu_row_at(&j->x, r);
        T       *target = cpu_row_at(&j->y, r), *y = j->stream && !CPU_DIRECT ? row : target;
        T        largest = F(max_row)(n, x), log_sum = (T)log(F(exp_sum_row)(n, x, largest));
        MAP1(a - largest - log_sum);
        if (y == row) gm_stream_out(target, row, n * (int64_t)sizeof(T));
    }
    gm_stream_end();
}

/* y = x (z - sum(x z)): x is the forward's result, z its gradient */
static void F(softmax_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const softmax_job *j = context;
    int64_t            n = j->width;
    const bool         past = j->stream;
    T                  row[CPU_ROW] __attribute__((aligned(64))); /* where results go past the caches */
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const T *x = cpu_row_at(&j->x, r), *z = cpu_row_at(&j->g, r);
        T       *target = cpu_row_at(&j->y, r), *y = j->stream && !CPU_DIRECT ? row : target;
        T        sum = (T)F(dot_row)(n, x, z);
        MAP2(a * (b - sum));
        if (y == row) gm_stream_out(target, row, n * (int64_t)sizeof(T));
    }
    gm_stream_end();
}

/* y = z - p sum(z): x = log p is the forward's result, z its gradient */
static void F(log_softmax_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const softmax_job *j = context;
    int64_t            n = j->width;
    const bool         past = j->stream;
    T                  row[CPU_ROW] __attribute__((aligned(64))); /* where results go past the caches */
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const T *x = cpu_row_at(&j->x, r), *z = cpu_row_at(&j->g, r);
        T       *target = cpu_row_at(&j->y, r), *y = j->stream && !CPU_DIRECT ? row : target;
        T        sum = (T)F(sum_row)(n, z);
        MAP2(b - F(exp_v)(a) * sum);
        if (y == row) gm_stream_out(target, row, n * (int64_t)sizeof(T));
    }
    gm_stream_end();
}
