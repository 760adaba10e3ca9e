/* calls.h - ops on values by their arguments, for tests: gm_apply in one line each. New references through the last
 * pointers. */
#ifndef GM_CALLS_H
#define GM_CALLS_H

#include "../../host/parallel/sharded/ring.h"

static inline gm_status call_linear(gm_rank *r, gm_value *x, gm_value *w, gm_value *b, gm_function f, gm_value **y)
{
    gm_attrs a = gm_attrs_default();
    a.function = f;
    return gm_apply_first(r, GM_OP_linear, 3, (gm_value *[]){x, w, b}, &a, y);
}

/* Layer norm, or with rms the RMS norm, which has no b; sum NULL of no residual. */
static inline gm_status call_norm(gm_rank *r, gm_op op, gm_value *const *in, double eps, gm_value **y, gm_value **sum)
{
    gm_attrs  a = gm_attrs_default();
    bool      want[4] = {true, in[1] != NULL};
    gm_value *out[4];
    int       n = op == GM_OP_layer_norm ? 4 : 3;
    a.eps = eps;
    GM_TRY(gm_apply(r, op, n, in, &a, n, want, out));
    *y = out[0];
    *sum = out[1];
    return GM_OK;
}

static inline gm_status call_cross_entropy(gm_rank *r, gm_value *logits, gm_value *target, const gm_attrs *a,
                                           gm_value **loss)
{
    return gm_apply_first(r, GM_OP_cross_entropy, 2, (gm_value *[]){logits, target}, a, loss);
}

static inline gm_status call_embedding(gm_rank *r, gm_value *w, gm_value *index, int64_t padding_index, gm_value **y)
{
    gm_attrs a = gm_attrs_default();
    a.padding_index = padding_index;
    return gm_apply_first(r, GM_OP_embedding, 2, (gm_value *[]){w, index}, &a, y);
}

static inline gm_status call_argmax(gm_rank *r, gm_value *x, int dim, bool keepdim, gm_value **index)
{
    gm_attrs a = gm_attrs_default();
    a.dim = dim;
    a.keepdim = keepdim;
    return gm_apply_first(r, GM_OP_argmax, 1, &x, &a, index);
}

static inline gm_status call_attention(gm_rank *r, gm_value *q, gm_value *k, gm_value *v, gm_value *mask,
                                       const gm_attrs *attrs, gm_ring_balance balance, gm_value **o)
{
    gm_attrs a = *attrs;
    a.balance = balance;
    return gm_apply_first(r, GM_OP_attention, 6, (gm_value *[]){q, k, v, mask, NULL, NULL}, &a, o);
}

/* qkv (b, s, h, 3, d) */
static inline gm_status call_attention_packed(gm_rank *r, gm_value *qkv, gm_value *mask, const gm_attrs *attrs,
                                              gm_value **o)
{
    gm_value *part[3];
    GM_TRY(gm_unbind(r, qkv, 3, part));
    gm_status st = call_attention(r, part[0], part[1], part[2], mask, attrs, GM_RING_AUTO, o);
    for (int i = 0; i < 3; i++) gm_value_release(part[i]);
    return st;
}

#endif
