/* bags_t.h - sums of rows for one element type (as.h); see bags.c. */

/* to (+)= weight times n elements of a row of w, from element `first` on */
CPU_INLINE void F(bag_add)(const bag_job *j, int64_t row, int64_t first, int64_t n, T weight, bool adds, T *to)
{
    T           wide[BAG_COLUMNS];
    const char *p = (const char *)cpu_row_at(&j->w, row) + first * j->w.size;
    const T    *x = (const T *)(const void *)p;
    if (j->widen) j->widen(n, p, wide), x = wide;
    if (!adds)
        for (int64_t i = 0; i < n; i++) to[i] = j->weighted ? weight * x[i] : x[i];
    else if (j->weighted)
        for (int64_t i = 0; i < n; i++) to[i] += weight * x[i];
    else
        for (int64_t i = 0; i < n; i++) to[i] += x[i];
}

/* The weight of a place, whose elements have the dtype of w. */
CPU_INLINE T F(bag_weight)(const bag_job *j, int64_t place)
{
    T wide = 1;
    if (!j->weighted) return wide;
    const void *p = cpu_row_at(&j->weight, place);
    if (j->widen) j->widen(1, p, &wide);
    else wide = *(const T *)p;
    return wide;
}

static void F(bag_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const bag_job *j = context;
    (void)thread;
    for (int64_t bag = begin; bag < end; bag++) {
        const int64_t *row = j->row + bag * j->each;
        for (int64_t k = 0; k < j->each; k++)
            if ((bag + 1) * j->each + BAG_AHEAD <= end * j->each) fetch_row(&j->w, row[k + BAG_AHEAD]);
        for (int64_t first = 0; first < j->w.width; first += BAG_COLUMNS) {
            int64_t n = j->w.width - first < BAG_COLUMNS ? j->w.width - first : BAG_COLUMNS;
            char   *y = (char *)cpu_row_at(&j->y, bag) + first * j->y.size;
            T       room[BAG_COLUMNS], *to = j->widen ? room : (T *)(void *)y;
            bool    adds = false;
            for (int64_t k = 0; k < j->each; k++) {
                if (row[k] < 0) continue;
                F(bag_add)(j, row[k], first, n, F(bag_weight)(j, bag * j->each + k), adds, to);
                adds = true;
            }
            if (!adds) memset(to, 0, (size_t)n * sizeof(T));
            if (j->widen) j->round(n, room, y);
        }
    }
}

/* dweight = g . w at each place */
static void F(bag_weight_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const bag_job *j = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        double   sum = 0;
        const T *g = cpu_row_at(&j->g, i / j->each), *w = j->row[i] < 0 ? g : cpu_row_at(&j->w, j->row[i]);
        for (int64_t c = 0; c < j->w.width && j->row[i] >= 0; c++) sum += (double)g[c] * (double)w[c];
        *(T *)cpu_row_at(&j->y, i) = (T)sum;
    }
}

/* The kept rows [begin, end), and the rows of -1 behind them. */
static void F(touched_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const rows_job *j = context;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        bool there = u < j->count;
        T   *to = cpu_row_at(&j->sum, u);
        j->kept[u * j->kept_step] = there ? j->list[j->start[u]].row : -1;
        if (!there) memset(to, 0, (size_t)j->sum.width * sizeof(T));
        for (int64_t first = 0; first < j->sum.width && there; first += BAG_COLUMNS) {
            int64_t n = j->sum.width - first < BAG_COLUMNS ? j->sum.width - first : BAG_COLUMNS;
            double  sum[BAG_COLUMNS] __attribute__((aligned(64)));
            for (int64_t i = 0; i < n; i++) sum[i] = 0;
            for (int64_t k = j->start[u]; k < j->start[u + 1]; k++) {
                int64_t  place = j->list[k].place;
                const T *g = (const T *)cpu_row_at(&j->g, place / j->each) + first;
                double   weight = j->weighted ? (double)*(const T *)cpu_row_at(&j->weight, place) : 1;
                for (int64_t i = 0; i < n; i++) sum[i] += weight * (double)g[i];
            }
            for (int64_t i = 0; i < n; i++) to[first + i] = (T)sum[i];
        }
    }
}
