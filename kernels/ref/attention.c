/* attention.c - scaled dot-product attention and its gradient, one query row at a time.
 *
 * q, o, g (b, s, h, d); k, v (b, t, hk, d): head n of q reads head n / (h / hk) of k and v. bias (n, h, s, t) is
 * added to what a softcap makes of the scores: its gradient is dS, summed over the samples. The gradient
 * uses the identities of FlashAttention (Dao et al. 2022): with P from the stored lse and
 * D = rowsum(g o), dS = P (dP - D). Dropout works on the probabilities after softmax. */
#include "../key_mask.h"
#include "../drop.h"
#include "loops.h"

typedef struct problem {
    const gm_tensor *q, *k, *v, *mask, *limits, *bias;
    const gm_attrs  *attrs;
    int64_t          batch, queries, heads, size, keys, key_heads;
    double           scale;
    gm_drop          drop;
    uint64_t         step;
} problem;

static problem problem_of(const gm_device *dev, const gm_call *call)
{
    const gm_tensor *q = call->in[0], *k = call->in[1];
    double           scale = call->attrs->scale;
    return (problem){
        .q = q,
        .k = k,
        .v = call->in[2],
        .mask = call->in[3],
        .limits = call->in[call->op == GM_OP_attention ? 4 : 7],
        .bias = call->in[call->op == GM_OP_attention ? 5 : 8],
        .attrs = call->attrs,
        .batch = q->shape[0],
        .queries = q->shape[1],
        .heads = q->shape[2],
        .size = q->shape[3],
        .keys = k->shape[1],
        .key_heads = k->shape[2],
        .scale = scale > 0 ? scale : 1 / sqrt((double)q->shape[3]),
        .drop = gm_drop_of(call->attrs->stream.key, call->attrs->p),
        .step = ref_stream_step(dev, &call->attrs->stream),
    };
}

/* A query row: batch b, head n, query i. */
typedef struct row {
    int64_t b, n, i;
} row;

static double at4(const gm_tensor *t, int64_t b, int64_t s, int64_t h, int64_t d)
{
    const int64_t *step = t->stride;
    return gm_element(t->dtype, gm_elements(t), b * step[0] + s * step[1] + h * step[2] + d * step[3]);
}

static int64_t key_head(const problem *p, int64_t n) { return n / (p->heads / p->key_heads); }
static int64_t row_index(const problem *p, row r) { return (r.b * p->heads + r.n) * p->queries + r.i; }

/* Which bias sample b takes. */
static int64_t bias_of(const problem *p, int64_t b) { return (p->attrs->row + b) % p->bias->shape[0]; }

/* What is added to the score of (row, key). */
static double added(const problem *p, row r, int64_t j)
{
    const int64_t *step = p->bias ? p->bias->stride : NULL;
    if (!step) return 0;
    return gm_element(p->bias->dtype, gm_elements(p->bias),
                      bias_of(p, r.b) * step[0] + r.n * step[1] + r.i * step[2] + j * step[3]);
}

static bool visible(const problem *p, row r, int64_t j)
{
    int64_t last = r.i + (p->keys - p->queries) + p->attrs->behind;
    if (p->attrs->causal && j > last) return false;
    if (p->attrs->window && j <= last - p->attrs->window) return false;
    if (p->limits) {
        int64_t at = 2 * (r.b * p->queries + r.i), key = j + p->attrs->first;
        if (key < (int64_t)ref_get(p->limits, at) || key >= (int64_t)ref_get(p->limits, at + 1)) return false;
    }
    if (p->mask && ref_get(p->mask, r.b * p->keys + j) == 0) return false;
    return added(p, r, j) != -INFINITY;
}

/* What a score becomes. */
static double capped(const problem *p, double s)
{
    double cap = p->attrs->softcap;
    return cap > 0 ? cap * tanh(s / cap) : s;
}

/* The slope of that, from what came of it. */
static double capped_slope(const problem *p, double s)
{
    double cap = p->attrs->softcap;
    return cap > 0 ? 1 - s / cap * (s / cap) : 1;
}

/* q_i . k_j times the scale, capped, of a key that is visible. */
static double product(const problem *p, row r, int64_t j)
{
    double sum = 0;
    for (int64_t d = 0; d < p->size; d++) sum += at4(p->q, r.b, r.i, r.n, d) * at4(p->k, r.b, j, key_head(p, r.n), d);
    return capped(p, p->scale * sum);
}

/* That and the bias; -inf for a hidden key. */
static double score(const problem *p, row r, int64_t j)
{
    return visible(p, r, j) ? product(p, r, j) + added(p, r, j) : -INFINITY;
}

/* What dropout multiplies the probability of (row, key) with. */
static double kept(const problem *p, row r, int64_t j)
{
    int64_t  shape[4] = {p->batch, p->heads, p->queries, p->keys}, at[4] = {r.b, r.n, r.i, j};
    uint64_t index = gm_weight_index(&p->attrs->box, shape, at);
    if (gm_is_dropped(p->drop.round_keys, p->drop.threshold, index, p->step)) return 0;
    return gm_drop_keep(p->drop.threshold);
}

/* The scores of a row into s; returns the log of the sum of their exp, -inf if no key is seen. */
static double score_row(const problem *p, row r, double *s)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < p->keys; j++) {
        s[j] = score(p, r, j);
        largest = fmax(largest, s[j]);
    }
    if (largest == -INFINITY) return -INFINITY;
    for (int64_t j = 0; j < p->keys; j++) sum += exp(s[j] - largest);
    return largest + log(sum);
}

/* What is there counts by its share of the sum of exp, which is returned; *lse becomes that of both. */
static double share_of_before(const problem *p, double before, double *lse)
{
    double largest = fmax(before, *lse), both;
    if (!p->attrs->accumulate) return 0;
    if (largest == -INFINITY) return 1;
    both = largest + log(exp(before - largest) + exp(*lse - largest));
    *lse = both;
    return exp(before - both);
}

/* s: room for one number a key. Hidden keys are left out, not multiplied by 0: their values may be NaN. Their weight is
 * -1 here. */
static void forward_row(const problem *p, row r, double *s, const gm_tensor *o, const gm_tensor *lse)
{
    double total = score_row(p, r, s), before = share_of_before(p, ref_get(lse, row_index(p, r)), &total);
    ref_set(lse, row_index(p, r), total);
    for (int64_t j = 0; j < p->keys; j++) s[j] = visible(p, r, j) ? exp(s[j] - total) * kept(p, r, j) : -1;
    for (int64_t d = 0; d < p->size; d++) {
        int64_t at = ((r.b * p->queries + r.i) * p->heads + r.n) * p->size + d;
        double  sum = before > 0 ? before * ref_get(o, at) : 0;
        for (int64_t j = 0; j < p->keys; j++)
            if (s[j] != -1) sum += s[j] * at4(p->v, r.b, j, key_head(p, r.n), d);
        ref_set(o, at, sum);
    }
}

gm_status gm_ref_attention(gm_device *dev, const gm_call *call)
{
    problem p = problem_of(dev, call);
    double *s;
    GM_TRY(gm_key_mask_check(call));
    GM_TRY(ref_scratch(p.keys, &s));
    for (int64_t b = 0; b < p.batch; b++)
        for (int64_t n = 0; n < p.heads; n++)
            for (int64_t i = 0; i < p.queries; i++) forward_row(&p, (row){b, n, i}, s, call->out[0], call->out[1]);
    free(s);
    return GM_OK;
}

/* The sums of a gradient: laid out as q, k, v and bias, and contiguous; the last may be NULL. */
typedef struct sums {
    double *q, *k, *v, *bias;
} sums;

/* Adds what one (row, key) pair contributes. */
static void grad_pair(const problem *p, row r, int64_t j, double lse, double delta, const gm_tensor *g, const sums *to)
{
    int64_t head = key_head(p, r.n), q_at = ((r.b * p->queries + r.i) * p->heads + r.n) * p->size;
    int64_t k_at = ((r.b * p->keys + j) * p->key_heads + head) * p->size;
    double  s = product(p, r, j), probability = exp(s + added(p, r, j) - lse), keep = kept(p, r, j), dp = 0;
    for (int64_t d = 0; d < p->size; d++) dp += keep * at4(g, r.b, r.i, r.n, d) * at4(p->v, r.b, j, head, d);
    double ds = probability * (dp - delta);
    if (to->bias) to->bias[((bias_of(p, r.b) * p->heads + r.n) * p->queries + r.i) * p->keys + j] += ds;
    ds *= capped_slope(p, s) * p->scale;
    for (int64_t d = 0; d < p->size; d++) {
        to->q[q_at + d] += ds * at4(p->k, r.b, j, head, d);
        to->k[k_at + d] += ds * at4(p->q, r.b, r.i, r.n, d);
        to->v[k_at + d] += probability * keep * at4(g, r.b, r.i, r.n, d);
    }
}

static void grad_row(const problem *p, row r, const gm_call *call, const sums *to)
{
    const gm_tensor *o = call->in[4], *g = call->in[6];
    double           lse = ref_get(call->in[5], row_index(p, r)), delta = 0;
    for (int64_t d = 0; d < p->size; d++) delta += at4(g, r.b, r.i, r.n, d) * at4(o, r.b, r.i, r.n, d);
    for (int64_t j = 0; j < p->keys; j++)
        if (visible(p, r, j)) grad_pair(p, r, j, lse, delta, g, to);
}

gm_status gm_ref_attention_grad(gm_device *dev, const gm_call *call)
{
    gm_status st;
    problem   p = problem_of(dev, call);
    double   *sum[4] = {NULL, NULL, NULL, NULL}; /* dq, dk, dv, dbias */
    for (int k = 0; k < 4; k++)
        if (call->out[k]) GM_TRY_OR(ref_scratch(gm_tensor_numel(call->out[k]), &sum[k]), st, done);
    const sums to = {sum[0], sum[1], sum[2], sum[3]};
    for (int64_t b = 0; b < p.batch; b++)
        for (int64_t n = 0; n < p.heads; n++)
            for (int64_t i = 0; i < p.queries; i++) grad_row(&p, (row){b, n, i}, call, &to);
    for (int k = 0; k < 4; k++)
        for (int64_t i = 0, n = call->out[k] ? gm_tensor_numel(call->out[k]) : 0; i < n; i++)
            ref_put(call->out[k], i, sum[k][i], call->attrs->accumulate);
done:
    for (int k = 0; k < 4; k++) free(sum[k]);
    return st;
}
