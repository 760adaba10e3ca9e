/* experts.c - the ops of mixtures of experts: which expert serves which token, and how rows move to experts and back.
 * All indices are checked before anything is written. One thread makes the plan, in one pass over a few numbers for
 * each token. For moves, each thread writes a part of the rows, so the bits do not depend on the number of threads. */

static inline int64_t *number_at(const cpu_rows *t, int64_t i) { return cpu_row_at(t, i); }

/* GM_EINVAL unless all numbers are in -1 .. n - 1. */
static gm_status check_numbers(const gm_call *call, const cpu_rows *t, const char *what, int64_t n, const char *of)
{
    for (int64_t i = 0; i < t->rows; i++) {
        int64_t v = load_index(t, i);
        if (v < -1 || v >= n)
            return GM_FAIL(GM_EINVAL,
                           "%s: %s %" PRId64 " at position %" PRId64 " (from 0) is none of %" PRId64 " %s, nor -1",
                           gm_op_name(call->op), what, v, i, n, of);
    }
    return GM_OK;
}

/* *index: the first input, checked; its elements are numbers (runs, n, k) of experts. */
static gm_status index_of(const gm_call *call, cpu_rows *index)
{
    *index = cpu_scalars_of(call->in[0]);
    return check_numbers(call, index, "index", call->attrs->experts, "experts");
}

static gm_status zeros(gm_device *dev, int64_t n, int64_t **out, gm_block **block)
{
    GM_TRY(cpu_scratch(dev, (size_t)n * sizeof **out, out, block));
    memset(*out, 0, (size_t)n * sizeof **out);
    return GM_OK;
}

static gm_status cpu_experts_count(gm_device *dev, const gm_call *call)
{
    const int64_t *shape = call->in[0]->shape;
    int64_t        k = shape[2], of_run = shape[1] * k, experts = call->attrs->experts;
    cpu_rows       index, count = cpu_scalars_of(call->out[0]);
    (void)dev;
    GM_TRY(index_of(call, &index));
    for (int64_t i = 0; i < count.rows; i++) *number_at(&count, i) = 0;
    for (int64_t i = 0; i < index.rows; i++) {
        int64_t e = load_index(&index, i);
        if (e >= 0) ++*number_at(&count, (i / of_run * k + i % k) * experts + e);
    }
    return GM_OK;
}

static gm_status cpu_experts_before(gm_device *dev, const gm_call *call)
{
    const int64_t *shape = call->in[0]->shape;
    cpu_rows       count = cpu_scalars_of(call->in[0]), order = cpu_scalars_of(call->in[1]);
    cpu_rows       before = cpu_scalars_of(call->out[0]);
    gm_block      *block;
    int64_t       *sum;
    GM_TRY(check_numbers(call, &order, "order", shape[0], "runs"));
    GM_TRY(zeros(dev, shape[2], &sum, &block));
    for (int64_t j = 0; j < shape[1]; j++)
        for (int64_t i = 0; i < shape[0]; i++) {
            int64_t at = (*number_at(&order, i) * shape[1] + j) * shape[2];
            for (int64_t e = 0; e < shape[2] && at >= 0; e++) {
                *number_at(&before, at + e) = sum[e];
                sum[e] += *number_at(&count, at + e);
            }
        }
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

static inline void store_index(const cpu_rows *t, int64_t i, int64_t v)
{
    if (t->size == 4) *(int32_t *)cpu_row_at(t, i) = (int32_t)v;
    else *number_at(t, i) = v;
}

static gm_status cpu_experts_limit(gm_device *dev, const gm_call *call)
{
    const int64_t *shape = call->in[0]->shape;
    int64_t        n = shape[1], k = shape[2], experts = call->attrs->experts, *taken;
    cpu_rows       index, kept = cpu_scalars_of(call->out[0]), before = {0};
    gm_block      *block;
    GM_TRY(index_of(call, &index));
    GM_TRY(zeros(dev, experts, &taken, &block));
    if (call->in[1]) before = cpu_scalars_of(call->in[1]);
    for (int64_t j = 0; j < k; j++)
        for (int64_t r = 0; r < shape[0]; r++) {
            for (int64_t e = 0; before.data && e < experts; e++)
                taken[e] = *number_at(&before, (r * k + j) * experts + e);
            for (int64_t at = r * n * k + j; at < (r + 1) * n * k; at += k) {
                int64_t e = load_index(&index, at);
                store_index(&kept, at, e >= 0 && taken[e]++ < call->attrs->capacity ? e : -1);
            }
        }
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

/* next[e]: the first row of expert e; count and bounds are filled. GM_EINVAL: more choices than it has rows. */
static gm_status lay_out_rows(const gm_attrs *at, const cpu_rows *index, const cpu_rows *count, const cpu_rows *bounds,
                              int64_t *next)
{
    int64_t sum = 0;
    for (int64_t c = 0; c < index->rows; c++) {
        int64_t e = load_index(index, c);
        if (e >= 0 && ++next[e] > at->capacity && at->capacity)
            return GM_FAIL(GM_EINVAL,
                           "experts_order: choice %" PRId64 " (from 0) is one too many for expert %" PRId64
                           ", which has %" PRId64 " rows",
                           c, e, at->capacity);
    }
    *number_at(bounds, 0) = at->first * at->capacity;
    for (int64_t i = 0; i < at->experts; i++) {
        int64_t e = i < at->ahead ? at->first + i : i - at->ahead < at->first ? i - at->ahead : i, n = next[e];
        *number_at(count, e) = n;
        next[e] = at->capacity ? e * at->capacity : sum;
        sum += n;
        if (i < at->ahead) *number_at(bounds, i + 1) = at->capacity ? next[e] + at->capacity : sum;
    }
    return GM_OK;
}

static gm_status cpu_experts_order(gm_device *dev, const gm_call *call)
{
    gm_status st;
    gm_block *block;
    int64_t  *next;
    cpu_rows  index, choice = cpu_scalars_of(call->out[0]), row = cpu_scalars_of(call->out[1]);
    cpu_rows  count = cpu_scalars_of(call->out[2]), bounds = cpu_scalars_of(call->out[3]);
    GM_TRY(index_of(call, &index));
    GM_TRY(zeros(dev, call->attrs->experts, &next, &block));
    GM_TRY_OR(lay_out_rows(call->attrs, &index, &count, &bounds, next), st, done);
    for (int64_t i = 0; i < choice.rows; i++) *number_at(&choice, i) = -1;
    for (int64_t c = 0; c < index.rows; c++) {
        int64_t e = load_index(&index, c);
        *number_at(&row, c) = e < 0 ? -1 : next[e];
        if (e >= 0) *number_at(&choice, next[e]++) = c;
    }
done:
    gm_pool_release(dev->pool, block);
    return st;
}

/* ---- rows ---- */

typedef struct travel_job {
    cpu_rows    from, way, to; /* way: choices or rows, one number each */
    cpu_rows    g;             /* of combine_grad */
    const char *weight;        /* NULL: 1 */
    int64_t     line, step, k; /* bytes from element to element of weight (tokens, k) */
    bool        accumulate;
} travel_job;

#define AS 32
#include "as.h"
#include "experts_t.h"
#define AS 64
#include "as.h"
#include "experts_t.h"
#define AS 0
#include "as.h"

static void weigh_by(travel_job *j, const gm_tensor *weight)
{
    if (!weight) return;
    j->weight = gm_tensor_data(weight);
    j->line = weight->stride[0] * (int64_t)gm_dtype_size(weight->dtype);
    j->step = weight->stride[1] * (int64_t)gm_dtype_size(weight->dtype);
}

static gm_status gather_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = call->in[0];
    travel_job j = {.from = cpu_rows_of(x),
                    .way = cpu_scalars_of(call->in[1]),
                    .to = cpu_rows_of(call->out[0]),
                    .k = call->attrs->k};
    weigh_by(&j, call->in[2]);
    GM_TRY(check_numbers(call, &j.way, "choice", x->shape[0] * j.k, "choices"));
    cpu_parallel(dev, j.to.width ? j.to.rows : 0, 2 * j.to.width * j.to.size, BY_TYPE(x, gather_part), &j);
    return GM_OK;
}

static gm_status combine_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor *y = call->in[0], *row = call->in[1];
    travel_job j = {.from = cpu_rows_of(y),
                    .way = cpu_scalars_of(row),
                    .to = cpu_rows_of(call->out[0]),
                    .k = row->shape[1],
                    .accumulate = call->attrs->accumulate};
    weigh_by(&j, call->in[2]);
    GM_TRY(check_numbers(call, &j.way, "row", y->shape[0], "rows"));
    cpu_parallel(dev, j.to.width ? j.to.rows : 0, (j.k + 1) * j.to.width * j.to.size, BY_TYPE(y, combine_part), &j);
    return GM_OK;
}

static gm_status combine_grad_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor *y = call->in[0], *row = call->in[1];
    travel_job j = {.from = cpu_rows_of(y),
                    .way = cpu_scalars_of(row),
                    .to = cpu_scalars_of(call->out[0]),
                    .g = cpu_rows_of(call->in[2]),
                    .k = row->shape[1]};
    GM_TRY(check_numbers(call, &j.way, "row", y->shape[0], "rows"));
    cpu_parallel(dev, j.way.rows, 2 * j.from.width * j.from.size, BY_TYPE(y, combine_grad_part), &j);
    return GM_OK;
}

static gm_status cpu_experts_gather(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, gather_rows);
}

static gm_status cpu_experts_combine(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, combine_rows);
}

static gm_status cpu_experts_combine_grad(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, combine_grad_rows);
}
