/* loss_t.h - table gradients and cross entropy for one element type (as.h). */

/* dw[row][first .. first + n) (+)= the sum of g over the row's positions */
static void M(table_row)(const table_job *j, int64_t row, int64_t first, int64_t n)
{
    E             *dw = (E *)cpu_row_at(&j->dw, row) + first;
    const int64_t *at = j->position + j->start[row];
    int64_t        count = row == j->padding ? 0 : j->start[row + 1] - j->start[row];
    if (count == 0) {
        if (!j->accumulate) clear_row(dw, n * (int64_t)sizeof(E), j->stream);
        return;
    }
    for (int64_t c = 0; c < n; c += TABLE_COLUMNS) {
        int64_t m = n - c < TABLE_COLUMNS ? n - c : TABLE_COLUMNS;
        double  sum[TABLE_COLUMNS] __attribute__((aligned(64)));
        for (int64_t i = 0; i < m; i++) sum[i] = j->accumulate ? (double)M(get)(dw + c + i) : 0;
        for (int64_t k = 0; k < count; k++) {
            const E *g = (const E *)cpu_row_at(&j->g, at[k]) + first + c;
            for (int64_t i = 0; i < m; i++) sum[i] += (double)M(get)(g + i);
        }
        for (int64_t i = 0; i < m; i++) M(set)(dw + c + i, (T)sum[i]);
    }
}

/* First table row of a group: groups have equal shares of rows and positions together. */
static int64_t M(group_start)(const table_job *j, int64_t group)
{
    int64_t want = (j->rows + j->start[j->rows]) * group / j->groups, low = 0, high = j->rows;
    while (low < high) {
        int64_t mid = (low + high) / 2;
        if (mid + j->start[mid] < want) low = mid + 1;
        else high = mid;
    }
    return low;
}

static void M(table_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const table_job *j = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t panel = i / j->groups, group = i % j->groups;
        int64_t first = panel * j->dw.width / j->panels, last = (panel + 1) * j->dw.width / j->panels;
        int64_t stop = M(group_start)(j, group + 1);
        for (int64_t r = M(group_start)(j, group); r < stop; r++) M(table_row)(j, r, first, last - first);
    }
    gm_stream_end();
}

/* Adds n <= LOSS_BLOCK elements. */
CPU_INLINE void M(add_exp)(int64_t n, const E *x, row_sum *r)
{
    double largest = (double)M(max_row)(n, x);
    if (largest > r->largest) r->largest = largest;
    if (largest > r->shift + LOSS_LAG || (r->shift == -INFINITY && largest > r->shift)) {
        r->sum *= exp(r->shift - largest); /* 0 at first: exp(-inf) */
        r->shift = largest;
    }
    if (r->shift > -INFINITY) r->sum += M(exp_sum_row)(n, x, (T)r->shift);
    else if (isnan(M(sum_row)(n, x))) r->sum = NAN; /* max_row passes over NaN */
}

/* The largest element, and the sum of exp(x - largest): of a row of -inf alone 0. */
static row_sum M(sum_exp)(int64_t n, const E *x)
{
    row_sum r = {-INFINITY, -INFINITY, 0};
    for (int64_t i = 0; i < n; i += LOSS_BLOCK) M(add_exp)(n - i < LOSS_BLOCK ? n - i : LOSS_BLOCK, x + i, &r);
    if (r.largest > r.shift) r.sum *= exp(r.shift - r.largest);
    return r;
}

/* The sum of largest - x: differences, as logits may be large. */
static double M(sum_below)(int64_t n, const E *x, T largest)
{
    vf64    a = {0}, b = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) F(add_wide)(&a, &b, largest - M(load)(x + i));
    double sum = sum_v_wide(a + b);
    for (; i < n; i++) sum += (double)(largest - M(get)(x + i));
    return sum;
}

/* Of a row with this sum, whose target counts. */
static double M(entropy_of_row)(const entropy_job *j, const E *x, int64_t target, row_sum row)
{
    double n = (double)j->x.width, e = j->smoothing;
    double rest = log(row.sum), miss = row.largest - (double)M(get)(x + target) + rest;
    return e > 0 ? (1 - e) * miss + e * (rest + M(sum_below)(j->x.width, x, (T)row.largest) / n) : miss;
}

static void M(entropy_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const entropy_job *j = context;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const E *x = cpu_row_at(&j->x, r);
        row_sum  row = M(sum_exp)(j->x.width, x);
        int64_t  target = load_index(&j->target, r);
        *(T *)cpu_row_at(&j->largest, r) = (T)row.largest;
        *(T *)cpu_row_at(&j->sum, r) = (T)row.sum;
        *(T *)cpu_row_at(&j->loss, r) = target == j->ignore ? 0 : (T)M(entropy_of_row)(j, x, target, row);
    }
}

/* dx = g (exp(x - largest) / sum - share), n <= BURST unless CPU_DIRECT; by: g / sum, less: g share */
CPU_INLINE void M(entropy_grad_chunk)(int64_t n, const E *x, T largest, T by, T less, E *dx, bool past)
{
    E room[BURST] __attribute__((aligned(64))), *y = past && !CPU_DIRECT ? room : dx;
    MAP1(F(exp_down_v)(a - largest) * by - less); /* elementwise_t.h */
    if (y == room) gm_stream_out(dx, room, n * (int64_t)sizeof(E));
}

/* dx = g (softmax - (1 - e) [class is the target] - e / classes) of a row whose target counts */
static void M(entropy_grad_row)(const entropy_job *j, const E *x, int64_t target, T largest, T sum, T g, E *dx)
{
    int64_t n = j->x.width, step = CPU_DIRECT ? n : BURST; /* pieces that begin within a line would cost a quarter */
    double share = j->smoothing / (double)n, by = 1 / (double)sum, p = exp((double)(M(get)(x + target) - largest)) * by;
    for (int64_t i = 0; i < n; i += step) {
        int64_t m = n - i < step ? n - i : step;
        M(entropy_grad_chunk)(m, x + i, largest, (T)(by * g), (T)(share * g), dx + i, j->stream);
    }
    if (j->stream) gm_stream_end(); /* before a plain store to the same lines */
    M(set)(dx + target, (T)((double)g * (p - (1 - j->smoothing) - share)));
}

static void M(entropy_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const entropy_job *j = context;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const E *x = cpu_row_at(&j->x, r);
        E       *dx = cpu_row_at(&j->dx, r);
        T        g = *(T *)cpu_row_at(&j->g, r);
        T        largest = *(T *)cpu_row_at(&j->largest, r), sum = *(T *)cpu_row_at(&j->sum, r);
        int64_t  target = load_index(&j->target, r);
        if (target == j->ignore) memset(dx, 0, (size_t)j->x.width * sizeof(E));
        else M(entropy_grad_row)(j, x, target, largest, sum, g, dx);
    }
}

static void M(entropy_both_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const entropy_job *j = context;
    T                  g = *(T *)cpu_row_at(&j->g, 0);
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const E *x = cpu_row_at(&j->x, r);
        E       *dx = cpu_row_at(&j->dx, r);
        T       *loss = cpu_row_at(&j->loss, r);
        int64_t  target = load_index(&j->target, r);
        if (target == j->ignore) {
            *loss = 0;
            memset(dx, 0, (size_t)j->x.width * sizeof(E));
            continue;
        }
        row_sum row = M(sum_exp)(j->x.width, x);
        *loss = (T)M(entropy_of_row)(j, x, target, row);
        M(entropy_grad_row)(j, x, target, (T)row.largest, (T)row.sum, g, dx);
    }
}
