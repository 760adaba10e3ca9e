/* trial.c - see trial.h. */
#include "trial.h"

#include "../runtime/profile.h"
#include "../runtime/transfer.h"

#define TURNS 3

/* ---- memory of their own ---- */

/* Elements from the first to the last of a matrix, or of a batch of them, at these steps. */
static size_t extent_of(const gm_gemm_args *a, int64_t row, int64_t column, bool is_pre)
{
    int64_t last = (a->m - 1) * row + (a->n - 1) * column;
    for (int d = 0; d < a->ndim; d++) last += (a->dim[d].n - 1) * (is_pre ? a->dim[d].pre : a->dim[d].y);
    return (size_t)last + 1;
}

static size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

/* Gives t the product with other results. The caller frees *block and t->db, also on failure. */
static gm_status set_aside(gm_device *dev, const gm_product *p, gm_product *t, gm_block **block)
{
    const gm_gemm_args *a = &p->args;
    gm_dtype            type_of_pre = p->dtype == GM_U8 ? p->to : p->dtype;
    size_t              y = rounded(extent_of(a, a->y_m, a->y_n, false) * gm_dtype_size(p->to));
    bool                writes_pre = a->pre && !a->slope;
    size_t pre = writes_pre ? rounded(extent_of(a, a->pre_m, a->pre_n, true) * gm_dtype_size(type_of_pre)) : 0;
    void  *room;
    *t = *p;
    t->db = NULL;
    GM_TRY(gm_cuda_scratch(dev, y + pre, &room, block));
    t->args.y = room;
    if (writes_pre) t->args.pre = (char *)room + y;
    return p->db ? gm_tensor_new(dev, p->db->dtype, 1, p->db->shape, &t->db) : GM_OK;
}

/* ---- time ---- */

static gm_status queue(gm_device *dev, const gm_product *p, const gm_trial_result *r)
{
    bool served;
    GM_TRY(r->way->run(dev, p, &r->variant, &served));
    return served ? GM_OK : GM_FAIL(GM_EIO, "%s offers a product that it cannot make", r->way->name);
}

static gm_status time_one(gm_device *dev, const gm_product *p, gm_trial_result *r, void **stamps)
{
    double seconds;
    GM_TRY(queue(dev, p, r));
    GM_TRY(gm_cuda_stamp(dev, &stamps[0]));
    for (int turn = 0; turn < TURNS; turn++) GM_TRY(queue(dev, p, r));
    GM_TRY(gm_cuda_stamp(dev, &stamps[1]));
    GM_TRY(gm_cuda_elapsed(dev, stamps[0], stamps[1], &seconds));
    r->seconds = seconds / TURNS;
    return GM_OK;
}

static gm_status time_all(gm_device *dev, const gm_product *p, gm_trial_results *all)
{
    void     *stamps[2] = {NULL, NULL};
    gm_status st = GM_OK;
    for (int i = 0; i < all->n && st == GM_OK; i++) {
        st = time_one(dev, p, &all->of[i], stamps);
        if (all->of[i].seconds < all->of[all->best].seconds) all->best = i;
    }
    gm_cuda_unmark(dev, stamps[0]);
    gm_cuda_unmark(dev, stamps[1]);
    return st;
}

/* ---- all ways ---- */

static gm_status collect(gm_device *dev, const gm_product *p, gm_trial_results *out)
{
    gm_variant variants[GM_CHOICE_TRIED];
    *out = (gm_trial_results){0};
    for (int w = 0; gm_ways[w]; w++) {
        int n = 0;
        GM_TRY(gm_ways[w]->offers(dev, p, GM_CHOICE_TRIED - out->n, variants, &n));
        for (int i = 0; i < n; i++) out->of[out->n++] = (gm_trial_result){gm_ways[w], variants[i], 0};
    }
    return GM_OK;
}

gm_status gm_trial_run(gm_device *dev, const gm_product *p, gm_trial_results *out)
{
    gm_product trial;
    gm_block  *block = NULL;
    GM_TRY(collect(dev, p, out));
    if (out->n < 2) {
        out->n = 0;
        return GM_OK;
    }
    gm_status st = set_aside(dev, p, &trial, &block);
    if (st == GM_OK) st = time_all(dev, &trial, out);
    gm_tensor_release(trial.db);
    if (block) gm_pool_release(dev->pool, block);
    return st;
}
