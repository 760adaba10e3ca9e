/* infer.c - gm_infer: the checks that every op shares, then the rule of the op.
 *
 * The strings of ops.def say how many tensors an op takes and which may be absent. The names of the tensors tell their
 * dtypes (gm_content): `index`, `target` and `segment` are i32 or i64, `condition`, `key_mask` and codes are u8,
 * integers such as `count` are i64, and all others are floats (f32, f64, bf16, f16). The floats of one call have one
 * dtype; if this is bf16 or f16, tensors marked with '^' are f32 instead. Where such a tensor comes before all other
 * floats, the rule of the op compares them. `copy` takes any dtype. The multi-tensor ops check each group alone. The
 * rules are in infer_elementwise.c, infer_dense.c, infer_convolution.c, infer_few_bits.c, infer_float8.c,
 * infer_experts.c, infer_pages.c, infer_pooling.c, infer_bags.c and infer_rest.c. */
#include "infer.h"

#include <inttypes.h>
#include <string.h>

static gm_status (*const rules[GM_OP_COUNT])(const gm_call *, gm_spec *) = {
#define GM_OP(name, rule, in, out, attrs) [GM_OP_##name] = gm_infer_##name,
#include "ops.def"
#undef GM_OP
};

gm_spec gm_spec_of(gm_dtype dtype, int ndim, const int64_t *shape)
{
    gm_spec s = {.dtype = dtype, .ndim = ndim};
    for (int d = 0; d < ndim; d++) s.shape[d] = shape[d];
    return s;
}

gm_spec gm_spec_like(const gm_tensor *t) { return gm_spec_of(t->dtype, t->ndim, t->shape); }
gm_spec gm_spec_leading(const gm_tensor *t) { return gm_spec_of(t->dtype, t->ndim - 1, t->shape); }

gm_spec gm_spec_without(const gm_tensor *t, int dim, bool keep)
{
    gm_spec s = {.dtype = t->dtype};
    for (int d = 0; d < t->ndim; d++) {
        if (d != dim) s.shape[s.ndim++] = t->shape[d];
        else if (keep) s.shape[s.ndim++] = 1;
    }
    return s;
}

gm_status gm_expect_shape(const gm_call *call, const char *name, const gm_tensor *t, int ndim, const int64_t *shape)
{
    bool same = !t || t->ndim == ndim;
    for (int d = 0; t && same && d < ndim; d++) same = t->shape[d] == shape[d];
    if (same) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be %s", gm_op_called(call->op, call->attrs), name, GM_SHOW(t),
                   GM_SHOW_SHAPE(ndim, shape));
}

gm_status gm_expect_like(const gm_call *call, const char *name, const gm_tensor *t, const gm_tensor *like)
{
    return gm_expect_shape(call, name, t, like->ndim, like->shape);
}

gm_status gm_expect_spec(const gm_call *call, const char *name, const gm_tensor *t, const gm_spec *spec)
{
    GM_TRY(gm_expect_shape(call, name, t, spec->ndim, spec->shape));
    if (!t || t->dtype == spec->dtype) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be %s", gm_op_called(call->op, call->attrs), name,
                   gm_dtype_name(t->dtype), gm_dtype_name(spec->dtype));
}

gm_status gm_expect_ndim(const gm_call *call, const char *name, const gm_tensor *t, int least)
{
    if (t->ndim >= least) return GM_OK;
    return GM_FAIL(GM_ESHAPE, "%s: %s is %s, needs at least %d dimension%s", gm_op_called(call->op, call->attrs), name,
                   GM_SHOW(t), least, least == 1 ? "" : "s");
}

gm_status gm_expect_range(const gm_call *call, const char *attr, double value, double low, double high)
{
    if (value >= low && value < high) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: %s is %g, should be in [%g, %g)", gm_op_called(call->op, call->attrs), attr, value,
                   low, high);
}

gm_status gm_expect_dim(const gm_call *call, const gm_tensor *t, int *dim)
{
    int64_t d = call->attrs->dim;
    if (d < -t->ndim || d >= t->ndim)
        return GM_FAIL(GM_EINVAL, "%s: there is no dimension %" PRId64 " in %s", gm_op_called(call->op, call->attrs),
                       d < 0 ? d : d + 1, GM_SHOW(t));
    *dim = (int)(d < 0 ? d + t->ndim : d);
    return GM_OK;
}

gm_status gm_expect_box(const gm_call *call, int ndim, const int64_t *shape, bool padded)
{
    const gm_box *box = &call->attrs->box;
    if (box->ndim == 0) return GM_OK;
    bool inside = box->ndim == ndim;
    for (int d = 0; inside && d < ndim; d++)
        inside = box->offset[d] >= 0 && box->offset[d] <= box->shape[d] &&
                 (padded || shape[d] <= box->shape[d] - box->offset[d]);
    if (inside) return GM_OK;
    int n = box->ndim < 0 || box->ndim > GM_MAX_DIMS ? 0 : box->ndim;
    return GM_FAIL(GM_EINVAL, "%s: a block %s at %s does not lie inside the global tensor %s",
                   gm_op_called(call->op, call->attrs), GM_SHOW_SHAPE(ndim, shape), GM_SHOW_SHAPE(n, box->offset),
                   GM_SHOW_SHAPE(n, box->shape));
}

gm_status gm_broadcast(const gm_call *call, const gm_tensor *t, int *ndim, int64_t *shape)
{
    int     n = *ndim > t->ndim ? *ndim : t->ndim;
    int64_t both[GM_MAX_DIMS];
    for (int d = 0; d < n; d++) {
        int     i = d - (n - *ndim), j = d - (n - t->ndim);
        int64_t a = i < 0 ? 1 : shape[i], b = j < 0 ? 1 : t->shape[j];
        if (a != b && a != 1 && b != 1)
            return GM_FAIL(GM_ESHAPE, "%s: %s and %s do not broadcast: sizes %" PRId64 " and %" PRId64 " differ",
                           gm_op_called(call->op, call->attrs), GM_SHOW_SHAPE(*ndim, shape), GM_SHOW(t), a, b);
        both[d] = a == 1 ? b : a;
    }
    *ndim = n;
    memcpy(shape, both, (size_t)n * sizeof *both);
    return GM_OK;
}

bool gm_function_is_activation(gm_function f) { return f >= GM_FN_relu && f <= GM_FN_tanh; }

/* The number of tensors against the list. For repeated groups: whole groups, at least none. */
static gm_status check_count(const gm_call *call, const char *what, int have, const gm_slots *s)
{
    if (have >= s->fixed && (s->repeats ? (have - s->fixed) % (s->n - s->fixed) == 0 : have == s->n)) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: %d %s given; it takes %d: '%s'", gm_op_called(call->op, call->attrs), have, what,
                   s->n, s->list);
}

static gm_status check_dtype(const gm_call *call, const gm_slot *slot, const gm_tensor *t, const gm_tensor **first)
{
    const char *op = gm_op_called(call->op, call->attrs), *have = gm_dtype_name(t->dtype);
    if (slot->content == GM_HOLDS_INDICES) {
        if (t->dtype == GM_I32 || t->dtype == GM_I64) return GM_OK;
        return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be i32 or i64", op, slot->name, have);
    }
    if (slot->content == GM_HOLDS_FLAGS) {
        if (t->dtype == GM_U8) return GM_OK;
        return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be u8", op, slot->name, have);
    }
    if (slot->content == GM_HOLDS_WHOLE) {
        if (t->dtype == GM_I64) return GM_OK;
        return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be i64", op, slot->name, have);
    }
    if (!gm_dtype_is_float(t->dtype))
        return GM_FAIL(GM_ESHAPE, "%s: %s is %s; arithmetic is on f32, f64, bf16 and f16: write %s:to(\"f32\")", op,
                       slot->name, have, slot->name);
    if (slot->wide && !*first && gm_dtype_is_narrow(t->dtype))
        return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be f32 or f64", op, slot->name, have);
    if (slot->wide && *first && t->dtype != gm_dtype_wide((*first)->dtype))
        return GM_FAIL(GM_ESHAPE, "%s: %s is %s, should be %s beside inputs of %s", op, slot->name, have,
                       gm_dtype_name(gm_dtype_wide((*first)->dtype)), gm_dtype_name((*first)->dtype));
    if (slot->wide) return GM_OK;
    if (*first && (*first)->dtype != t->dtype)
        return GM_FAIL(GM_ESHAPE, "%s: %s is %s, the inputs before it are %s: write %s:to(\"%s\")", op, slot->name,
                       have, gm_dtype_name((*first)->dtype), slot->name, gm_dtype_name((*first)->dtype));
    if (!*first) *first = t;
    return GM_OK;
}

static gm_status check_inputs(const gm_call *call)
{
    const gm_slots  *slots = gm_op_takes(call->op);
    const gm_tensor *first = NULL;
    for (int i = 0; i < call->n_in; i++) {
        const gm_slot *slot = gm_slots_at(slots, i);
        if (!call->in[i] && !slot->optional)
            return GM_FAIL(GM_EINVAL, "%s: input %d (%s) is missing", gm_op_called(call->op, call->attrs), i + 1,
                           slot->name);
        if (slots->repeats) first = NULL; /* each tensor alone; the rule compares within a group */
        if (call->in[i] && call->op != GM_OP_copy) GM_TRY(check_dtype(call, slot, call->in[i], &first));
    }
    return GM_OK;
}

static bool replaces(const gm_call *call)
{
    return strstr(gm_op_attrs(call->op), "accumulate") && !call->attrs->accumulate;
}

/* Before the rule: in-out outputs that are read must be there. */
static gm_status check_in_out(const gm_call *call)
{
    const gm_slots *slots = gm_op_gives(call->op);
    for (int i = 0; i < call->n_out; i++) {
        const gm_slot *slot = &slots->slot[i % slots->n];
        if (slot->inout && !slot->optional && !replaces(call) && (!call->out || !call->out[i]))
            return GM_FAIL(GM_EINVAL, "%s: output %d (%s) is updated in place and must be given",
                           gm_op_called(call->op, call->attrs), i + 1, slot->name);
    }
    return GM_OK;
}

/* After the rule: wide outputs are wide, and in-out outputs that were given as they should be. */
static gm_status finish_outputs(const gm_call *call, gm_spec *spec)
{
    const gm_slots *slots = gm_op_gives(call->op);
    if (slots->repeats) return GM_OK;
    for (int i = 0; i < slots->n; i++)
        if (slots->slot[i].wide) spec[i].dtype = gm_dtype_wide(spec[i].dtype);
    for (int i = 0; i < slots->n && call->out; i++)
        if (slots->slot[i].inout) GM_TRY(gm_expect_spec(call, slots->slot[i].name, call->out[i], &spec[i]));
    return GM_OK;
}

gm_status gm_infer(const gm_call *call, gm_spec *spec)
{
    gm_spec room[GM_MAX_OUT];
    GM_TRY(check_count(call, "inputs", call->n_in, gm_op_takes(call->op)));
    GM_TRY(check_count(call, "outputs", call->n_out, gm_op_gives(call->op)));
    GM_TRY(check_inputs(call));
    GM_TRY(check_in_out(call));
    if (!spec && !gm_op_gives(call->op)->repeats) spec = room;
    GM_TRY(rules[call->op](call, spec));
    return spec ? finish_outputs(call, spec) : GM_OK;
}

gm_status gm_check_outputs(const gm_call *call, const gm_spec *spec)
{
    const gm_slots *slots = gm_op_gives(call->op);
    for (int i = 0; i < call->n_out; i++) {
        const gm_tensor *t = call->out[i];
        const gm_slot   *slot = &slots->slot[i % slots->n];
        if (!t && !slot->optional)
            return GM_FAIL(GM_EINVAL, "%s: output %d (%s) is missing", gm_op_called(call->op, call->attrs), i + 1,
                           slot->name);
        if (spec) GM_TRY(gm_expect_spec(call, slot->name, t, &spec[i]));
        for (int d = 0; t && d < t->ndim; d++)
            if (t->stride[d] == 0 && t->shape[d] > 1)
                return GM_FAIL(GM_EINVAL, "%s: output %s %s repeats elements (an expanded view); write to a copy",
                               gm_op_called(call->op, call->attrs), slot->name, GM_SHOW(t));
    }
    return GM_OK;
}
