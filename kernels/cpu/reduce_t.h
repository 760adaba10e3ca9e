/* reduce_t.h - the k largest of rows for one element type (as.h); see reduce.c. */

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
