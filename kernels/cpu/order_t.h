/* order_t.h - sort for one element type (as.h); see order.c. */

#define ORDERED F(ordered)

typedef struct {
    T       value;
    int64_t place;
} ORDERED;

/* Must v, which stands behind u, go before it? NaN counts as the largest number. */
CPU_INLINE bool F(goes_before)(bool descending, T v, T u)
{
    if (v != v || u != u) return descending ? v != v && u == u : v == v && u != u;
    return descending ? v > u : v < u;
}

/* Merges the sorted runs a[0 .. middle) and a[middle .. n) into to. */
static void F(merge_runs)(bool descending, int64_t middle, int64_t n, const ORDERED *a, ORDERED *to)
{
    int64_t i = 0, k = middle;
    for (int64_t at = 0; at < n; at++) {
        bool second = i == middle || (k < n && F(goes_before)(descending, a[k].value, a[i].value));
        to[at] = second ? a[k++] : a[i++];
    }
}

/* Sorts a; the result is in a or in b, whichever is returned. */
static ORDERED *F(sort_row)(bool descending, int64_t n, ORDERED *a, ORDERED *b)
{
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t from = 0; from < n; from += 2 * run) {
            int64_t count = n - from < 2 * run ? n - from : 2 * run;
            F(merge_runs)(descending, count < run ? count : run, count, a + from, b + from);
        }
        ORDERED *other = a;
        a = b;
        b = other;
    }
    return a;
}

/* A row of numbers and their places. */
static void F(merge_row)(bool descending, int64_t n, const T *x, T *y, int64_t *index, ORDERED *room)
{
    for (int64_t i = 0; i < n; i++) room[i] = (ORDERED){x[i], i};
    const ORDERED *sorted = F(sort_row)(descending, n, room, room + n);
    for (int64_t i = 0; i < n; i++) {
        y[i] = sorted[i].value;
        index[i] = sorted[i].place;
    }
}

static void F(sort_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const order_job *j = context;
    void            *room = j->room + (size_t)thread * j->each;
    for (int64_t r = begin; r < end; r++) {
        const T *x = cpu_row_at(&j->x, r);
        T       *y = cpu_row_at(&j->y, r);
        int64_t *index = cpu_row_at(&j->index, r);
#if T_BITS == 32
        if (j->n < UINT32_MAX) {
            order_floats(j->descending, j->n, x, y, index, room);
            continue;
        }
#endif
        F(merge_row)(j->descending, j->n, x, y, index, room);
    }
}

static void F(unsort_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const order_job *j = context;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const char *index = cpu_row_at(&j->index, r);
        const T    *g = cpu_row_at(&j->x, r);
        T          *dx = cpu_row_at(&j->y, r);
        for (int64_t i = 0; i < j->n; i++)
            dx[j->index.size == 8 ? ((const int64_t *)index)[i] : ((const int32_t *)index)[i]] = g[i];
    }
}

#undef ORDERED
