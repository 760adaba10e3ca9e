/* rules.c - see rules.h. */
#include "rules.h"

#include <string.h>

gm_status gm_rule_into(gm_backward *b, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs, int n_out,
                       gm_tensor *const *out)
{
    gm_call c = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs};
    return gm_run(gm_backward_device(b), &c);
}

gm_status gm_rule_run(gm_backward *b, gm_op op, int n_in, gm_tensor *const *in, const gm_attrs *attrs, gm_tensor **out)
{
    gm_spec    spec;
    gm_tensor *t = NULL;
    gm_call    c = {.op = op, .n_in = n_in, .n_out = 1, .in = in, .out = &t, .attrs = attrs};
    GM_TRY(gm_infer(&c, &spec));
    GM_TRY(gm_backward_new(b, &spec, &t));
    gm_status st = gm_run(gm_backward_device(b), &c);
    if (st != GM_OK) gm_tensor_release(t);
    else *out = t;
    return st;
}

gm_status gm_rule_affine(gm_backward *b, gm_tensor *x, double alpha, double beta, gm_tensor **out)
{
    gm_attrs a = gm_attrs_default();
    a.alpha = alpha;
    a.beta = beta;
    return gm_rule_run(b, GM_OP_affine, 1, &x, &a, out);
}

gm_status gm_rule_scale(gm_backward *b, gm_tensor *x, double alpha, gm_tensor **out)
{
    return gm_rule_affine(b, x, alpha, 0, out);
}

gm_status gm_rule_full(gm_backward *b, const gm_spec *spec, double value, gm_tensor **out)
{
    gm_attrs a = gm_attrs_default();
    a.value = value;
    GM_TRY(gm_backward_new(b, spec, out));
    gm_status st = gm_rule_into(b, GM_OP_fill, 0, NULL, &a, 1, out);
    if (st != GM_OK) gm_tensor_release(*out);
    return st;
}

gm_status gm_rule_contiguous(gm_backward *b, gm_tensor *x, gm_tensor **out)
{
    if (gm_tensor_is_contiguous(x)) {
        gm_tensor_retain(x);
        *out = x;
        return GM_OK;
    }
    gm_attrs a = gm_attrs_default();
    return gm_rule_run(b, GM_OP_copy, 1, &x, &a, out);
}

gm_status gm_rule_rows(gm_backward *b, gm_tensor *x, gm_tensor **out)
{
    int64_t shape[2] = {1, x->ndim ? x->shape[x->ndim - 1] : 1};
    for (int d = 0; d < x->ndim - 1; d++) shape[0] *= x->shape[d];
    if (gm_tensor_can_reshape(x, 2, shape)) return gm_tensor_reshape(x, 2, shape, out);
    gm_tensor *copy = NULL;
    gm_attrs   a = gm_attrs_default();
    GM_TRY(gm_rule_run(b, GM_OP_copy, 1, &x, &a, &copy));
    gm_status st = gm_tensor_reshape(copy, 2, shape, out);
    gm_tensor_release(copy);
    return st;
}

gm_status gm_rule_sum_to(gm_backward *b, gm_tensor *x, const gm_spec *spec, gm_tensor **out)
{
    gm_attrs a = gm_attrs_default();
    int      lead = x->ndim - spec->ndim;
    a.keepdim = true;
    for (int d = 0; d < x->ndim; d++)
        if (d < lead || (spec->shape[d - lead] == 1 && x->shape[d] != 1)) a.dims |= 1u << d;
    if (!a.dims) {
        gm_tensor_retain(x);
        *out = x;
        return GM_OK;
    }
    gm_tensor *t = NULL;
    GM_TRY(gm_rule_run(b, GM_OP_sum, 1, &x, &a, &t));
    gm_status st = gm_tensor_reshape(t, spec->ndim, spec->shape, out);
    gm_tensor_release(t);
    return st;
}
