/* sparse_sum.c - see sparse_sum.h. */
#include "sparse_sum.h"

#include "../autograd/layout_rules/rules.h"
#include "../autograd/sparse.h"
#include "../comm/comm.h"

/* *longest: of the lists of all ranks of the group. */
static gm_status agree(gm_work *w, gm_group *g, const gm_value *v, int64_t *longest)
{
    double     length = v->param->row ? (double)v->param->row->shape[0] : -1;
    gm_tensor *t;
    *longest = (int64_t)length;
    if (gm_rank_is_apart(w->rank) || !w->device->backend->has_data) {
        if (length >= 0) return GM_OK;
        return GM_FAIL(GM_EINVAL,
                       "a table with sparse = true has no gradient on this rank, but ranks sum its gradients");
    }
    t = gm_work_full(w, GM_F64, 1, (int64_t[]){1}, length);
    GM_STEP(w, gm_comm_all_reduce(w->rank->comm, g, t, GM_MAX, NULL));
    GM_STEP(w, gm_host_load(t, 0, &length));
    *longest = (int64_t)length;
    return w->st;
}

/* This rank's list at this length, in *row and *sum; only: whether it counts. */
static void list_of(gm_work *w, const gm_value *v, int64_t length, bool counts, gm_tensor **row, gm_tensor **sum)
{
    gm_tensor *have, *sums;
    int64_t    width = v->local->shape[1];
    bool       there = gm_value_sparse_grad(v, &have, &sums);
    if (there && counts && have->shape[0] == length) {
        *row = have;
        *sum = sums;
        return;
    }
    *row = gm_work_full(w, GM_I64, 1, &length, -1);
    *sum = gm_work_full(w, v->local->dtype, 2, (int64_t[]){length, width}, 0);
    if (!there || !counts || w->st != GM_OK) return;
    gm_work_copy(w, have, gm_work_narrow(w, *row, 0, 0, have->shape[0]));
    gm_work_copy(w, sums, gm_work_narrow(w, *sum, 0, 0, have->shape[0]));
}

/* The lists of all ranks of the group, one behind the other, become v's. */
static void gather(gm_work *w, gm_group *g, gm_value *v, int64_t length, bool counts)
{
    gm_tensor *row, *sum;
    int64_t    all = length * gm_group_size(g), width = v->local->shape[1];
    list_of(w, v, length, counts, &row, &sum);
    gm_tensor *rows = gm_work_new(w, GM_I64, 1, &all);
    gm_tensor *sums = gm_work_new(w, v->local->dtype, 2, (int64_t[]){all, width});
    w->sent |= w->st == GM_OK;
    GM_STEP(w, gm_comm_all_gather(w->rank->comm, g, row, 0, rows, NULL));
    GM_STEP(w, gm_comm_all_gather(w->rank->comm, g, sum, 0, sums, NULL));
    if (w->st != GM_OK) return;
    gm_sparse_drop(v);
    gm_sparse_add(w, v, rows, sums, NULL, -1);
    v->param->grad_partial = 0;
}

static gm_status sum_one(gm_rank *r, gm_value *v)
{
    gm_comm  *comm;
    gm_group *g;
    gm_work   w;
    int64_t   longest;
    uint32_t  axes = gm_mesh_batch_axes(&r->mesh) & ~gm_layout_cut_axes(&v->layout);
    bool      counts;
    if (v->param->row) axes |= v->param->grad_partial;
    counts = gm_rule_counts(r, axes & ~v->param->grad_partial);
    GM_TRY(gm_rank_comm(r, &comm));
    GM_TRY(gm_comm_group(comm, axes, &g));
    if (gm_group_size(g) == 1) return GM_OK;
    gm_work_begin(&w, r, "sum of sparse gradients");
    if (agree(&w, g, v, &longest) == GM_OK && longest >= 0) gather(&w, g, v, longest, counts);
    return gm_work_end(&w);
}

gm_status gm_sparse_sum(gm_rank *r, gm_value *const *tables, int n)
{
    for (int i = 0; i < n; i++)
        if (tables[i]->param && tables[i]->param->sparse) GM_TRY(sum_one(r, tables[i]));
    return GM_OK;
}
