/* pick.c - the next token from scores (pick.h). */
#include "pick.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "../../kernels/philox.h"

/* A token that may be drawn: its score first, then its share, which is exp(score - largest). */
typedef struct candidate {
    double  value;
    int64_t token;
} candidate;

static gm_status check(const gm_pick_rule *r, int64_t n)
{
    if (n < 1) return GM_FAIL(GM_EINVAL, "there are no tokens to choose from");
    if (!(r->temperature >= 0)) return GM_FAIL(GM_EINVAL, "temperature is %g, should be at least 0", r->temperature);
    if (r->top_k < 0) return GM_FAIL(GM_EINVAL, "top_k is %" PRId64 ", should be at least 0", r->top_k);
    if (!(r->top_p > 0 && r->top_p <= 1)) return GM_FAIL(GM_EINVAL, "top_p is %g, should be in (0, 1]", r->top_p);
    if (!(r->min_p >= 0 && r->min_p <= 1)) return GM_FAIL(GM_EINVAL, "min_p is %g, should be in [0, 1]", r->min_p);
    if (!(r->penalty > 0)) return GM_FAIL(GM_EINVAL, "the repetition penalty is %g, should be above 0", r->penalty);
    return GM_OK;
}

/* Each token once, however often it was seen: what was changed is told from what was not by `done`. */
static gm_status penalise(double *score, int64_t n, double penalty, const int64_t *seen, int64_t n_seen)
{
    bool *done = penalty != 1 && n_seen ? calloc((size_t)n, sizeof *done) : NULL;
    if (penalty == 1 || !n_seen) return GM_OK;
    if (!done) return GM_FAIL(GM_ENOMEM, "no memory for %" PRId64 " marks", n);
    for (int64_t i = 0; i < n_seen; i++) {
        int64_t t = seen[i];
        if (t < 0 || t >= n || done[t]) continue;
        done[t] = true;
        score[t] = score[t] > 0 ? score[t] / penalty : score[t] * penalty;
    }
    free(done);
    return GM_OK;
}

static int64_t largest(const double *score, int64_t n)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (!isnan(score[i]) && (best < 0 || score[i] > score[best])) best = i;
    return best;
}

/* Larger values first, of equal ones the smaller token. */
static int before(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

/* Brings the k first of n to the front, in any order (Hoare's FIND). */
static void select_first(candidate *c, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;
    while (low < high) {
        candidate pivot = c[low + (high - low) / 2];
        int64_t   i = low, j = high;
        while (i <= j) {
            while (before(&c[i], &pivot) < 0) i++;
            while (before(&pivot, &c[j]) < 0) j--;
            if (i <= j) {
                candidate t = c[i];
                c[i++] = c[j];
                c[j--] = t;
            }
        }
        if (k - 1 <= j) high = j;
        else if (k - 1 >= i) low = i;
        else return;
    }
}

static double sum_of(const candidate *c, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += c[i].value;
    return sum;
}

/* Leaves the fewest candidates that reach top_p of the sum, likeliest first. Those whose share is so small that all of
 * them together do not make up the rest cannot be among these: they are not sorted. */
static int64_t keep_top_p(candidate *c, int64_t n, double top_p)
{
    double  total = sum_of(c, n), least = (1 - top_p) * total / (double)n, sum = 0;
    int64_t m = 0, kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (c[i].value >= least) c[m++] = c[i];
    qsort(c, (size_t)m, sizeof *c, before);
    while (kept < m && sum < top_p * total) sum += c[kept++].value;
    return kept;
}

static int64_t keep_min_p(candidate *c, int64_t n, double min_p)
{
    int64_t m = 0;
    for (int64_t i = 0; i < n; i++)
        if (c[i].value >= min_p) c[m++] = c[i]; /* the likeliest has the value 1 */
    return m;
}

static int by_token(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->token < y->token ? -1 : x->token > y->token;
}

/* In order of tokens, so that what is drawn depends on the set alone and not on how it was found. */
static int64_t draw(candidate *c, int64_t n, const gm_pick_rule *r)
{
    uint64_t  key = gm_stream_key(r->seed, GM_PURPOSE_USER, gm_hash_text(GM_HASH_START, "generate"));
    gm_philox words = gm_philox_at(key, r->prompt, r->position);
    double    u = ((double)(words.v[0] >> 5) * 0x1p26 + (double)(words.v[1] >> 6)) * 0x1p-53;
    qsort(c, (size_t)n, sizeof *c, by_token);
    u *= sum_of(c, n);
    for (int64_t i = 0; i < n; i++) {
        u -= c[i].value;
        if (u < 0) return c[i].token;
    }
    return c[n - 1].token;
}

static int64_t pick_from(candidate *c, int64_t n, const gm_pick_rule *r, double most)
{
    if (r->top_k && r->top_k < n) {
        select_first(c, n, r->top_k);
        n = r->top_k;
    }
    for (int64_t i = 0; i < n; i++) c[i].value = exp((c[i].value - most) / r->temperature);
    if (r->top_p < 1) n = keep_top_p(c, n, r->top_p);
    if (r->min_p > 0) n = keep_min_p(c, n, r->min_p);
    return draw(c, n, r);
}

gm_status gm_pick(double *score, int64_t n, const gm_pick_rule *rule, const int64_t *seen, int64_t n_seen,
                  int64_t *token)
{
    GM_TRY(check(rule, n));
    GM_TRY(penalise(score, n, rule->penalty, seen, n_seen));
    int64_t best = largest(score, n), m = 0;
    if (best < 0 || isinf(score[best]))
        return GM_FAIL(GM_EINVAL, "the scores of the tokens are not finite; did the model's numbers overflow?");
    *token = best;
    if (rule->temperature == 0) return GM_OK;
    candidate *c = malloc((size_t)n * sizeof *c);
    if (!c) return GM_FAIL(GM_ENOMEM, "no memory for %" PRId64 " candidates", n);
    for (int64_t i = 0; i < n; i++)
        if (score[i] > -INFINITY) c[m++] = (candidate){score[i], i}; /* not NaN */
    *token = pick_from(c, m, rule, score[best]);
    free(c);
    return GM_OK;
}
