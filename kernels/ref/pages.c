/* pages.c - keys and values in pages (ops.def), one element and one query at a time. */
#include "../pages.h"
#include "loops.h"

/* Element d of a head at position p of row r: its offset in the pool. */
static int64_t place(const gm_pages *g, const gm_tensor *pool, int64_t r, int64_t p, int64_t head, int64_t d)
{
    const int64_t *step = pool->stride;
    return gm_pages_index(g, r, p / g->page) * step[0] + head * step[1] + p % g->page * step[2] + d * step[3];
}

static int64_t at4(const gm_tensor *t, int64_t b, int64_t s, int64_t h, int64_t d)
{
    return b * t->stride[0] + s * t->stride[1] + h * t->stride[2] + d * t->stride[3];
}

gm_status gm_ref_pages_write(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const gm_tensor *x = call->in[0], *pool = call->out[0];
    const int64_t   *shape = x->shape;
    const gm_pages   g = gm_pages_of(call);
    GM_TRY(gm_pages_check(call));
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++) {
        int64_t at[4];
        ref_coordinates(4, shape, i, at);
        int64_t p = gm_pages_count(&g, at[0]) - shape[1] + at[1];
        if (p < 0) continue;
        gm_store(pool->dtype, gm_tensor_data(pool), place(&g, pool, at[0], p, at[2], at[3]), ref_get(x, i));
    }
    return GM_OK;
}

/* What a score becomes. */
static double capped(const gm_call *call, double s)
{
    double cap = call->attrs->softcap;
    return cap > 0 ? cap * tanh(s / cap) : s;
}

/* o of query i of head n of row r, which sees the keys before `seen`, or the last `window` of them; s: room for one
 * number a key. */
static void attend(const gm_call *call, const gm_pages *g, const int64_t *q_at, int64_t seen, double *s)
{
    const gm_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2], *o = call->out[0];
    int64_t          r = q_at[0], i = q_at[1], n = q_at[2], head = n / (q->shape[2] / k->shape[1]), size = q->shape[3];
    double           scale = call->attrs->scale > 0 ? call->attrs->scale : 1 / sqrt((double)size);
    double           largest = -INFINITY, total = 0;
    int64_t          window = call->attrs->window, first = window && seen > window ? seen - window : 0;
    for (int64_t j = first; j < seen; j++) {
        s[j] = 0;
        for (int64_t d = 0; d < size; d++)
            s[j] += gm_element(q->dtype, gm_elements(q), at4(q, r, i, n, d)) *
                    gm_element(k->dtype, gm_elements(k), place(g, k, r, j, head, d));
        s[j] = capped(call, s[j] * scale);
        largest = fmax(largest, s[j]);
    }
    for (int64_t j = first; j < seen; j++) total += s[j] = exp(s[j] - largest);
    for (int64_t d = 0; d < size; d++) {
        double sum = 0;
        for (int64_t j = first; j < seen; j++)
            sum += s[j] / total * gm_element(v->dtype, gm_elements(v), place(g, v, r, j, head, d));
        gm_store(o->dtype, gm_tensor_data(o), at4(o, r, i, n, d), sum);
    }
}

gm_status gm_ref_attention_paged(gm_device *dev, const gm_call *call)
{
    (void)dev;
    const int64_t *shape = call->in[0]->shape;
    const gm_pages g = gm_pages_of(call);
    double        *s;
    GM_TRY(gm_pages_check(call));
    GM_TRY(ref_scratch(g.index->shape[1] * g.page, &s));
    for (int64_t i = 0, n = shape[0] * shape[1] * shape[2]; i < n; i++) {
        int64_t at[3];
        ref_coordinates(3, shape, i, at);
        int64_t seen = gm_pages_count(&g, at[0]) - shape[1] + at[1] + 1;
        attend(call, &g, at, seen < 0 ? 0 : seen, s);
    }
    free(s);
    return GM_OK;
}
