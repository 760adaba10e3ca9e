/* apply.c - running an op on values and recording it; see apply.h. Blocks are in apply_blocks.c, views in views.c. */
#include "apply.h"

#include <inttypes.h>

#include "anomaly.h"
#include "apply_blocks.h"
#include "gradients.h"

gm_status gm_check_dim(const char *op, int ndim, int64_t *dim)
{
    int64_t d = *dim < 0 ? *dim + ndim : *dim;
    if (d < 0 || d >= ndim)
        return GM_FAIL(GM_ESHAPE, "%s: dimension %" PRId64 " of a tensor with %d", op, *dim + (*dim >= 0), ndim);
    *dim = d;
    return GM_OK;
}

static gm_status record(gm_rank *r, const gm_value_call *c, gm_value *const *out)
{
    const gm_gradient *g = gm_gradient_of(c->op);
    gm_value          *saved[GM_MAX_SAVED] = {NULL};
    if (g->stops || !gm_tape_wanted(r, c->n_in, c->in)) return GM_OK;
    if (!g->rule)
        return GM_FAIL(GM_EINVAL, "%s has no gradient; run it under no_grad or detach its inputs",
                       gm_op_called(c->op, c->attrs));
    uint8_t kept = gm_gradient_inputs(c->op, c->attrs, c->n_out, out);
    for (int i = 0; i < c->n_in && i < GM_SLOT_OUTPUT; i++)
        if (kept & 1u << i) saved[i] = c->in[i];
    for (int j = 0; j < c->n_out && j < GM_MAX_SAVED - GM_SLOT_OUTPUT; j++)
        if (g->save_out & 1u << j) saved[GM_SLOT_OUTPUT + j] = out[j];
    gm_record rec = {.name = gm_op_called(c->op, c->attrs),
                     .rule = g->rule,
                     .op = c->op,
                     .attrs = c->attrs,
                     .n_in = c->n_in,
                     .in = c->in,
                     .n_out = c->n_out,
                     .out = out,
                     .n_saved = GM_MAX_SAVED,
                     .saved = saved,
                     .splits = g->splits};
    return gm_tape_record(r, &rec);
}

/* The kernel has run: records it, and lets go of what only the node needs. */
static gm_status finish(gm_rank *r, const gm_value_call *c, gm_value **out)
{
    GM_TRY(gm_rank_poll(r)); /* messages of a pipeline go on while parts of it compute */
    GM_TRY(record(r, c, out));
    for (int i = 0; c->want && i < c->n_out; i++) {
        if (c->want[i]) continue;
        gm_value_release(out[i]);
        out[i] = NULL;
    }
    return GM_OK;
}

bool gm_apply_makes(gm_rank *r, const gm_value_call *c, int i)
{
    if (!c->want || c->want[i] || !gm_slots_at(gm_op_gives(c->op), i)->optional) return true;
    return gm_gradient_outputs(c->op, c->attrs) & 1u << i && gm_tape_wanted(r, c->n_in, c->in);
}

gm_status gm_apply_blocks(gm_rank *r, const gm_value_call *c, gm_value **out)
{
    gm_value     *fitted[GM_APPLY_INPUTS];
    gm_attrs      a = *c->attrs;
    gm_value_call local = *c; /* the tape sees the inputs as they were fitted */
    local.in = fitted;
    local.attrs = &a;
    GM_TRY(gm_run_blocks(r, c, &a, fitted, out));
    gm_status st = finish(r, &local, out);
    gm_release_all(c->n_in, fitted);
    if (st != GM_OK) gm_release_all(c->n_out, out);
    return st;
}

/* Nothing is cut or partial. */
static gm_status apply_whole(gm_rank *r, const gm_value_call *c, gm_value **out)
{
    gm_spec    spec[GM_MAX_OUT];
    gm_tensor *ti[GM_APPLY_INPUTS], *to[GM_MAX_OUT] = {NULL};
    gm_call    call = {.op = c->op, .n_in = c->n_in, .n_out = c->n_out, .in = ti, .out = to, .attrs = c->attrs};
    for (int i = 0; i < c->n_in; i++) ti[i] = c->in[i] ? c->in[i]->local : NULL;
    GM_TRY(gm_infer(&call, spec));
    for (int i = 0; i < c->n_out; i++) {
        if (!gm_apply_makes(r, c, i)) continue;
        GM_TRY(gm_value_new(r, gm_op_called(c->op, c->attrs), spec[i].dtype, spec[i].ndim, spec[i].shape, &out[i]));
        to[i] = out[i]->local;
    }
    GM_TRY(gm_run(r->device, &call));
    return finish(r, c, out);
}

static gm_status apply_sharded(gm_rank *r, gm_sharded_op form, const gm_value_call *c, gm_value **out)
{
    GM_TRY(form(r, c, out));
    for (int i = 0; c->want && i < c->n_out; i++)
        if (c->want[i] && !out[i])
            return GM_FAIL(GM_EINVAL, "%s: there is no %s where the inputs are cut so", gm_op_called(c->op, c->attrs),
                           gm_slots_at(gm_op_gives(c->op), i)->name);
    return GM_OK;
}

/* Looks for numbers that are not finite. */
static gm_status check_results(gm_rank *r, const gm_value_call *c, gm_value *const *out)
{
    gm_anomaly_part given[GM_APPLY_INPUTS], made[GM_MAX_OUT];
    for (int i = 0; i < c->n_in; i++)
        given[i] = (gm_anomaly_part){gm_slots_at(gm_op_takes(c->op), i)->name, c->in[i] ? c->in[i]->local : NULL,
                                     false};
    for (int i = 0; i < c->n_out; i++) {
        const gm_slot *slot = gm_slots_at(gm_op_gives(c->op), i);
        made[i] = (gm_anomaly_part){slot->name, out[i] ? out[i]->local : NULL, slot->wide || c->op == GM_OP_fill};
    }
    return gm_anomaly_check(r, gm_op_called(c->op, c->attrs), r->path, c->n_in, given, c->n_out, made);
}

gm_status gm_apply(gm_rank *r, gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, int n_out,
                   const bool *want, gm_value **out)
{
    gm_value_call c = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .attrs = attrs, .want = want};
    gm_sharded_op form = r->sharded ? r->sharded->form[op] : NULL;
    gm_device    *dev;
    gm_status     st;
    if (n_in > GM_APPLY_INPUTS || n_out > GM_MAX_OUT) return GM_FAIL(GM_EINVAL, "%s: too many tensors", gm_op_name(op));
    GM_TRY(gm_rank_device(r, &dev));
    for (int i = 0; i < n_out; i++) out[i] = NULL;
    if (gm_all_replicated(r, n_in, in)) st = apply_whole(r, &c, out);
    else st = form ? apply_sharded(r, form, &c, out) : gm_apply_blocks(r, &c, out);
    if (st == GM_OK && r->detect_anomaly) st = check_results(r, &c, out);
    if (st != GM_OK) gm_release_all(n_out, out);
    return st;
}

gm_status gm_apply_first(gm_rank *r, gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, gm_value **out)
{
    bool      want[GM_MAX_OUT] = {true};
    gm_value *all[GM_MAX_OUT];
    GM_TRY(gm_apply(r, op, n_in, in, attrs, gm_op_gives(op)->n, want, all));
    *out = all[0];
    return GM_OK;
}
