/* infer_pages.c - inference rules (infer.h) of the ops on keys and values that are kept in pages. */
#include <inttypes.h>

#include "infer.h"
#include "pages.h"

static gm_status expect_rows(const gm_call *call, const char *name, const gm_tensor *t)
{
    if (t->shape[3] <= 1 || t->stride[3] == 1) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: the last dimension of %s %s has stride %" PRId64 ", should be 1: copy it first",
                   gm_op_name(call->op), name, GM_SHOW(t), t->stride[3]);
}

/* x (b, s, h, d), a pool (pages, hk, page, d), index (b, n), count (b). */
static gm_status expect_pages(const gm_call *call, const gm_tensor *x, const gm_tensor *pool, const gm_tensor *index,
                              const gm_tensor *count)
{
    const char *op = gm_op_name(call->op);
    if (x->ndim != 4 || pool->ndim != 4 || x->shape[3] != pool->shape[3])
        return GM_FAIL(GM_ESHAPE,
                       "%s: x %s, pool %s; should be (batch, positions, heads, size), (pages, heads, page, size)", op,
                       GM_SHOW(x), GM_SHOW(pool));
    if (pool->shape[2] < 1) return GM_FAIL(GM_ESHAPE, "%s: the pages of %s have no places", op, GM_SHOW(pool));
    if (index->ndim != 2 || index->shape[0] != x->shape[0])
        return GM_FAIL(GM_ESHAPE, "%s: index %s, should be (%" PRId64 ", pages of a row)", op, GM_SHOW(index),
                       x->shape[0]);
    GM_TRY(gm_expect_shape(call, "count", count, 1, x->shape));
    GM_TRY(expect_rows(call, "x", x));
    return expect_rows(call, "the pool", pool);
}

gm_status gm_infer_pages_write(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *pool = call->out[0], *x = call->in[0];
    GM_TRY(expect_pages(call, x, pool, call->in[1], call->in[2]));
    if (x->shape[2] != pool->shape[1])
        return GM_FAIL(GM_ESHAPE, "pages_write: x %s has other heads than the pool %s", GM_SHOW(x), GM_SHOW(pool));
    spec[0] = gm_spec_of(x->dtype, 4, pool->shape);
    return GM_OK;
}

gm_status gm_infer_attention_paged(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *q = call->in[0], *k = call->in[1];
    GM_TRY(expect_pages(call, q, k, call->in[3], call->in[4]));
    GM_TRY(gm_expect_like(call, "v", call->in[2], k));
    GM_TRY(expect_rows(call, "v", call->in[2]));
    int64_t h = q->shape[2], hk = k->shape[1];
    if (hk == 0 ? h != 0 : h % hk != 0)
        return GM_FAIL(GM_ESHAPE, "attention_paged: %" PRId64 " query heads are no multiple of %" PRId64 " key heads",
                       h, hk);
    const gm_attrs *at = call->attrs;
    if (!(at->scale >= 0)) return GM_FAIL(GM_EINVAL, "attention_paged: scale is %g, should not be negative", at->scale);
    if (at->window < 0)
        return GM_FAIL(GM_EINVAL, "attention_paged: window is %" PRId64 ", should be a number of keys, or 0 for all",
                       at->window);
    if (!(at->softcap >= 0))
        return GM_FAIL(GM_EINVAL, "attention_paged: softcap is %g, should not be negative", at->softcap);
    spec[0] = gm_spec_like(q);
    return GM_OK;
}

gm_status gm_pages_check(const gm_call *call)
{
    const gm_pages p = gm_pages_of(call);
    for (int64_t r = 0; r < p.index->shape[0]; r++) {
        int64_t count = gm_pages_count(&p, r), wanted = (count + p.page - 1) / p.page;
        if (count < 0 || wanted > p.index->shape[1])
            return GM_FAIL(GM_EINVAL,
                           "%s: row %" PRId64 " keeps %" PRId64 " positions, but has %" PRId64 " pages of %" PRId64,
                           gm_op_name(call->op), r + 1, count, p.index->shape[1], p.page);
        for (int64_t n = 0; n < wanted; n++) {
            int64_t at = gm_pages_index(&p, r, n);
            if (at < 0 || at >= p.pages)
                return GM_FAIL(GM_EINVAL, "%s: row %" PRId64 " names page %" PRId64 " of a pool of %" PRId64,
                               gm_op_name(call->op), r + 1, at, p.pages);
        }
    }
    return GM_OK;
}
