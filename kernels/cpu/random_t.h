/* random_t.h - samplers over rows for one element type (as.h); see random.c. */

static void F(uniform_row)(const random_job *j, int64_t n, uint64_t index, const uint32_t *words, const void *x,
                           void *out)
{
    T     *y = out;
    double low = j->at->low, high = j->at->high;
    (void)index;
    (void)x;
    for (int64_t i = 0; i < n; i++) y[i] = (T)gm_sample_uniform(low, high, words[i]);
}

/* Elements 2k and 2k + 1 share their words; a row may begin or end inside a pair. */
static void F(normal_row)(const random_job *j, int64_t n, uint64_t index, const uint32_t *words, const void *x,
                          void *out)
{
    T      *y = out;
    double  even, odd, mean = j->at->mean, std = j->at->std;
    int64_t i = 0;
    (void)x;
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

static void F(truncated_row)(const random_job *j, int64_t n, uint64_t index, const uint32_t *words, const void *x,
                             void *out)
{
    T *y = out;
    (void)index;
    (void)x;
    for (int64_t i = 0; i < n; i++) y[i] = (T)gm_sample_truncated(&j->cut, words[i]);
}

/* x / (1 - p), rounded once from double as in the reference */
CPU_INLINE V F(divided_v)(V x, double rest)
{
#if T_BITS == 32
    return join(narrow(quotient(widen(low_half(x)), rest)), narrow(quotient(widen(high_half(x)), rest)));
#else
    return x / rest;
#endif
}

static void F(dropout_row)(const random_job *j, int64_t n, uint64_t index, const uint32_t *words, const void *in,
                           void *out)
{
    T       *y = out;
    const T *x = in;
    double   rest = 1 - j->at->p;
    bool     past = CPU_DIRECT && j->direct;
    (void)index;
    /* the buffer of words reaches beyond n */
    for (int64_t i = 0, m = F(first_step)(y, n, past); i < n; i += past && m < LANES ? m : LANES, m = n - i) {
        if (past) __builtin_prefetch((const char *)(x + i) + CPU_AHEAD);
        V kept = F(divided_v)(F(at)(x, i, m), rest);
#if T_BITS == 32
        VI dropped = (VI)(*(const any_u32 *)(words + i) < j->threshold);
#else
        VI dropped = (VI)(__builtin_convertvector(*(const any_half_u32 *)(words + i), vu64) < j->threshold);
#endif
        F(put_past)(y, i, m, F(select)(dropped, F(splat)(0), kept), past);
    }
}
