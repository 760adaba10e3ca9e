/* experts.c - the ops of mixtures of experts: which expert serves which token, and how rows move to experts and back.
 */
#include <inttypes.h>

#include "loops.h"

static int64_t number(const gm_tensor *t, int64_t i) { return (int64_t)ref_get(t, i); }

/* GM_EINVAL unless all numbers of t are in -1 .. n - 1. */
static gm_status check(const gm_call *call, const gm_tensor *t, const char *what, int64_t n, const char *of)
{
    for (int64_t i = 0, all = gm_tensor_numel(t); i < all; i++)
        if (number(t, i) < -1 || number(t, i) >= n)
            return GM_FAIL(GM_EINVAL,
                           "%s: %s %" PRId64 " at position %" PRId64 " (from 0) is none of %" PRId64 " %s, nor -1",
                           gm_op_name(call->op), what, number(t, i), i, n, of);
    return GM_OK;
}

static gm_status check_index(const gm_call *call)
{
    return check(call, call->in[0], "index", call->attrs->experts, "experts");
}

gm_status gm_ref_experts_count(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *index = call->in[0], *count = call->out[0];
    int64_t          n = index->shape[1], k = index->shape[2], experts = call->attrs->experts;
    GM_TRY(check_index(call));
    for (int64_t i = 0, all = gm_tensor_numel(count); i < all; i++) ref_set(count, i, 0);
    for (int64_t i = 0, all = gm_tensor_numel(index); i < all; i++) {
        int64_t at = (i / (n * k) * k + i % k) * experts + number(index, i);
        if (number(index, i) >= 0) ref_set(count, at, ref_get(count, at) + 1);
    }
    return GM_OK;
}

gm_status gm_ref_experts_before(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *count = call->in[0], *order = call->in[1];
    int64_t          runs = count->shape[0], k = count->shape[1], experts = count->shape[2];
    double          *sum;
    GM_TRY(check(call, order, "order", runs, "runs"));
    GM_TRY(ref_scratch(experts, &sum));
    for (int64_t j = 0; j < k; j++)
        for (int64_t i = 0; i < runs; i++)
            for (int64_t e = 0; e < experts && number(order, i) >= 0; e++) {
                int64_t at = (number(order, i) * k + j) * experts + e;
                ref_set(call->out[0], at, sum[e]);
                sum[e] += ref_get(count, at);
            }
    free(sum);
    return GM_OK;
}

gm_status gm_ref_experts_limit(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *index = call->in[0], *before = call->in[1];
    int64_t          runs = index->shape[0], n = index->shape[1], k = index->shape[2], experts = call->attrs->experts;
    double          *taken;
    GM_TRY(check_index(call));
    GM_TRY(ref_scratch(experts, &taken));
    for (int64_t j = 0; j < k; j++)
        for (int64_t r = 0; r < runs; r++) {
            for (int64_t e = 0; before && e < experts; e++) taken[e] = ref_get(before, (r * k + j) * experts + e);
            for (int64_t t = 0; t < n; t++) {
                int64_t at = (r * n + t) * k + j, e = number(index, at);
                bool    served = e >= 0 && taken[e]++ < (double)call->attrs->capacity;
                ref_set(call->out[0], at, served ? (double)e : -1);
            }
        }
    free(taken);
    return GM_OK;
}

/* Row by row: the experts that come first, then the others; of each its choices in order. */
gm_status gm_ref_experts_order(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *index = call->in[0], *choice = call->out[0], *row = call->out[1];
    const gm_attrs  *at = call->attrs;
    int64_t          n = gm_tensor_numel(index), next = 0;
    GM_TRY(check_index(call));
    for (int64_t i = 0; i < choice->shape[0]; i++) ref_set(choice, i, -1);
    for (int64_t c = 0; c < n; c++) ref_set(row, c, -1);
    ref_set(call->out[3], 0, (double)(at->first * at->capacity));
    for (int64_t i = 0; i < at->experts; i++) {
        int64_t e = i < at->ahead ? at->first + i : i - at->ahead < at->first ? i - at->ahead : i, count = 0;
        if (at->capacity) next = e * at->capacity;
        for (int64_t c = 0; c < n; c++) {
            if (number(index, c) != e) continue;
            if (at->capacity && count == at->capacity)
                return GM_FAIL(GM_EINVAL,
                               "experts_order: choice %" PRId64 " (from 0) is one too many for expert %" PRId64
                               ", which has %" PRId64 " rows",
                               c, e, at->capacity);
            ref_set(choice, next, (double)c);
            ref_set(row, c, (double)next++);
            count++;
        }
        ref_set(call->out[2], e, (double)count);
        if (i < at->ahead)
            ref_set(call->out[3], i + 1, (double)(at->capacity ? (at->first + i + 1) * at->capacity : next));
    }
    return GM_OK;
}

gm_status gm_ref_experts_gather(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *choice = call->in[1], *weight = call->in[2];
    int64_t          h = x->shape[1], k = call->attrs->k;
    GM_TRY(check(call, choice, "choice", x->shape[0] * k, "choices"));
    for (int64_t i = 0, n = gm_tensor_numel(call->out[0]); i < n; i++) {
        int64_t c = number(choice, i / h);
        double  v = c < 0 ? 0 : ref_get(x, c / k * h + i % h);
        ref_set(call->out[0], i, c >= 0 && weight ? v * ref_get(weight, c) : v);
    }
    return GM_OK;
}

gm_status gm_ref_experts_combine(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *y = call->in[0], *row = call->in[1], *weight = call->in[2];
    int64_t          h = y->shape[1], k = row->shape[1];
    GM_TRY(check(call, row, "row", y->shape[0], "rows"));
    for (int64_t i = 0, n = gm_tensor_numel(call->out[0]); i < n; i++) {
        double sum = 0;
        for (int64_t c = i / h * k; c < (i / h + 1) * k; c++)
            if (number(row, c) >= 0) sum += (weight ? ref_get(weight, c) : 1) * ref_get(y, number(row, c) * h + i % h);
        ref_put(call->out[0], i, sum, call->attrs->accumulate);
    }
    return GM_OK;
}

gm_status gm_ref_experts_combine_grad(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *y = call->in[0], *row = call->in[1], *g = call->in[2];
    int64_t          h = y->shape[1], k = row->shape[1];
    GM_TRY(check(call, row, "row", y->shape[0], "rows"));
    for (int64_t c = 0, n = gm_tensor_numel(row); c < n; c++) {
        double sum = 0;
        for (int64_t i = 0; i < h && number(row, c) >= 0; i++)
            sum += ref_get(g, c / k * h + i) * ref_get(y, number(row, c) * h + i);
        ref_set(call->out[0], c, sum);
    }
    return GM_OK;
}
