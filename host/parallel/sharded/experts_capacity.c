/* experts_capacity.c - how many choices each expert has, and which of them it takes; see experts.h.
 *
 * Tokens that lie one after the other in the whole tensor and on one rank are a run: all of a block where only the
 * first dimension is cut, else one a leading line. Ranks tell each other how many choices of each kind each run has;
 * what comes before a run, and so the place of each of its tokens, follows. All of it is ops on the device: where runs
 * lie is known from layouts, so the host reads nothing. */
#include <inttypes.h>
#include <stdlib.h>

#include "../../../kernels/philox.h"
#include "../../comm/comm.h"
#include "../../autograd/layout_rules/family.h"
#include "experts.h"
#include "experts_plan.h"
#include "rows.h"

typedef struct run {
    int64_t key;   /* number of its first token in the whole tensor; INT64_MAX: it is padding */
    int64_t place; /* among the gathered counts */
} run;

typedef struct queue {
    gm_value *index;
    int       last_cut;                 /* leading dimension; 0 where none is cut */
    int64_t   local[GM_MAX_DIMS], runs; /* of every block */
    gm_group *group;
    int       members;
} queue;

static void block_of(const gm_rank *r, const gm_value *v, const int *coordinate, gm_box *box, int64_t *local,
                     int64_t *logical)
{
    gm_layout_block(&r->mesh, &v->layout, coordinate, v->ndim, v->shape, box, local, logical);
}

static gm_status check(const gm_value *index, int64_t experts, const char *op)
{
    char text[256];
    int  last = index->ndim - 1;
    if (index->ndim < 2 || index->local->dtype != GM_I64 || index->layout.partial || index->layout.n_cuts[last])
        return GM_FAIL(GM_ESHAPE, "%s: index should be i64 (..., choices), its last dimension whole; it is %s", op,
                       gm_value_describe((gm_value *)index, text, sizeof text));
    return experts > 0 ? GM_OK : GM_FAIL(GM_EINVAL, "%s: there are %" PRId64 " experts", op, experts);
}

/* Work on index, and it as (runs, tokens, k) with -1 in the padding. */
static gm_tensor *begin(gm_work *w, gm_rank *r, gm_value *index, int64_t runs, const char *name)
{
    gm_side side = gm_side_of(index);
    gm_work_begin(w, r, name);
    gm_tensor *all = gm_experts_index(w, r, &side, index->local);
    if (!all || w->st != GM_OK) return NULL;
    return gm_work_shaped(w, all, 3, (int64_t[]){runs, all->shape[0] / runs, all->shape[1]});
}

gm_status gm_experts_counts(gm_rank *r, gm_value *index, int64_t experts, gm_dtype dtype, gm_value **counts)
{
    gm_work   w;
    gm_layout layout = gm_layout_replicated();
    gm_attrs  a = gm_attrs_default();
    GM_TRY(check(index, experts, "experts_counts"));
    a.experts = experts;
    gm_tensor *choice = begin(&w, r, index, 1, "experts_counts"), *all, *block;
    if (w.st == GM_OK) choice = gm_work_shaped(&w, choice, 3, (int64_t[]){1, gm_tensor_numel(choice), 1});
    gm_work_run_all(&w, GM_OP_experts_count, 1, &choice, &a, 1, &all);
    block = gm_work_keep(&w, gm_work_shaped(&w, gm_work_cast(&w, all, dtype), 1, &experts));
    GM_TRY(gm_work_end(&w));
    layout.partial = gm_layout_cut_axes(&index->layout);
    return gm_value_take_block(r, block, &layout, 1, &experts, counts);
}

gm_status gm_experts_noise(gm_rank *r, gm_value *x, gm_op op, const gm_attrs *attrs, gm_value **y)
{
    gm_attrs  a = *attrs;
    gm_value *v = NULL;
    if (x->layout.partial) return GM_FAIL(GM_ESHAPE, "experts_noise: x is still a sum over ranks");
    GM_TRY(gm_rank_next_stream(r, GM_PURPOSE_NOISE, &a.stream));
    GM_TRY(gm_value_new_block(r, "experts_noise", x->local->dtype, &x->layout, x->ndim, x->shape, &v));
    a.box = gm_rank_batch_box(r, x->ndim, x->shape);
    gm_status st = gm_rule_box(r, &a, &x->layout, x->ndim, x->shape);
    if (st == GM_OK) st = gm_draw_inside(v, op, &a);
    if (st == GM_OK) *y = v;
    else gm_value_release(v);
    return st;
}

/* ---- capacity ---- */

static queue queue_of(gm_rank *r, gm_value *index)
{
    queue   q = {.index = index, .members = 1, .runs = 1};
    int64_t logical[GM_MAX_DIMS];
    gm_box  box;
    int     lead = index->ndim - 1;
    block_of(r, index, r->coordinate, &box, q.local, logical);
    for (int d = 0; d < lead; d++)
        if (index->layout.n_cuts[d]) q.last_cut = d;
    for (int d = 0; d < q.last_cut; d++) q.runs *= q.local[d];
    if (!q.runs) q.runs = 1; /* of nothing */
    return q;
}

static int by_key(const void *a, const void *b)
{
    int64_t x = ((const run *)a)->key, y = ((const run *)b)->key;
    return (x > y) - (x < y);
}

/* Number, in the whole tensor, of the first token of run i of a block. */
static int64_t key_of(const queue *q, const gm_box *box, const int64_t *logical, int64_t i)
{
    int64_t at[GM_MAX_DIMS] = {0}, key = 0;
    if (logical[q->last_cut] == 0) return INT64_MAX;
    for (int d = q->last_cut - 1; d >= 0; d--) {
        if (q->local[d] == 0) return INT64_MAX;
        at[d] = i % q->local[d];
        if (at[d] >= logical[d]) return INT64_MAX;
        i /= q->local[d];
    }
    for (int d = 0; d < q->index->ndim - 1; d++) key = key * q->index->shape[d] + box->offset[d] + at[d];
    return key;
}

/* list[members * runs]: the runs of all members in the order of the whole tensor, padding last. */
static gm_status put_in_order(gm_rank *r, const queue *q, int64_t *list)
{
    int64_t n = 0;
    run    *order = malloc((size_t)(q->members * q->runs + 1) * sizeof *order);
    if (!order) return GM_FAIL(GM_ENOMEM, "experts_capacity: no memory for %" PRId64 " runs", q->runs);
    for (int m = 0; m < q->members; m++) {
        gm_box  box;
        int     coordinate[GM_MAX_AXES];
        int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
        gm_mesh_coordinates(&r->mesh, gm_group_member(q->group, m), coordinate);
        block_of(r, q->index, coordinate, &box, local, logical);
        for (int64_t i = 0; i < q->runs; i++) order[n++] = (run){key_of(q, &box, logical, i), m * q->runs + i};
    }
    qsort(order, (size_t)n, sizeof *order, by_key);
    for (int64_t i = 0; i < n; i++) list[i] = order[i].place;
    free(order);
    return GM_OK;
}

/* The order of runs on the device. */
static gm_tensor *order_of(gm_work *w, gm_rank *r, const queue *q)
{
    int64_t    n = q->members * q->runs;
    gm_tensor *order = gm_work_new(w, GM_I64, 1, &n);
    int64_t   *list = malloc((size_t)(n + 1) * sizeof *list);
    if (!list) GM_STEP(w, GM_FAIL(GM_ENOMEM, "experts_capacity: no memory for %" PRId64 " runs", n));
    GM_STEP(w, put_in_order(r, q, list));
    GM_STEP(w, gm_device_write(w->device, gm_tensor_data(order), list, (size_t)n * sizeof *list));
    free(list);
    return order;
}

/* What stands before each of this rank's runs in the queues of all ranks, (runs, k, experts). Collective. */
static gm_tensor *before_runs(gm_work *w, gm_rank *r, queue *q, gm_tensor *choice, const gm_attrs *a)
{
    gm_tensor *own, *before, *all;
    q->group = gm_rows_group(w, gm_layout_cut_axes(&q->index->layout));
    gm_work_run_all(w, GM_OP_experts_count, 1, &choice, a, 1, &own);
    if (w->st != GM_OK) return NULL;
    q->members = gm_group_size(q->group);
    all = gm_work_new(w, GM_I64, 3, (int64_t[]){q->members * q->runs, own->shape[1], own->shape[2]});
    gm_rows_all_gather(w, q->group, own, 0, all, NULL);
    gm_work_run_all(w, GM_OP_experts_before, 2, (gm_tensor *[]){all, order_of(w, r, q)}, a, 1, &before);
    return gm_work_narrow(w, before, 0, gm_group_rank(q->group) * q->runs, q->runs);
}

gm_status gm_experts_capacity(gm_rank *r, gm_value *index, int64_t experts, int64_t capacity, gm_value **kept)
{
    gm_work   w;
    gm_value *v = NULL;
    gm_attrs  a = gm_attrs_default();
    GM_TRY(check(index, experts, "experts_capacity"));
    if (capacity < 0) return GM_FAIL(GM_EINVAL, "experts_capacity: a capacity of %" PRId64, capacity);
    a.experts = experts;
    a.capacity = capacity;
    queue q = queue_of(r, index);
    GM_TRY(gm_value_new_block(r, "experts_capacity", GM_I64, &index->layout, index->ndim, index->shape, &v));
    gm_tensor *choice = begin(&w, r, index, q.runs, "experts_capacity"), *before = NULL, *to = NULL;
    if (gm_experts_shared(r, index)) before = before_runs(&w, r, &q, choice, &a);
    if (w.st == GM_OK) to = gm_work_shaped(&w, v->local, 3, choice->shape);
    gm_work_into(&w, GM_OP_experts_limit, 2, (gm_tensor *[]){choice, before}, &a, 1, &to);
    gm_status st = gm_work_end(&w);
    if (st == GM_OK) *kept = v;
    else gm_value_release(v);
    return st;
}
