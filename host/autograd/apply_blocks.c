/* apply_blocks.c - gm_apply where some input is cut or partial; see apply.h.
 *
 * The call is judged twice: on the global shapes, which the user sees and messages name, and on the blocks that the
 * kernel gets. In between the op's layout rule says what the outputs are and how inputs must be fitted. */
#include <stdio.h>
#include <string.h>
#include "padding.h"
#include "apply_blocks.h"

/* Headers without storage that have the values' global shapes, for gm_infer. */
static void global_headers(int n, gm_value *const *v, gm_tensor *headers, gm_tensor **list)
{
    for (int i = 0; i < n; i++) {
        list[i] = NULL;
        if (!v[i]) continue;
        headers[i] = (gm_tensor){.dtype = v[i]->local->dtype, .ndim = v[i]->ndim};
        memcpy(headers[i].shape, v[i]->shape, sizeof headers[i].shape);
        gm_shape_strides(v[i]->ndim, v[i]->shape, headers[i].stride);
        list[i] = &headers[i];
    }
}

/* The failure of a call on whole tensors, and how its inputs are laid out. */
static gm_status with_layouts(gm_status st, int n, gm_value *const *v)
{
    char   text[1500], one[256];
    size_t at = (size_t)snprintf(text, sizeof text, "%s; inputs:", gm_last_error());
    for (int i = 0; i < n && at < sizeof text; i++)
        if (v[i]) at += (size_t)snprintf(text + at, sizeof text - at, " %s;", gm_value_describe(v[i], one, sizeof one));
    return gm_fail_again(st, text);
}

gm_status gm_judge_call(gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, int n_out, gm_spec *global)
{
    gm_tensor headers[GM_APPLY_INPUTS], *list[GM_APPLY_INPUTS];
    gm_call   c = {.op = op, .n_in = n_in, .n_out = n_out, .in = list, .attrs = attrs};
    global_headers(n_in, in, headers, list);
    gm_status st = gm_infer(&c, global);
    return st == GM_OK ? GM_OK : with_layouts(st, n_in, in);
}

gm_status gm_fit_all(gm_rank *r, int n, gm_value *const *in, const gm_fit *fit, gm_value **fitted)
{
    for (int i = 0; i < n; i++) fitted[i] = NULL;
    for (int i = 0; i < n; i++) {
        gm_status st = in[i] ? gm_fit_value(r, in[i], &fit[i], &fitted[i]) : GM_OK;
        if (st == GM_OK) continue;
        gm_release_all(n, fitted);
        return st;
    }
    return GM_OK;
}

void gm_release_all(int n, gm_value **v)
{
    for (int i = 0; i < n; i++) {
        gm_value_release(v[i]);
        v[i] = NULL;
    }
}

gm_status gm_new_output(gm_rank *r, const char *op, const gm_spec *local, const gm_layout *layout,
                        const gm_spec *global, gm_value **out)
{
    gm_tensor *t = NULL;
    gm_rank_place(r, op);
    GM_TRY(gm_tensor_new(r->device, local->dtype, local->ndim, local->shape, &t));
    GM_TRY(gm_padding_poison_new(r, t));
    return gm_value_take_block(r, t, layout, global->ndim, global->shape, out);
}

/* A box may reach over the end of the tensor by the padding of its block: what is inside is drawn. */
static gm_status run_inside(gm_device *dev, const gm_call *c, const int64_t *inside)
{
    gm_tensor *x = c->in[0], *y = c->out[0], *in = NULL, *out = NULL;
    gm_status  st;
    GM_TRY(gm_run_one(dev, GM_OP_fill, NULL, NULL, y));
    GM_TRY(gm_tensor_view(x, x->ndim, inside, x->stride, x->offset, &in));
    GM_TRY_OR(gm_tensor_view(y, y->ndim, inside, y->stride, y->offset, &out), st, done);
    st = gm_run_one(dev, c->op, c->attrs, in, out);
done:
    gm_tensor_release(in);
    gm_tensor_release(out);
    return st;
}

gm_status gm_run_dropout(gm_device *dev, const gm_call *c)
{
    const gm_box *box = &c->attrs->box;
    int64_t       inside[GM_MAX_DIMS];
    bool          fits = true;
    for (int d = 0; d < box->ndim; d++) {
        int64_t room = box->shape[d] - box->offset[d], n = c->in[0]->shape[d];
        inside[d] = n < room ? n : room;
        fits &= inside[d] == n;
    }
    return fits ? gm_run(dev, c) : run_inside(dev, c, inside);
}

/* Is every operand zero wherever the result is padded? One that is repeated along such a dimension is not. */
static bool covered(const gm_call *c, const gm_value *y)
{
    int64_t logical[GM_MAX_DIMS];
    gm_value_logical(y, logical);
    for (int d = 0; d < y->ndim; d++) {
        int64_t n = y->local->shape[d];
        for (int i = 0; logical[d] < n && i < c->n_in; i++) {
            int e = d - y->ndim + c->in[i]->ndim;
            if (e < 0 || c->in[i]->shape[e] != n) return false;
        }
    }
    return true;
}

/* Clears what a kernel has left in the padding of its results. */
static gm_status finish_all(const gm_call *c, gm_value *const *out)
{
    for (int i = 0; i < c->n_out; i++) {
        gm_value *y = out[i];
        if (!y || !y->padded) continue;
        if (gm_keeps_zero(c->op, c->attrs) && (c->n_in == 1 || covered(c, y))) continue;
        GM_TRY(gm_padding_poison(y->rank, &y->layout, y->ndim, y->shape, y->local));
        GM_TRY(gm_padding_finish(y));
    }
    return GM_OK;
}

/* The kernel on the blocks; makes out[]. attrs are the local call's. */
static gm_status run_local(gm_rank *r, gm_op op, int n_in, gm_value *const *in, const gm_attrs *attrs, int n_out,
                           const bool *want, const gm_spec *global, const gm_layout *layout, gm_value **out)
{
    gm_spec    local[GM_MAX_OUT];
    gm_tensor *ti[GM_APPLY_INPUTS], *to[GM_MAX_OUT] = {NULL};
    gm_attrs   boxless = *attrs;
    gm_call    c = {.op = op, .n_in = n_in, .n_out = n_out, .in = ti, .out = to, .attrs = &boxless};
    for (int i = 0; i < n_in; i++) ti[i] = in[i] ? in[i]->local : NULL;
    if (op == GM_OP_dropout) boxless.box.ndim = 0; /* gm_run_dropout sees to it */
    GM_TRY(gm_infer(&c, local));
    c.attrs = attrs;
    for (int i = 0; i < n_out; i++) {
        if (want && !want[i]) continue;
        GM_TRY(gm_new_output(r, gm_op_called(op, attrs), &local[i], &layout[i], &global[i], &out[i]));
        to[i] = out[i]->local;
    }
    GM_TRY(op == GM_OP_dropout ? gm_run_dropout(r->device, &c) : gm_run(r->device, &c));
    return finish_all(&c, out);
}

gm_status gm_apply_blocks(gm_rank *r, gm_op op, int n_in, gm_value *const *in, gm_attrs *attrs, int n_out,
                          const bool *want, gm_value **fitted, gm_value **out)
{
    gm_spec   global[GM_MAX_OUT];
    gm_layout layout[GM_MAX_OUT];
    gm_fit    fit[GM_APPLY_INPUTS];
    GM_TRY(gm_judge_call(op, n_in, in, attrs, n_out, global));
    GM_TRY(gm_layout_rule(r, op, n_in, in, attrs, n_out, global, layout, fit));
    GM_TRY(gm_fit_all(r, n_in, in, fit, fitted));
    gm_status st = run_local(r, op, n_in, fitted, attrs, n_out, want, global, layout, out);
    if (st != GM_OK) {
        gm_release_all(n_in, fitted);
        gm_release_all(n_out, out);
    }
    return st;
}
