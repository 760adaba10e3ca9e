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
    T      *y = out;
    double  even, odd, mean = j->at->mean, std = j->at->std;
    int64_t i = 0;
    if (index % 2 && n > 0) { /* its partner's word stands just before: same block */
        gm_sample_normal(mean, std, words[-1], words[0], &even, &odd);
        y[i++] = (T)odd;
    }
    for (; i < n; i += 2) { /* the partner of the last may lie beyond n: same block too */
        gm_sample_normal(mean, std, words[i], words[i + 1], &even, &odd);
        y[i] = (T)even;
        if (i + 1 < n) y[i + 1] = (T)odd;
    }
}

static void F(truncated_row)(const random_job *j, int64_t n, uint64_t index, const uint32_t *words, void *out)
{
    T *y = out;
    (void)index;
    for (int64_t i = 0; i < n; i++) y[i] = (T)gm_sample_truncated(&j->cut, words[i]);
}
