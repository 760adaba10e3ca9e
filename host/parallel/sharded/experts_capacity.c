/* experts_capacity.c - how many choices each expert has, and which of them it takes; see experts.h.
 *
 * Tokens that lie one after the other in the whole tensor and on one rank are a run: all of a block where only the
 * first dimension is cut, else one a leading line. Ranks tell each other how many choices of each kind each run has;
 * what comes before a run, and so the place of each of its tokens, follows. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../../../kernels/philox.h"
#include "../../comm/comm.h"
#include "../rules/family.h"
#include "experts.h"
#include "experts_plan.h"
#include "rows.h"

typedef struct run {
    int64_t key;   /* number of its first token in the whole tensor */
    int64_t place; /* among the gathered counts */
} run;

typedef struct queue {
    gm_value *index;
    int64_t   experts, k, capacity;
    int       last_cut;                           /* leading dimension; 0 where none is cut */
    int64_t   local[GM_MAX_DIMS], runs, run_size; /* of every block: runs, and tokens of a run */
    gm_group *group;                              /* NULL: nobody shares the tokens */
    int       members;
    int64_t  *counts; /* (members, runs, k, experts) */
    run      *order;  /* those that are inside of the tensor, in its order */
    int64_t   n_order;
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

static gm_status check_choice(int64_t e, int64_t experts)
{
    if (e >= -1 && e < experts) return GM_OK;
    return GM_FAIL(GM_EINVAL, "experts: index %" PRId64 " is none of %" PRId64 " experts, nor -1", e, experts);
}

/* counts (runs, k, experts) += the choices of this block. */
static gm_status count(gm_rank *r, const queue *q, const int64_t *choice, int64_t *counts)
{
    int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS], tokens = q->runs * q->run_size;
    gm_box  box;
    block_of(r, q->index, r->coordinate, &box, local, logical);
    for (int64_t t = 0; t < tokens; t++) {
        if (!gm_experts_inside(q->index->ndim - 1, local, logical, t)) continue;
        for (int64_t j = 0; j < q->k; j++) {
            int64_t e = choice[t * q->k + j];
            GM_TRY(check_choice(e, q->experts));
            if (e >= 0) counts[(t / q->run_size * q->k + j) * q->experts + e]++;
        }
    }
    return GM_OK;
}

static queue queue_of(gm_rank *r, gm_value *index, int64_t experts, int64_t capacity)
{
    queue   q = {.index = index, .experts = experts, .capacity = capacity, .members = 1, .runs = 1, .run_size = 1};
    int64_t logical[GM_MAX_DIMS];
    gm_box  box;
    int     lead = index->ndim - 1;
    block_of(r, index, r->coordinate, &box, q.local, logical);
    q.k = index->shape[lead];
    for (int d = 0; d < lead; d++)
        if (index->layout.n_cuts[d]) q.last_cut = d;
    for (int d = 0; d < lead; d++) *(d < q.last_cut ? &q.runs : &q.run_size) *= q.local[d];
    return q;
}

gm_status gm_experts_counts(gm_rank *r, gm_value *index, int64_t experts, gm_dtype dtype, gm_value **counts)
{
    gm_rows    w;
    gm_layout  layout = gm_layout_replicated();
    gm_tensor *block;
    gm_status  st;
    GM_TRY(gm_device_need_host(index->local->storage->device, "a mixture of experts"));
    GM_TRY(check(index, experts, "experts_counts"));
    queue q = queue_of(r, index, experts, 0);
    gm_rows_begin(&w, r, &index->layout, index->ndim, index->shape, 0);
    gm_rank_place(r, "experts_counts");
    gm_tensor *choice = gm_rows_compact(&w, index->local),
              *all = gm_rows_new(&w, GM_I64, 3, (int64_t[]){q.runs, q.k, experts});
    int64_t *n = all ? gm_tensor_data(all) : NULL;
    block = gm_rows_new(&w, dtype, 1, &experts);
    if (w.st == GM_OK && n) {
        memset(n, 0, (size_t)gm_tensor_numel(all) * sizeof *n);
        gm_rows_check(&w, count(r, &q, gm_tensor_data(choice), n));
        for (int64_t e = 0; w.st == GM_OK && e < experts; e++) {
            int64_t sum = 0;
            for (int64_t i = 0; i < q.runs * q.k; i++) sum += n[i * experts + e];
            gm_store(dtype, gm_tensor_data(block), e, (double)sum);
        }
    }
    block = gm_rows_keep(&w, block);
    st = gm_rows_end(&w);
    if (st != GM_OK) return st;
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

static int by_key(const void *a, const void *b)
{
    int64_t x = ((const run *)a)->key, y = ((const run *)b)->key;
    return (x > y) - (x < y);
}

/* Number, in the whole tensor, of the first token of run i of a block; -1 where that is padding. */
static int64_t key_of(const queue *q, const gm_box *box, const int64_t *logical, int64_t i)
{
    int64_t at[GM_MAX_DIMS] = {0}, key = 0;
    if (logical[q->last_cut] == 0) return -1;
    for (int d = q->last_cut - 1; d >= 0; d--) {
        at[d] = i % q->local[d];
        if (at[d] >= logical[d]) return -1;
        i /= q->local[d];
    }
    for (int d = 0; d < q->index->ndim - 1; d++) key = key * q->index->shape[d] + box->offset[d] + at[d];
    return key;
}

static gm_status put_in_order(gm_rank *r, queue *q)
{
    q->order = malloc((size_t)(q->members * q->runs + 1) * sizeof *q->order);
    if (!q->order) return GM_FAIL(GM_ENOMEM, "experts_capacity: no memory for %" PRId64 " runs", q->runs);
    for (int m = 0; m < q->members; m++) {
        gm_box  box;
        int     coordinate[GM_MAX_AXES];
        int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
        gm_mesh_coordinates(&r->mesh, q->group ? gm_group_member(q->group, m) : r->rank, coordinate);
        block_of(r, q->index, coordinate, &box, local, logical);
        for (int64_t i = 0; i < q->runs; i++) {
            int64_t key = key_of(q, &box, logical, i);
            if (key >= 0) q->order[q->n_order++] = (run){key, m * q->runs + i};
        }
    }
    qsort(q->order, (size_t)q->n_order, sizeof *q->order, by_key);
    return GM_OK;
}

/* counts become, run by run, how many choices come before those of the run. */
static void sum_before(queue *q, int64_t *before)
{
    int64_t row = q->k * q->experts;
    memset(before, 0, (size_t)row * sizeof *before);
    for (int64_t j = 0; j + 1 < q->k; j++) /* all choices of a lower kind */
        for (int64_t e = 0; e < q->experts; e++) {
            int64_t n = before[j * q->experts + e];
            for (int64_t i = 0; i < q->n_order; i++) n += q->counts[q->order[i].place * row + j * q->experts + e];
            before[(j + 1) * q->experts + e] = n;
        }
    for (int64_t i = 0; i < q->n_order; i++)
        for (int64_t c = 0; c < row; c++) {
            int64_t *at = &q->counts[q->order[i].place * row + c], n = *at;
            *at = before[c];
            before[c] += n;
        }
}

/* kept: the choices that find a place. before: of this rank's runs. */
static void choose(gm_rank *r, const queue *q, const int64_t *choice, int64_t *before, int64_t *kept)
{
    int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    gm_box  box;
    block_of(r, q->index, r->coordinate, &box, local, logical);
    for (int64_t t = 0; t < q->runs * q->run_size; t++)
        for (int64_t j = 0; j < q->k; j++) {
            int64_t e = choice[t * q->k + j],
                    *n = e < 0 ? NULL : &before[(t / q->run_size * q->k + j) * q->experts + e];
            bool inside = gm_experts_inside(q->index->ndim - 1, local, logical, t);
            kept[t * q->k + j] = n && inside && (*n)++ < q->capacity ? e : -1;
        }
}

static void gather(gm_rows *w, queue *q, gm_tensor *own, gm_tensor **all)
{
    *all = own;
    uint32_t axes = gm_layout_cut_axes(&q->index->layout);
    if (!axes) return;
    q->group = gm_rows_group(w, axes);
    if (!q->group) return;
    q->members = gm_group_size(q->group);
    *all = gm_rows_new(w, GM_I64, 3, (int64_t[]){q->members * q->runs, q->k, q->experts});
    gm_rows_all_gather(w, q->group, own, 0, *all);
}

gm_status gm_experts_capacity(gm_rank *r, gm_value *index, int64_t experts, int64_t capacity, gm_value **kept)
{
    gm_rows   w;
    gm_value *v = NULL;
    GM_TRY(check(index, experts, "experts_capacity"));
    GM_TRY(gm_device_need_host(index->local->storage->device, "a mixture of experts"));
    if (capacity < 0) return GM_FAIL(GM_EINVAL, "experts_capacity: a capacity of %" PRId64, capacity);
    queue q = queue_of(r, index, experts, capacity);
    gm_rows_begin(&w, r, &index->layout, index->ndim, index->shape, 0);
    GM_TRY(w.st);
    GM_TRY(gm_value_new_block(r, "experts_capacity", GM_I64, &index->layout, index->ndim, index->shape, &v));
    gm_tensor *choice = gm_rows_compact(&w, index->local), *all;
    gm_tensor *own = gm_rows_new(&w, GM_I64, 3, (int64_t[]){q.runs, q.k, experts});
    gm_tensor *before = gm_rows_new(&w, GM_I64, 2, (int64_t[]){q.k, experts});
    bool       has_data = w.st == GM_OK && gm_tensor_data(own);
    if (has_data) {
        memset(gm_tensor_data(own), 0, (size_t)gm_tensor_numel(own) * sizeof(int64_t));
        gm_rows_check(&w, count(r, &q, gm_tensor_data(choice), gm_tensor_data(own)));
    }
    gather(&w, &q, own, &all);
    if (w.st == GM_OK && has_data) gm_rows_check(&w, put_in_order(r, &q));
    if (w.st == GM_OK && has_data) {
        int me = q.group ? gm_group_rank(q.group) : 0;
        q.counts = gm_tensor_data(all);
        sum_before(&q, gm_tensor_data(before));
        choose(r, &q, gm_tensor_data(choice), q.counts + me * q.runs * q.k * experts, gm_tensor_data(v->local));
    }
    free(q.order);
    gm_status st = gm_rows_end(&w);
    if (st == GM_OK) *kept = v;
    else gm_value_release(v);
    return st;
}
