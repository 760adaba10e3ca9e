/* random_t.h - samplers over rows for one element type (as.h); see random.c. */

static void F(uniform_row)(const random_job *j, int64_t n, uint64_t index, const uint32_t *words, void *out)
{
    T     *y = out;
    double low = j->at->low, high = j->at->high;
    (void)index;
    for (int64_t i = 0; i < n; i++) y[i] = (T)gm_sample_uniform(low, high, words[i]);
}

/* Elements 2k and 2k + 1 share their words; a row may begin or end inside a pair. */
static void F(normal_row)(const random_job *j, int64_t n, uint64_t index, const uint32_t *words, void *out)
{
    T           *y = out;
    double       even[NORMAL_PAIRS], odd[NORMAL_PAIRS];
    const double mean = j->at->mean, std = j->at->std;
    int64_t      i = 0;
    if (index % 2 && n > 0) { /* its partner's word stands just before: same block */
        normal_pairs(mean, std, words - 1, 1, even, odd);
        y[i++] = (T)odd[0];
    }
    for (int64_t m; i < n; i += m) { /* the partner of the last may lie beyond n: same block too */
        m = n - i < 2 * NORMAL_PAIRS ? n - i : 2 * NORMAL_PAIRS;
        normal_pairs(mean, std, words + i, (m + 1) / 2, even, odd);
        for (int64_t k = 0; k < m / 2; k++) {
            y[i + 2 * k] = (T)even[k];
            y[i + 2 * k + 1] = (T)odd[k];
        }
        if (m % 2) y[i + m - 1] = (T)even[m / 2];
    }
}

static void F(truncated_row)(const random_job *j, int64_t n, uint64_t index, const uint32_t *words, void *out)
{
    T *y = out;
    (void)index;
    for (int64_t i = 0; i < n; i++) y[i] = (T)gm_sample_truncated(&j->cut, words[i]);
}
