/* extremes_t.h - extremes of rows, and of many rows beside each other, for one element type (as.h); see extremes.c. */

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

/* What `vectors` vectors of lines have found so far, and where. */
typedef struct F(extremes) {
    V  best[EXTREME_VECTORS];
    VI at[EXTREME_VECTORS];
} F(extremes);

/* Element k of the lines is v. The first of equals stays, and the first NaN. */
CPU_INLINE void F(extreme_next)(V v, TI k, bool smallest, V *best, VI *at)
{
    VI keeps = smallest ? v >= *best : v <= *best;
    VI take = ~keeps & (*best == *best);
    *best = F(select)(take, v, *best);
    *at = (VI)F(select)(take, (V)((VI){0} + k), (V)*at);
}

/* `vectors` vectors of lines of n elements, which lie `step` elements apart; of the last vector the first m lanes. */
CPU_INLINE void F(extreme_lines)(int64_t n, const T *x, int64_t step, int vectors, int64_t m, bool smallest,
                                 F(extremes) * found)
{
    F(extremes) f;
#pragma GCC unroll 4
    for (int u = 0; u < vectors; u++) {
        f.best[u] = F(at)(x, u * LANES, m);
        f.at[u] = (VI){0};
    }
    for (int64_t k = 1; k < n; k++) {
        x += step;
#pragma GCC unroll 4
        for (int u = 0; u < vectors; u++)
            F(extreme_next)(F(at)(x, u * LANES, m), (TI)k, smallest, &f.best[u], &f.at[u]);
    }
#pragma GCC unroll 4
    for (int u = 0; u < vectors; u++) {
        found->best[u] = f.best[u];
        found->at[u] = f.at[u];
    }
}

CPU_INLINE void F(extreme_give)(const F(extremes) * found, int64_t count, T *value, int64_t *index)
{
    const TI *at = (const TI *)found->at;
    for (int64_t i = 0; i < count; i++) index[i] = at[i];
    if (value) memcpy(value, found->best, (size_t)count * sizeof(T));
}

/* Short rows: LANES of them become lines of a buffer. Those that are left go one by one. */
static void F(extreme_beside_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const extreme_job *j = context;
    const int64_t      n = j->width, step = j->x.step / (int64_t)sizeof(T);
    T                  room[EXTREME_SHORT * LANES] __attribute__((aligned(64)));
    for (; begin + LANES <= end; begin += LANES) {
        const T *x = cpu_row_at(&j->x, begin);
        F(extremes) found;
        for (int r = 0; r < LANES; r++, x += step)
            for (int64_t k = 0; k < n; k++) room[k * LANES + r] = x[k];
        if (j->smallest) F(extreme_lines)(n, room, LANES, 1, LANES, true, &found);
        else F(extreme_lines)(n, room, LANES, 1, LANES, false, &found);
        F(extreme_give)
        (&found, LANES, j->has_value ? cpu_row_at(&j->value, begin) : NULL, cpu_row_at(&j->index, begin));
    }
    F(extreme_part)(context, begin, end, thread);
}

/* Columns: strips of EXTREME_VECTORS vectors of each of the outer places, a strip an item. */
static void F(extreme_columns_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const extreme_columns *j = context;
    const int64_t          most = EXTREME_VECTORS * LANES;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t outer = i / j->strips, first = i % j->strips * most, to = outer * j->inner + first;
        const int64_t count = j->inner - first < most ? j->inner - first : most;
        const T      *x = (const T *)j->x + outer * j->n * j->inner + first;
        T            *value = j->value ? (T *)j->value + to : NULL;
        F(extremes) found;
        if (count == most) {
            if (j->smallest) F(extreme_lines)(j->n, x, j->inner, EXTREME_VECTORS, LANES, true, &found);
            else F(extreme_lines)(j->n, x, j->inner, EXTREME_VECTORS, LANES, false, &found);
            F(extreme_give)(&found, count, value, j->index + to);
            continue;
        }
        for (int64_t c = 0; c < count; c += LANES) {
            const int64_t m = count - c < LANES ? count - c : LANES;
            F(extreme_lines)(j->n, x + c, j->inner, 1, m, j->smallest, &found);
            F(extreme_give)(&found, m, value ? value + c : NULL, j->index + to + c);
        }
    }
}
