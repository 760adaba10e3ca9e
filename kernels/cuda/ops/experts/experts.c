/* experts.c - launches the ops of mixtures of experts (kernels: experts.cu). */
#include "../../runtime/cuda.h"
#include "experts_args.h"

/* A queue being sorted: the keys of its experts, and what is read off them. */
typedef struct queue {
    gm_sort_args         sort;
    gm_expert_lists_args lists;
    gm_block            *block;
} queue;

/* Sorts the elements of index, as they are numbered, by expert, in so many queues of equal length. list() ends it. */
static gm_status sort_by_expert(gm_device *dev, const gm_call *call, const gm_tensor *index, int64_t queues, queue *q)
{
    gm_status           st;
    const gm_attrs     *at = call->attrs;
    int64_t             n = gm_tensor_numel(index), keys = queues * at->experts, span = queues > 1 ? n / queues : 0;
    gm_expert_keys_args k = {.index = gm_rows_of(index, -1),
                             .n = n,
                             .span = span,
                             .none = keys,
                             .experts = at->experts,
                             .first = at->first,
                             .ahead = at->ahead,
                             .narrow = index->dtype == GM_I32,
                             .op = (int32_t)call->op};
    q->block = NULL;
    q->sort = (gm_sort_args){.n = n, .rows = keys};
    GM_TRY(gm_cuda_refusal(dev, &k.refusal));
    GM_TRY(gm_sort_begin(dev, gm_op_name(call->op), &q->sort, &q->block));
    k.key = q->sort.key;
    k.position = q->sort.position;
    GM_TRY_OR(GM_LAUNCH(dev, "gm_expert_keys", gm_cuda_over(dev, n, 1, 256), k), st, fail);
    GM_TRY_OR(gm_sort(dev, &q->sort), st, fail);
    q->lists = (gm_expert_lists_args){.refusal = k.refusal,
                                      .key = q->sort.key,
                                      .position = q->sort.position,
                                      .start = q->sort.start,
                                      .n = n,
                                      .keys = keys,
                                      .experts = at->experts,
                                      .first = at->first,
                                      .ahead = at->ahead,
                                      .capacity = at->capacity,
                                      .narrow = k.narrow,
                                      .op = k.op};
    return GM_OK;
fail:
    gm_pool_release(dev->pool, q->block);
    return st;
}

/* One launch over n elements of what is read off; ends the queue. */
static gm_status list(gm_device *dev, queue *q, const char *kernel, int64_t n)
{
    gm_status st = GM_LAUNCH(dev, kernel, gm_cuda_over(dev, n, 1, 256), q->lists);
    gm_pool_release(dev->pool, q->block);
    return st;
}

/* t (runs, n, k) in another order of dimensions. */
static gm_tensor turned(const gm_tensor *t, int a, int b, int c)
{
    gm_tensor y = *t;
    int       order[3] = {a, b, c};
    for (int d = 0; d < 3; d++) {
        y.shape[d] = t->shape[order[d]];
        y.stride[d] = t->stride[order[d]];
    }
    return y;
}

gm_status cuda_experts_count(gm_device *dev, const gm_call *call)
{
    gm_tensor index = turned(call->in[0], 0, 2, 1); /* of a run, each kind on its own */
    queue     q;
    GM_TRY(sort_by_expert(dev, call, &index, index.shape[0] * index.shape[1], &q));
    q.lists.count = gm_rows_of(call->out[0], -1);
    return list(dev, &q, "gm_expert_count", q.lists.keys);
}

gm_status cuda_experts_before(gm_device *dev, const gm_call *call)
{
    const gm_tensor      *count = call->in[0];
    gm_expert_before_args a = {.count = gm_rows_of(count, -1),
                               .order = gm_rows_of(call->in[1], -1),
                               .before = gm_rows_of(call->out[0], -1),
                               .runs = count->shape[0],
                               .k = count->shape[1],
                               .experts = count->shape[2],
                               .op = (int32_t)call->op};
    GM_TRY(gm_cuda_refusal(dev, &a.refusal));
    return GM_LAUNCH(dev, "gm_expert_before",
                     ((gm_cuda_grid){.x = a.runs ? a.k * a.experts : 0,
                                     .block = GM_EXPERTS_THREADS,
                                     .shared = 2 * GM_EXPERTS_THREADS * sizeof(int64_t)}),
                     a);
}

/* With `before` each run and kind has a queue, else there is one, of all runs kind by kind. */
gm_status cuda_experts_limit(gm_device *dev, const gm_call *call)
{
    const gm_tensor *index = call->in[0], *before = call->in[1];
    int              run = before ? 0 : 1;
    gm_tensor        in = turned(index, run ? 2 : 0, run ? 0 : 2, 1);
    gm_tensor        kept = turned(call->out[0], run ? 2 : 0, run ? 0 : 2, 1);
    queue            q;
    if (gm_tensor_numel(index) == 0) return GM_OK;
    GM_TRY(sort_by_expert(dev, call, &in, before ? in.shape[0] * in.shape[1] : 1, &q));
    q.lists.before = before ? gm_rows_of(before, -1) : (gm_row_view){0};
    q.lists.kept = gm_rows_of(&kept, -1);
    return list(dev, &q, "gm_expert_limit", q.lists.n);
}

gm_status cuda_experts_order(gm_device *dev, const gm_call *call)
{
    queue q;
    GM_TRY(sort_by_expert(dev, call, call->in[0], 1, &q));
    q.lists.choice = gm_rows_of(call->out[0], -1);
    q.lists.row = gm_rows_of(call->out[1], -1);
    q.lists.count = gm_rows_of(call->out[2], -1);
    q.lists.bounds = gm_rows_of(call->out[3], -1);
    q.lists.rows = call->out[0]->shape[0];
    int64_t most = q.lists.n > q.lists.rows ? q.lists.n : q.lists.rows;
    return list(dev, &q, "gm_expert_order", most > q.lists.experts ? most : q.lists.experts + 1);
}

/* ---- rows ---- */

static gm_status move(gm_device *dev, const gm_call *call, const char *kernel, gm_expert_rows_args *a)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *from = call->in[0];
    a->from = gm_rows_last(from);
    a->way = gm_rows_of(call->in[1], -1);
    a->width = from->shape[1];
    a->op = (int32_t)call->op;
    GM_TRY(gm_cuda_refusal(dev, &a->refusal));
    gm_cuda_grid grid = gm_rows_grid(a->n, a->width, from->dtype, GM_EXPERTS_PACKS, &a->team);
    return GM_LAUNCH(dev, gm_cuda_name(name, kernel, from->dtype), grid, *a);
}

static gm_row_view weights(const gm_tensor *weight) { return weight ? gm_rows_of(weight, -1) : (gm_row_view){0}; }

gm_status cuda_experts_gather(gm_device *dev, const gm_call *call)
{
    gm_expert_rows_args a = {.weight = weights(call->in[2]),
                             .to = gm_rows_last(call->out[0]),
                             .n = call->in[1]->shape[0],
                             .k = call->attrs->k,
                             .limit = call->in[0]->shape[0] * call->attrs->k};
    return move(dev, call, "gm_expert_gather", &a);
}

gm_status cuda_experts_combine(gm_device *dev, const gm_call *call)
{
    const gm_tensor    *row = call->in[1];
    gm_expert_rows_args a = {.weight = weights(call->in[2]),
                             .to = gm_rows_last(call->out[0]),
                             .n = row->shape[0],
                             .k = row->shape[1],
                             .limit = call->in[0]->shape[0],
                             .accumulate = call->attrs->accumulate};
    return move(dev, call, "gm_expert_combine", &a);
}

gm_status cuda_experts_combine_grad(gm_device *dev, const gm_call *call)
{
    const gm_tensor    *row = call->in[1];
    gm_expert_rows_args a = {.g = gm_rows_last(call->in[2]),
                             .to = gm_rows_of(call->out[0], -1),
                             .n = gm_tensor_numel(row),
                             .k = row->shape[1],
                             .limit = call->in[0]->shape[0]};
    return move(dev, call, "gm_expert_combine_grad", &a);
}
