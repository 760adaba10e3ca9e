/* infer_recurrent.c - inference for the cells of recurrent layers. */
#include "infer.h"

#include <inttypes.h>

/* `like` with `count` times `width` as its last dimension. */
static gm_spec of_width(const gm_tensor *like, int64_t count, int64_t width)
{
    gm_spec s = gm_spec_like(like);
    s.shape[s.ndim - 1] = count * width;
    return s;
}

/* t (..., count h). name: what messages call t. */
static gm_status expect_gates(const gm_call *call, const char *name, const gm_tensor *t, int count, int64_t *h)
{
    GM_TRY(gm_expect_ndim(call, name, t, 1));
    if (t->shape[t->ndim - 1] % count)
        return GM_FAIL(GM_ESHAPE, "%s: %s is %s, but the last dimension should be %d times the width of a state",
                       gm_op_name(call->op), name, GM_SHOW(t), count);
    *h = t->shape[t->ndim - 1] / count;
    return GM_OK;
}

/* x and moved (..., count h), state (..., h) -> a state. */
static gm_status cell(const gm_call *call, int count, const char *state, gm_spec *y, gm_spec *gates)
{
    const gm_tensor *x = call->in[0];
    int64_t          h = 0;
    GM_TRY(expect_gates(call, "x", x, count, &h));
    GM_TRY(gm_expect_like(call, "moved", call->in[1], x));
    *y = of_width(x, 1, h);
    *gates = of_width(x, 4, h);
    return gm_expect_shape(call, state, call->in[2], y->ndim, y->shape);
}

gm_status gm_infer_lstm_cell(const gm_call *call, gm_spec *spec)
{
    GM_TRY(cell(call, 4, "c", &spec[0], &spec[2]));
    spec[1] = spec[0];
    return GM_OK;
}

gm_status gm_infer_gru_cell(const gm_call *call, gm_spec *spec) { return cell(call, 3, "h", &spec[0], &spec[1]); }

/* Inputs from 0 on, (..., h), beside the gates, which are input `gates`. */
static gm_status expect_states(const gm_call *call, int gates, const char *const *names, gm_spec *state)
{
    int64_t h = 0;
    GM_TRY(expect_gates(call, "gates", call->in[gates], 4, &h));
    *state = of_width(call->in[gates], 1, h);
    for (int i = 0; i < call->n_in; i++)
        if (i != gates) GM_TRY(gm_expect_shape(call, names[i], call->in[i], state->ndim, state->shape));
    return GM_OK;
}

gm_status gm_infer_lstm_cell_grad(const gm_call *call, gm_spec *spec)
{
    static const char *const names[] = {"g", "gh", "gc", "gates", "c", "next"};
    GM_TRY(expect_states(call, 3, names, &spec[1]));
    spec[0] = gm_spec_like(call->in[3]);
    return GM_OK;
}

gm_status gm_infer_gru_cell_grad(const gm_call *call, gm_spec *spec)
{
    static const char *const names[] = {"g", "gh", "gates", "h"};
    GM_TRY(expect_states(call, 2, names, &spec[2]));
    spec[0] = spec[1] = of_width(call->in[2], 3, spec[2].shape[spec[2].ndim - 1]);
    return GM_OK;
}
