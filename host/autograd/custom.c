/* custom.c - functions whose gradients the user computes: gm_record_custom of apply.h. */
#include <string.h>

#include "apply.h"
#include "apply_blocks.h"

gm_status gm_gradient_value(gm_backward *b, int i, gm_value **out)
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
    gm_tensor *t = gm_work_share(gm_backward_work(b), fitted->local);
    gm_backward_set_partial(b, i, fitted->layout.partial);
    gm_value_release(fitted);
    gm_backward_give(b, i, t);
    return GM_OK;
}

static void custom_rule(gm_backward *b)
{
    gm_work  *w = gm_backward_work(b);
    gm_value *in[GM_MAX_OUT] = {NULL}, *out[GM_MAX_OUT] = {NULL};
    bool      want[GM_MAX_OUT];
    int       n_in = gm_backward_inputs(b), n_out = gm_backward_outputs(b);
    for (int i = 0; i < n_out; i++) GM_STEP(w, gm_gradient_value(b, i, &in[i]));
    const gm_callback *c = gm_backward_callback(b);
    for (int i = 0; i < n_in; i++) want[i] = gm_backward_wants(b, i);
    GM_STEP(w, c->call(c->context, n_out, in, n_in, gm_backward_splits(b) ? want : NULL, out));
    gm_release_all(n_out, in);
    for (int i = 0; i < n_in; i++)
        if (out[i] && want[i]) GM_STEP(w, give_custom(b, i, out[i]));
    gm_release_all(n_in, out);
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
