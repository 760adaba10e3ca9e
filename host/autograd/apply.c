/* apply.c - running an op on values and recording it; see apply.h. Views are in views.c. */
#include "apply.h"

#include <inttypes.h>
#include <string.h>
#include "padding.h"
#include "apply_blocks.h"
#include "gradients.h"
#include "rules.h"

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
        return GM_FAIL(GM_EINVAL, "%s has no gradient; run it under no_grad or detach its inputs",
                       gm_op_called(op, attrs));
    uint8_t kept = gm_gradient_inputs(op, attrs, n_out, out);
    for (int i = 0; i < n_in && i < GM_SLOT_OUTPUT; i++)
        if (kept & 1u << i) saved[i] = in[i];
    for (int j = 0; j < n_out && j < GM_MAX_SAVED - GM_SLOT_OUTPUT; j++)
        if (g->save_out & 1u << j) saved[GM_SLOT_OUTPUT + j] = out[j];
    gm_record rec = {.name = gm_op_called(op, attrs),
                     .rule = g->rule,
                     .op = op,
                     .attrs = attrs,
                     .n_in = n_in,
                     .in = in,
                     .n_out = n_out,
                     .out = out,
                     .n_saved = GM_MAX_SAVED,
                     .saved = saved,
                     .splits = g->splits};
    return gm_tape_record(r, &rec);
}

/* Cut or partial inputs: the tape sees them as they were fitted. */
static gm_status apply_blocks(gm_rank *r, gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, int n_out,
                              const bool *want, gm_value **out)
{
    gm_value *fitted[GM_APPLY_INPUTS];
    gm_attrs  a = *attrs;
    GM_TRY(gm_apply_blocks(r, op, n_in, in, &a, n_out, want, fitted, out));
    gm_status st = gm_rank_poll(r); /* messages of a pipeline go on while parts of it compute */
    if (st == GM_OK) st = record(r, op, n_in, fitted, &a, n_out, out);
    gm_release_all(n_in, fitted);
    if (st != GM_OK) gm_release_all(n_out, out);
    return st;
}

gm_status gm_apply(gm_rank *r, gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, int n_out,
                   const bool *want, gm_value **out)
{
    gm_device *dev;
    gm_spec    spec[GM_MAX_OUT];
    gm_tensor *ti[GM_APPLY_INPUTS], *to[GM_MAX_OUT] = {NULL};
    gm_status  st = GM_OK;
    if (n_in > GM_APPLY_INPUTS || n_out > GM_MAX_OUT) return GM_FAIL(GM_EINVAL, "%s: too many tensors", gm_op_name(op));
    GM_TRY(gm_rank_device(r, &dev));
    for (int i = 0; i < n_out; i++) out[i] = NULL;
    if (!gm_all_replicated(r, n_in, in)) return apply_blocks(r, op, n_in, in, attrs, n_out, want, out);
    for (int i = 0; i < n_in; i++) ti[i] = in[i] ? in[i]->local : NULL;
    gm_call c = {.op = op, .n_in = n_in, .n_out = n_out, .in = ti, .out = to, .attrs = attrs};
    GM_TRY(gm_infer(&c, spec));
    for (int i = 0; i < n_out; i++) {
        if (want && !want[i]) continue;
        GM_TRY_OR(gm_value_new(r, gm_op_called(op, attrs), spec[i].dtype, spec[i].ndim, spec[i].shape, &out[i]), st,
                  fail);
        to[i] = out[i]->local;
    }
    GM_TRY_OR(gm_run(dev, &c), st, fail);
    GM_TRY_OR(gm_rank_poll(r), st, fail);
    GM_TRY_OR(record(r, op, n_in, in, attrs, n_out, out), st, fail);
    return GM_OK;
fail:
    gm_release_all(n_out, out);
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

/* Both outputs of the attention of a packed qkv; tensors in[0..2] are views of its parts. */
static gm_status packed_forward(gm_rank *r, gm_tensor **in, const gm_attrs *attrs, const gm_value *qkv,
                                const gm_layout *layout, gm_value **both)
{
    gm_tensor *out[2] = {NULL, NULL};
    gm_spec    local[2];
    gm_call    c = {.op = GM_OP_attention, .n_in = 4, .n_out = 2, .in = in, .out = out, .attrs = attrs};
    int64_t    b = qkv->shape[0], s = qkv->shape[1], h = qkv->shape[2], d = qkv->shape[4];
    gm_spec    global[2] = {{.ndim = 4, .shape = {b, s, h, d}}, {.ndim = 3, .shape = {b, h, s}}};
    GM_TRY(gm_infer(&c, local));
    for (int i = 0; i < 2; i++) {
        GM_TRY(gm_new_output(r, "attention", &local[i], &layout[i], &global[i], &both[i]));
        out[i] = both[i]->local;
    }
    GM_TRY(gm_run(r->device, &c));
    GM_TRY(gm_padding_finish(both[0]));
    return gm_padding_finish(both[1]);
}

gm_status gm_attention_packed(gm_rank *r, gm_value *qkv, gm_value *key_mask, const gm_attrs *attrs, gm_value **o)
{
    gm_device *dev;
    gm_tensor *in[4] = {NULL};
    gm_value  *inputs[2] = {qkv, key_mask}, *fitted[2], *both[2] = {NULL, NULL};
    gm_layout  layout[2] = {gm_layout_replicated(), gm_layout_replicated()};
    gm_fit     fit[2];
    gm_attrs   a = *attrs;
    gm_status  st;
    char       have[256];
    GM_TRY(gm_rank_device(r, &dev));
    if (qkv->ndim != 5 || qkv->shape[3] != 3)
        return GM_FAIL(GM_ESHAPE, "attention_packed: qkv is (batch, sequence, heads, 3, head size), not %s",
                       gm_value_describe(qkv, have, sizeof have));
    for (int i = 0; i < 2; i++) fit[i].layout = inputs[i] ? inputs[i]->layout : layout[0], fit[i].trim = 0;
    if (!gm_all_replicated(r, 2, inputs)) GM_TRY(gm_layout_attention_packed(r, qkv, key_mask, &a, layout, fit));
    GM_TRY(gm_fit_all(r, 2, inputs, fit, fitted));
    GM_TRY_OR(unpack_qkv(fitted[0]->local, in), st, done);
    in[3] = fitted[1] ? fitted[1]->local : NULL;
    GM_TRY_OR(packed_forward(r, in, &a, qkv, layout, both), st, done);
    GM_TRY_OR(gm_rank_poll(r), st, done);
    gm_value *saved[4] = {fitted[0], fitted[1], both[0], both[1]};
    gm_record rec = {.name = "attention",
                     .rule = packed_rule,
                     .attrs = &a,
                     .n_in = 2,
                     .in = fitted,
                     .n_out = 1,
                     .out = both,
                     .n_saved = 4,
                     .saved = saved};
    GM_TRY_OR(gm_tape_record(r, &rec), st, done);
    *o = both[0];
    both[0] = NULL;
done:
    for (int i = 0; i < 3; i++) gm_tensor_release(in[i]);
    gm_release_all(2, fitted);
    gm_release_all(2, both);
    return st;
}

/* The gradient of output i as a value: cut as the output is, partial as gradients are now. */
static gm_status gradient_value(gm_backward *b, int i, gm_value **out)
{
    const int64_t *shape;
    gm_tensor     *g = gm_backward_grad(b, i);
    gm_layout      layout = *gm_backward_output_layout(b, i, &shape);
    if (!g) return GM_OK;
    gm_tensor_retain(g);
    layout.partial = gm_backward_partial(b) & ~(gm_layout_cut_axes(&layout) | layout.partial);
    return gm_value_take_block(gm_backward_rank(b), g, &layout, g->ndim, shape, out);
}

/* What Lua gave as the gradient of input i (borrowed): of its shape and cuts, in any state. */
static gm_status give_custom(gm_backward *b, int i, gm_value *v)
{
    const int64_t   *shape;
    const gm_spec   *want = gm_backward_input(b, i);
    const gm_layout *x = gm_backward_input_layout(b, i, &shape);
    gm_value         like = {.rank = v->rank, .ndim = want->ndim, .layout = *x}, *fitted = NULL;
    gm_tensor        header = {.dtype = want->dtype};
    char             have[256], text[256];
    like.local = &header;
    memcpy(like.shape, shape, sizeof like.shape);
    if (gm_fit_seed(&like, v, &fitted) != GM_OK)
        return GM_FAIL(GM_ESHAPE, "custom function: its gradient %d is %s, the input %s", i + 1,
                       gm_value_describe(v, have, sizeof have), gm_value_describe(&like, text, sizeof text));
    gm_tensor *t = fitted->local;
    gm_tensor_retain(t);
    gm_backward_set_partial(b, i, fitted->layout.partial);
    gm_value_release(fitted);
    return gm_backward_give(b, i, t);
}

static gm_status custom_rule(gm_backward *b)
{
    gm_value *in[GM_MAX_OUT] = {NULL}, *out[GM_MAX_OUT] = {NULL};
    bool      want[GM_MAX_OUT];
    int       n_in = gm_backward_inputs(b), n_out = gm_backward_outputs(b);
    gm_status st = GM_OK;
    for (int i = 0; i < n_out && st == GM_OK; i++) st = gradient_value(b, i, &in[i]);
    const gm_callback *c = gm_backward_callback(b);
    for (int i = 0; i < n_in; i++) want[i] = gm_backward_wants(b, i);
    if (st == GM_OK) st = c->call(c->context, n_out, in, n_in, gm_backward_splits(b) ? want : NULL, out);
    gm_release_all(n_out, in);
    for (int i = 0; i < n_in; i++)
        if (out[i] && want[i] && st == GM_OK) st = give_custom(b, i, out[i]);
    gm_release_all(n_in, out);
    return st;
}

gm_status gm_record_custom(gm_rank *r, int n_in, gm_value *const *in, int n_out, gm_value *const *out,
                           gm_callback backward, bool splits)
{
    if (n_in > GM_MAX_OUT || n_out > GM_MAX_OUT) {
        gm_callback_release(&backward);
        return GM_FAIL(GM_EINVAL, "custom function: at most %d inputs and %d outputs", GM_MAX_OUT, GM_MAX_OUT);
    }
    for (int i = 0; i < n_out; i++) {
        if (!out[i] || !out[i]->requires_grad) continue;
        gm_callback_release(&backward);
        return GM_FAIL(GM_EINVAL, "custom function: output %d requires a gradient already; detach() it", i + 1);
    }
    gm_record rec = {.name = "custom function",
                     .rule = custom_rule,
                     .n_in = n_in,
                     .in = in,
                     .n_out = n_out,
                     .out = out,
                     .callback = backward,
                     .splits = splits};
    return gm_tape_record(r, &rec);
}
