/* apply_blocks.c - gm_apply where some input is cut or partial; see apply.h.
 *
 * The call is checked twice: on the global shapes, which users see and messages name, and on the blocks that the kernel
 * gets. In between, the op's layout rule gives the layouts of the outputs and how the inputs must be fitted. */
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

gm_status gm_judge_call(const gm_value_call *c, gm_spec *global)
{
    gm_tensor headers[GM_APPLY_INPUTS], *list[GM_APPLY_INPUTS];
    gm_call   call = {.op = c->op, .n_in = c->n_in, .n_out = c->n_out, .in = list, .attrs = c->attrs};
    global_headers(c->n_in, c->in, headers, list);
    gm_status st = gm_infer(&call, global);
    return st == GM_OK ? GM_OK : with_layouts(st, c->n_in, c->in);
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

/* The kernel on the blocks of c; makes out[]. */
static gm_status run_local(gm_rank *r, const gm_value_call *c, const gm_spec *global, const gm_layout *layout,
                           gm_value **out)
{
    gm_spec    local[GM_MAX_OUT];
    gm_tensor *ti[GM_APPLY_INPUTS], *to[GM_MAX_OUT] = {NULL};
    gm_call    call = {.op = c->op, .n_in = c->n_in, .n_out = c->n_out, .in = ti, .out = to, .attrs = c->attrs};
    for (int i = 0; i < c->n_in; i++) ti[i] = c->in[i] ? c->in[i]->local : NULL;
    GM_TRY(gm_infer(&call, local));
    for (int i = 0; i < c->n_out; i++) {
        if (!gm_apply_makes(r, c, i)) continue;
        GM_TRY(gm_new_output(r, gm_op_called(c->op, c->attrs), &local[i], &layout[i], &global[i], &out[i]));
        to[i] = out[i]->local;
    }
    GM_TRY(gm_run(r->device, &call));
    return finish_all(&call, out);
}

gm_status gm_run_blocks(gm_rank *r, const gm_value_call *c, gm_attrs *attrs, gm_value **fitted, gm_value **out)
{
    gm_spec       global[GM_MAX_OUT];
    gm_layout     layout[GM_MAX_OUT];
    gm_fit        fit[GM_APPLY_INPUTS];
    gm_value_call local = *c;
    local.in = fitted;
    local.attrs = attrs;
    GM_TRY(gm_judge_call(c, global));
    GM_TRY(gm_layout_rule(r, c->op, c->n_in, c->in, attrs, c->n_out, global, layout, fit));
    GM_TRY(gm_fit_all(r, c->n_in, c->in, fit, fitted));
    gm_status st = run_local(r, &local, global, layout, out);
    if (st == GM_OK) return GM_OK;
    gm_release_all(c->n_in, fitted);
    gm_release_all(c->n_out, out);
    return st;
}
