/* reduce_t.h - rows of extremes for one element type (as.h); see reduce.c. */

/* Is a lane NaN (where that is looked for) or equal to m? */
CPU_INLINE bool F(any_lane)(V v, T m, bool nan)
{
    VI hit = nan ? v != v : v == m;
    union {
        VI       v;
        uint64_t u[CPU_VECTOR / 8];
    } bits = {hit};
    uint64_t any = 0;
    for (int k = 0; k < CPU_VECTOR / 8; k++) any |= bits.u[k];
    return any != 0;
}

/* Index of the largest (or smallest) element; the first of equals; the first NaN wins. */
static int64_t F(extreme_row)(int64_t n, const T *x, bool smallest)
{
    V       best = F(splat)(x[0]), zero = F(splat)(0);
    VI      nan = best != best;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        V v = F(load)(x + i);
        best = smallest ? F(min_v)(v, best) : F(max_v)(v, best);
        nan |= v != v;
    }
    T    m = smallest ? -F(max_of)(zero - best) : F(max_of)(best);
    bool any = false;
    for (int k = 0; k < LANES; k++) any |= nan[k] != 0;
    for (; i < n; i++) {
        any |= x[i] != x[i];
        m = smallest ? (x[i] < m ? x[i] : m) : (x[i] > m ? x[i] : m);
    }
    for (i = 0; i + LANES <= n && !F(any_lane)(F(load)(x + i), m, any); i += LANES) {
    }
    for (; i < n; i++)
        if (any ? x[i] != x[i] : x[i] == m) return i;
    return 0;
}

static void F(extreme_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const extreme_job *j = context;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const T *x = cpu_row_at(&j->x, r);
        int64_t  at = F(extreme_row)(j->width, x, j->smallest);
        *(int64_t *)cpu_row_at(&j->index, r) = at;
        if (j->has_value) *(T *)cpu_row_at(&j->value, r) = x[at];
    }
}

/* The k largest so far are kept in order; what comes later moves only what is smaller. */
static void F(top_row)(int64_t n, int64_t k, const T *x, T *value, int64_t *index)
{
    for (int64_t i = 0, have = 0; i < n; i++) {
        int64_t at = have;
        while (at > 0 && (x[i] != x[i] ? value[at - 1] == value[at - 1] : x[i] > value[at - 1])) at--;
        if (at == k) continue;
        if (have < k) have++;
        for (int64_t m = have - 1; m > at; m--) {
            value[m] = value[m - 1];
            index[m] = index[m - 1];
        }
        value[at] = x[i];
        index[at] = i;
    }
}

static void F(top_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const top_job *j = context;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        F(top_row)(j->x.width, j->k, cpu_row_at(&j->x, r), cpu_row_at(&j->value, r), cpu_row_at(&j->index, r));
}
