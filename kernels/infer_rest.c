/* infer_rest.c - inference rules (infer.h) of the tables, losses and optimizers. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "infer.h"
#include "states.h"
#include "step_control.h"
#include "trust.h"

/* w (rows, width), index of any shape -> index.shape + (width) */
gm_status gm_infer_embedding(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *w = call->in[0], *index = call->in[1];
    if (w->ndim != 2) return GM_FAIL(GM_ESHAPE, "embedding: w is %s, should be (rows, width)", GM_SHOW(w));
    if (index->ndim == GM_MAX_DIMS)
        return GM_FAIL(GM_ESHAPE, "embedding: index %s would give more than %d dimensions", GM_SHOW(index),
                       GM_MAX_DIMS);
    spec[0] = gm_spec_of(w->dtype, index->ndim, index->shape);
    spec[0].shape[spec[0].ndim++] = w->shape[1];
    return GM_OK;
}

/* index, g index.shape + (width) -> dw (rows, width), which says how many rows there are */
gm_status gm_infer_embedding_grad(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *index = call->in[0], *g = call->in[1], *dw = call->out ? call->out[0] : NULL;
    int64_t          padding = call->attrs->padding_index;
    if (!dw) return GM_FAIL(GM_EINVAL, "embedding_grad: dw must be given; it says how many rows the table has");
    if (dw->ndim != 2) return GM_FAIL(GM_ESHAPE, "embedding_grad: dw is %s, should be (rows, width)", GM_SHOW(dw));
    if (index->ndim == GM_MAX_DIMS) return GM_FAIL(GM_ESHAPE, "embedding_grad: index has too many dimensions");
    if (padding < -1 || padding >= dw->shape[0])
        return GM_FAIL(GM_EINVAL, "embedding_grad: padding_index %" PRId64 " is neither -1 nor a row of %s", padding,
                       GM_SHOW(dw));
    gm_spec want = gm_spec_of(g->dtype, index->ndim, index->shape);
    want.shape[want.ndim++] = dw->shape[1];
    GM_TRY(gm_expect_shape(call, "g", g, want.ndim, want.shape));
    spec[0] = gm_spec_of(g->dtype, 2, dw->shape);
    return GM_OK;
}

/* logits (..., classes), target: the leading shape */
static gm_status expect_classes(const gm_call *call)
{
    const gm_tensor *logits = call->in[0];
    GM_TRY(gm_expect_ndim(call, "logits", logits, 1));
    if (logits->shape[logits->ndim - 1] == 0)
        return GM_FAIL(GM_ESHAPE, "%s: logits %s have no classes", gm_op_called(call->op, call->attrs),
                       GM_SHOW(logits));
    GM_TRY(gm_expect_range(call, "label_smoothing", call->attrs->label_smoothing, 0, 1));
    return gm_expect_shape(call, "target", call->in[1], logits->ndim - 1, logits->shape);
}

gm_status gm_infer_cross_entropy(const gm_call *call, gm_spec *spec)
{
    GM_TRY(expect_classes(call));
    for (int i = 0; i < 3; i++) spec[i] = gm_spec_leading(call->in[0]);
    return GM_OK;
}

gm_status gm_infer_cross_entropy_grad(const gm_call *call, gm_spec *spec)
{
    GM_TRY(expect_classes(call));
    GM_TRY(gm_expect_like(call, "largest", call->in[2], call->in[1]));
    GM_TRY(gm_expect_like(call, "sum", call->in[3], call->in[1]));
    GM_TRY(gm_expect_like(call, "g", call->in[4], call->in[1]));
    spec[0] = gm_spec_like(call->in[0]);
    return GM_OK;
}

gm_status gm_infer_cross_entropy_both(const gm_call *call, gm_spec *spec)
{
    GM_TRY(expect_classes(call));
    GM_TRY(gm_expect_shape(call, "scale", call->in[2], 0, NULL));
    spec[0] = gm_spec_leading(call->in[0]);
    spec[1] = gm_spec_like(call->in[0]);
    return GM_OK;
}

/* scale (), g (...), x g.shape + (width) */
gm_status gm_infer_rescale_rows(const gm_call *call, gm_spec *spec)
{
    const gm_tensor *x = call->out ? call->out[0] : NULL;
    if (!x) return GM_FAIL(GM_EINVAL, "rescale_rows: x must be given; its rows are multiplied in place");
    GM_TRY(gm_expect_ndim(call, "x", x, 1));
    GM_TRY(gm_expect_shape(call, "scale", call->in[0], 0, NULL));
    GM_TRY(gm_expect_shape(call, "g", call->in[1], x->ndim - 1, x->shape));
    spec[0] = gm_spec_like(x);
    return GM_OK;
}

gm_status gm_infer_sum_squares(const gm_call *call, gm_spec *spec)
{
    (void)call;
    spec[0] = (gm_spec){.dtype = GM_F64};
    return GM_OK;
}

/* The last of a group but one: a copy in f32 of a parameter of 16 bits, which is then not rounded by chance. */
static gm_status expect_master(const gm_call *call, int i, const gm_tensor *p, const gm_tensor *master)
{
    bool narrow = gm_dtype_is_narrow(p->dtype);
    if (master && !narrow)
        return GM_FAIL(GM_EINVAL, "%s: parameter %d is %s and needs no master; those of bf16 and f16 may have one",
                       gm_op_called(call->op, call->attrs), i + 1, gm_dtype_name(p->dtype));
    if (call->attrs->stochastic && (master || !narrow))
        return GM_FAIL(GM_EINVAL,
                       "%s: stochastic rounding is for parameters of bf16 or f16 without a master; see number "
                       "%d, of %s",
                       gm_op_called(call->op, call->attrs), i + 1, gm_dtype_name(p->dtype));
    return GM_OK;
}

/* The place of a block is that of one tensor. */
static gm_status expect_box(const gm_call *call, int gradients)
{
    const gm_box *box = &call->attrs->box;
    if (!box->ndim) return GM_OK;
    if (gradients != 1)
        return GM_FAIL(GM_EINVAL, "%s: the attribute box is the place of one parameter; there are %d",
                       gm_op_called(call->op, call->attrs), gradients);
    if (box->ndim != call->in[call->n_in - 1]->ndim)
        return GM_FAIL(GM_ESHAPE, "%s: the attribute box has %d dimensions, the parameter %d",
                       gm_op_called(call->op, call->attrs), box->ndim, call->in[call->n_in - 1]->ndim);
    return GM_OK;
}

static const gm_spec control_spec = {.dtype = GM_F64, .ndim = 1, .shape = {GM_CONTROL_SIZE}};
static const gm_spec missed_spec = {.dtype = GM_F64, .ndim = 1, .shape = {1}};

/* Inputs of an update: the control tensor and the updates missed, either may be NULL, then gradients. */
enum { CONTROL, MISSED, GRADIENTS };

static const gm_spec trust_spec = {.dtype = GM_F64, .ndim = 1, .shape = {2}};

/* What a moment is of a gradient: like that, in f32 where ops.def says so, or in fewer bits (states.h). */
static gm_spec moment_spec(const gm_call *call, const gm_tensor *g)
{
    gm_spec want = gm_spec_like(g);
    want.dtype = gm_dtype_wide(want.dtype);
    if (call->attrs->states == GM_STATES_BF16) want.dtype = GM_BF16;
    if (call->attrs->states != GM_STATES_BLOCKS) return want;
    return (gm_spec){.dtype = GM_U8, .ndim = 1, .shape = {gm_state_bytes(gm_state_rows_of(g->ndim, g->shape))}};
}

static gm_status expect_states(const gm_call *call)
{
    GM_TRY(gm_expect_range(call, "states", (double)call->attrs->states, GM_STATES_F32, GM_STATES_KINDS));
    for (int i = GRADIENTS; i < call->n_in; i++)
        if (call->attrs->states && call->in[i]->dtype == GM_F64)
            return GM_FAIL(GM_EINVAL, "%s: parameter %d is f64, whose moments cannot be kept in fewer bits",
                           gm_op_called(call->op, call->attrs), i - GRADIENTS + 1);
    return GM_OK;
}

/* A moment of bytes has its scales, of f32, behind its codes (states.h). */
static gm_status expect_codes(const gm_call *call, int parameter, const gm_tensor *t)
{
    if (!t || call->attrs->states != GM_STATES_BLOCKS || t->dtype != GM_U8) return GM_OK;
    if (gm_tensor_is_contiguous(t) && t->offset % 4 == 0) return GM_OK;
    return GM_FAIL(GM_EINVAL,
                   "%s: a moment in 8 bits must lie without gaps, from a multiple of 4 bytes of its memory on; one of "
                   "parameter %d does not: a copy of it does",
                   gm_op_called(call->op, call->attrs), parameter + 1);
}

/* Outputs in groups for each gradient: p, moments, master, trust. All but the last are as their gradient, or in f32
 * where ops.def says so. */
static gm_status expect_groups(const gm_call *call, gm_spec *spec)
{
    const gm_slots *slots = gm_op_gives(call->op);
    int             width = slots->n, n = call->n_in - GRADIENTS;
    if (call->n_out != width * n)
        return GM_FAIL(GM_EINVAL, "%s: %d gradients need %d outputs, %d given", gm_op_called(call->op, call->attrs), n,
                       width * n, call->n_out);
    GM_TRY(expect_states(call));
    GM_TRY(expect_box(call, n));
    if (call->in[CONTROL]) GM_TRY(gm_expect_spec(call, "control", call->in[CONTROL], &control_spec));
    if (call->in[MISSED]) GM_TRY(gm_expect_spec(call, "missed", call->in[MISSED], &missed_spec));
    for (int i = 0; i < call->n_out; i++) {
        const gm_tensor *g = call->in[GRADIENTS + i / width];
        int              role = i % width;
        gm_spec          want = role == 0 ? gm_spec_like(g) : role == width - 1 ? trust_spec : moment_spec(call, g);
        if (role == width - 2) want = gm_spec_like(g), want.dtype = gm_dtype_wide(want.dtype);
        GM_TRY(gm_expect_spec(call, slots->slot[role].name, call->out[i], &want));
        GM_TRY(expect_codes(call, i / width, call->out[i]));
        if (spec) spec[i] = want;
    }
    for (int i = 0; i < n; i++) GM_TRY(expect_master(call, i, call->out[i * width], call->out[i * width + width - 2]));
    return GM_OK;
}

/* Moments and trust are there where the attributes ask for them, and nowhere else. */
static gm_status expect_asked(const gm_call *call, unsigned moments)
{
    const gm_slots *slots = gm_op_gives(call->op);
    for (int i = 0; i < call->n_out; i++) {
        int role = i % slots->n;
        if (role == 0 || role == slots->n - 2) continue; /* the parameter, and the master */
        bool trust = role == slots->n - 1, asked = trust ? call->attrs->trust != 0 : moments >> (role - 1) & 1;
        if (asked == (call->out[i] != NULL)) continue;
        return GM_FAIL(GM_EINVAL, "%s: these attributes %s a tensor '%s' for each parameter; see number %d",
                       gm_op_called(call->op, call->attrs), asked ? "need" : "do not take", slots->slot[role].name,
                       i / slots->n + 1);
    }
    return GM_OK;
}

/* Norms of updates: an element whose gradients were all 0 must not be 0 / 0. */
static gm_status expect_trust(const gm_call *call, bool divides)
{
    const gm_attrs *at = call->attrs;
    const char     *name = gm_op_called(call->op, at);
    GM_TRY(gm_expect_range(call, "trust", (double)at->trust, GM_TRUST_NONE, GM_TRUST_KINDS));
    GM_TRY(gm_expect_range(call, "trust_coefficient", at->trust_coefficient, 0, 1e308));
    GM_TRY(gm_expect_range(call, "trust_min", at->trust_min, 0, 1e308));
    GM_TRY(gm_expect_range(call, "trust_max", at->trust_max, 0, 1e308));
    if (at->trust_max > 0 && at->trust_max < at->trust_min)
        return GM_FAIL(GM_EINVAL, "%s: trust_max %g is below trust_min %g", name, at->trust_max, at->trust_min);
    if (at->measure && at->trust == GM_TRUST_NONE)
        return GM_FAIL(GM_EINVAL, "%s: measure is for updates with a trust ratio", name);
    if (at->trust == GM_TRUST_LAMB && divides && at->eps == 0)
        return GM_FAIL(GM_EINVAL, "%s: the norm of an update needs eps above 0", name);
    if (at->trust == GM_TRUST_LARS && at->decoupled)
        return GM_FAIL(GM_EINVAL, "%s: LARS takes the weight decay with the gradient, not decoupled", name);
    return GM_OK;
}

static bool reads(gm_op op, const char *attribute)
{
    const char *list = gm_op_attrs(op);
    size_t      n = strlen(attribute);
    for (const char *at = strstr(list, attribute); at; at = strstr(at + 1, attribute))
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

static gm_status infer_update(const gm_call *call, unsigned moments, gm_spec *spec)
{
    const gm_attrs *at = call->attrs;
    GM_TRY(expect_groups(call, spec));
    GM_TRY(gm_expect_range(call, "lr_scale", at->lr_scale, 0, 1e308));
    GM_TRY(gm_expect_range(call, "weight_decay", at->weight_decay, 0, 1e308));
    GM_TRY(gm_expect_range(call, "momentum", at->momentum, 0, 1));
    GM_TRY(gm_expect_range(call, "beta1", at->beta1, 0, 1));
    GM_TRY(gm_expect_range(call, "beta2", at->beta2, 0, 1));
    GM_TRY(gm_expect_range(call, "eps", at->eps, 0, 1e308));
    GM_TRY(gm_expect_range(call, "lr_decay", at->lr_decay, 0, 1e308));
    if (reads(call->op, "nesterov") && at->nesterov && !(at->momentum > 0 && at->dampening == 0))
        return GM_FAIL(GM_EINVAL, "%s: nesterov needs momentum above 0 and no dampening (momentum %g, dampening %g)",
                       gm_op_called(call->op, at), at->momentum, at->dampening);
    GM_TRY(expect_trust(call, reads(call->op, "eps")));
    return expect_asked(call, moments);
}

#define GM_OPTIMIZER(name, moments, there, ...)                   \
    gm_status gm_infer_##name(const gm_call *call, gm_spec *spec) \
    {                                                             \
        const gm_attrs *at = call->attrs;                         \
        (void)at;                                                 \
        return infer_update(call, (unsigned)(there), spec);       \
    }
#include "optimizers.def"
#undef GM_OPTIMIZER

gm_status gm_infer_step_control(const gm_call *call, gm_spec *spec)
{
    const gm_attrs *at = call->attrs;
    const gm_spec   loss = {.dtype = GM_F64, .ndim = 1, .shape = {3}}, norm = {.dtype = GM_F64};
    GM_TRY(gm_expect_spec(call, "loss", call->in[0], &loss));
    if (call->in[1]) GM_TRY(gm_expect_spec(call, "norm", call->in[1], &norm));
    if (call->n_in - 2 > GM_CONTROL_TERMS)
        return GM_FAIL(GM_EINVAL, "step_control: %d tensors of squares, at most %d can be added", call->n_in - 2,
                       GM_CONTROL_TERMS);
    for (int i = 2; i < call->n_in; i++)
        if (call->in[i]->dtype != GM_F64 || call->in[i]->ndim > 1)
            return GM_FAIL(GM_ESHAPE, "step_control: squares %d are %s %s, should be f64 of one dimension at most",
                           i - 1, gm_dtype_name(call->in[i]->dtype), GM_SHOW(call->in[i]));
    GM_TRY(gm_expect_range(call, "max_norm", at->max_norm, 0, INFINITY));
    GM_TRY(gm_expect_range(call, "not_finite", (double)at->not_finite, GM_NOT_FINITE_HALT, GM_NOT_FINITE_WARN + 1));
    GM_TRY(gm_expect_range(call, "growth", at->growth, 1, 1e308));
    GM_TRY(gm_expect_range(call, "backoff", at->backoff, 0, 1.5));
    GM_TRY(gm_expect_range(call, "growth_interval", (double)at->growth_interval, 0, 1e18));
    spec[0] = control_spec;
    return GM_OK;
}
