/* apply.c - running an op on values and recording it; see apply.h. Views are in views.c. */
#include "apply.h"

#include <inttypes.h>
#include <string.h>
#include "gradients.h"
#include "rules.h"

#define MAX_IN 8

gm_status gm_check_dim(const char *op, int ndim, int64_t *dim)
{
    int64_t d = *dim < 0 ? *dim + ndim : *dim;
    if (d < 0 || d >= ndim)
        return GM_FAIL(GM_ESHAPE, "%s: dimension %" PRId64 " of a tensor with %d", op, *dim + (*dim >= 0), ndim);
    *dim = d;
    return GM_OK;
}

static gm_status record(gm_rank *r, gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, int n_out,
                        gm_value *const *out)
{
    const gm_gradient *g = gm_gradient_of(op);
    gm_value          *saved[GM_MAX_SAVED] = {NULL};
    if (g->stops || !gm_tape_wanted(r, n_in, in)) return GM_OK;
    if (!g->rule)
        return GM_FAIL(GM_EINVAL, "%s has no gradient; run it under no_grad or detach its inputs", gm_op_name(op));
    for (int i = 0; i < n_in && i < GM_SLOT_OUTPUT; i++)
        if (g->save_in & 1u << i) saved[i] = in[i];
    for (int j = 0; j < n_out && j < GM_MAX_SAVED - GM_SLOT_OUTPUT; j++)
        if (g->save_out & 1u << j) saved[GM_SLOT_OUTPUT + j] = out[j];
    gm_record rec = {.name = gm_op_name(op),
                     .rule = g->rule,
                     .op = op,
                     .attrs = attrs,
                     .n_in = n_in,
                     .in = in,
                     .n_out = n_out,
                     .out = out,
                     .n_saved = GM_MAX_SAVED,
                     .saved = saved};
    return gm_tape_record(r, &rec);
}

static void release_all(int n, gm_value **v)
{
    for (int i = 0; i < n; i++) {
        gm_value_release(v[i]);
        v[i] = NULL;
    }
}

gm_status gm_apply(gm_rank *r, gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, int n_out,
                   const bool *want, gm_value **out)
{
    gm_device *dev;
    gm_spec    spec[GM_MAX_OUT];
    gm_tensor *ti[MAX_IN], *to[GM_MAX_OUT] = {NULL};
    gm_status  st = GM_OK;
    if (n_in > MAX_IN || n_out > GM_MAX_OUT) return GM_FAIL(GM_EINVAL, "%s: too many tensors", gm_op_name(op));
    GM_TRY(gm_rank_device(r, &dev));
    for (int i = 0; i < n_in; i++) ti[i] = in[i] ? in[i]->local : NULL;
    for (int i = 0; i < n_out; i++) out[i] = NULL;
    gm_call c = {.op = op, .n_in = n_in, .n_out = n_out, .in = ti, .out = to, .attrs = attrs};
    GM_TRY(gm_infer(&c, spec));
    for (int i = 0; i < n_out; i++) {
        if (want && !want[i]) continue;
        GM_TRY_OR(gm_value_new(r, gm_op_name(op), spec[i].dtype, spec[i].ndim, spec[i].shape, &out[i]), st, fail);
        to[i] = out[i]->local;
    }
    GM_TRY_OR(gm_run(dev, &c), st, fail);
    GM_TRY_OR(record(r, op, n_in, in, attrs, n_out, out), st, fail);
    return GM_OK;
fail:
    release_all(n_out, out);
    return st;
}

gm_status gm_linear(gm_rank *r, gm_value *x, gm_value *w, gm_value *b, gm_function function, gm_value **y)
{
    gm_value *in[3] = {x, w, b}, *out[2];
    gm_attrs  a = gm_attrs_default();
    bool      want[2] = {true, function != GM_FN_none && gm_tape_wanted(r, 3, in)};
    a.function = function;
    GM_TRY(gm_apply(r, GM_OP_linear, 3, in, &a, 2, want, out));
    gm_value_release(out[1]);
    *y = out[0];
    return GM_OK;
}

/* Views of the three parts of a packed (b, s, h, 3, d) tensor. */
static gm_status unpack_qkv(gm_tensor *packed, gm_tensor *part[3])
{
    for (int i = 0; i < 3; i++) part[i] = NULL;
    for (int i = 0; i < 3; i++) {
        gm_status st = gm_tensor_select(packed, 3, i, &part[i]);
        if (st == GM_OK) continue;
        for (int k = 0; k < i; k++) gm_tensor_release(part[k]);
        return st;
    }
    return GM_OK;
}

/* Slots: 0 qkv, 1 mask, 2 o, 3 lse. dqkv is written through three strided views. */
static gm_status packed_rule(gm_backward *b)
{
    gm_tensor *in[7] = {NULL}, *out[3] = {NULL}, *qkv, *g = gm_backward_grad(b, 0), *dqkv = NULL, *gc = NULL;
    gm_status  st;
    GM_TRY(gm_backward_saved(b, 0, &qkv));
    GM_TRY(gm_backward_saved(b, 1, &in[3]));
    GM_TRY(gm_backward_saved(b, 2, &in[4]));
    GM_TRY(gm_backward_saved(b, 3, &in[5]));
    GM_TRY(gm_rule_contiguous(b, g, &gc));
    in[6] = gc;
    GM_TRY_OR(gm_backward_new(b, gm_backward_input(b, 0), &dqkv), st, done);
    GM_TRY_OR(unpack_qkv(qkv, in), st, done);
    GM_TRY_OR(unpack_qkv(dqkv, out), st, done);
    gm_call c = {
        .op = GM_OP_attention_grad, .n_in = 7, .n_out = 3, .in = in, .out = out, .attrs = gm_backward_attrs(b)};
    GM_TRY_OR(gm_run(gm_backward_device(b), &c), st, done);
    for (int i = 0; i < 3; i++) {
        gm_tensor_release(out[i]); /* before it is given, so that it is seen to be exclusive */
        out[i] = NULL;
    }
    st = gm_backward_give(b, 0, dqkv);
    dqkv = NULL;
done:
    for (int i = 0; i < 3; i++) {
        gm_tensor_release(in[i]);
        gm_tensor_release(out[i]);
    }
    gm_tensor_release(dqkv);
    gm_tensor_release(gc);
    return st;
}

gm_status gm_attention_packed(gm_rank *r, gm_value *qkv, gm_value *key_mask, const gm_attrs *attrs, gm_value **o)
{
    gm_device *dev;
    gm_tensor *in[4] = {NULL}, *out[2];
    gm_value  *lse = NULL;
    gm_spec    spec[2];
    gm_status  st;
    char       have[96];
    GM_TRY(gm_rank_device(r, &dev));
    if (qkv->ndim != 5 || qkv->shape[3] != 3)
        return GM_FAIL(GM_ESHAPE, "attention_packed: qkv is (batch, sequence, heads, 3, head size), not %s",
                       gm_tensor_describe(qkv->local, have, sizeof have));
    *o = NULL;
    GM_TRY(unpack_qkv(qkv->local, in));
    in[3] = key_mask ? key_mask->local : NULL;
    gm_call c = {.op = GM_OP_attention, .n_in = 4, .n_out = 2, .in = in, .out = out, .attrs = attrs};
    GM_TRY_OR(gm_infer(&c, spec), st, done);
    GM_TRY_OR(gm_value_new(r, "attention", spec[0].dtype, spec[0].ndim, spec[0].shape, o), st, done);
    GM_TRY_OR(gm_value_new(r, "attention", spec[1].dtype, spec[1].ndim, spec[1].shape, &lse), st, done);
    out[0] = (*o)->local;
    out[1] = lse->local;
    GM_TRY_OR(gm_run(dev, &c), st, done);
    gm_value *inputs[2] = {qkv, key_mask}, *saved[4] = {qkv, key_mask, *o, lse};
    gm_record rec = {.name = "attention",
                     .rule = packed_rule,
                     .attrs = attrs,
                     .n_in = 2,
                     .in = inputs,
                     .n_out = 1,
                     .out = o,
                     .n_saved = 4,
                     .saved = saved};
    st = gm_tape_record(r, &rec);
done:
    for (int i = 0; i < 3; i++) gm_tensor_release(in[i]);
    gm_value_release(lse);
    if (st != GM_OK) {
        gm_value_release(*o);
        *o = NULL;
    }
    return st;
}

static gm_status custom_rule(gm_backward *b)
{
    gm_value *in[GM_MAX_OUT] = {NULL}, *out[GM_MAX_OUT] = {NULL};
    int       n_in = gm_backward_inputs(b), n_out = gm_backward_outputs(b);
    gm_status st = GM_OK;
    for (int i = 0; i < n_out && st == GM_OK; i++) {
        gm_tensor *g = gm_backward_grad(b, i);
        if (!g) continue;
        gm_tensor_retain(g);
        st = gm_value_take(gm_backward_rank(b), g, &in[i]);
    }
    const gm_callback *c = gm_backward_callback(b);
    if (st == GM_OK) st = c->call(c->context, n_out, in, n_in, out);
    for (int i = 0; i < n_out; i++) gm_value_release(in[i]);
    for (int i = 0; i < n_in; i++) {
        if (!out[i]) continue;
        const gm_spec *want = gm_backward_input(b, i);
        gm_tensor     *t = out[i]->local;
        char           have[96], shape[96];
        if (st == GM_OK && (t->dtype != want->dtype || t->ndim != want->ndim ||
                            memcmp(t->shape, want->shape, (size_t)t->ndim * sizeof *t->shape)))
            st = GM_FAIL(GM_ESHAPE, "custom function: its gradient %d is %s, the input %s %s", i + 1,
                         gm_tensor_describe(t, have, sizeof have), gm_dtype_name(want->dtype),
                         gm_shape_describe(want->ndim, want->shape, shape, sizeof shape));
        if (st == GM_OK) {
            gm_tensor_retain(t);
            st = gm_backward_give(b, i, t);
        }
        gm_value_release(out[i]);
    }
    return st;
}

gm_status gm_record_custom(gm_rank *r, int n_in, gm_value *const *in, int n_out, gm_value *const *out,
                           gm_callback backward)
{
    if (n_in > GM_MAX_OUT || n_out > GM_MAX_OUT) {
        gm_callback_release(&backward);
        return GM_FAIL(GM_EINVAL, "custom function: at most %d inputs and %d outputs", GM_MAX_OUT, GM_MAX_OUT);
    }
    gm_record rec = {.name = "custom function",
                     .rule = custom_rule,
                     .n_in = n_in,
                     .in = in,
                     .n_out = n_out,
                     .out = out,
                     .callback = backward};
    return gm_tape_record(r, &rec);
}
