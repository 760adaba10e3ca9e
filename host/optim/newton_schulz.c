/* newton_schulz.c - see newton_schulz.h. */
#include "newton_schulz.h"

/* x / max(|x|, eps) */
static gm_tensor *normalized(gm_work *w, const gm_newton_schulz *rule, gm_tensor *x)
{
    gm_tensor *sum = gm_work_new(w, GM_F64, 0, NULL);
    gm_work_into(w, GM_OP_sum_squares, 1, &x, NULL, 1, &sum);
    gm_tensor *norm = gm_work_unary(w, GM_FN_sqrt, sum);
    norm = gm_work_binary(w, GM_FN_maximum, norm, gm_work_scalar(w, GM_F64, rule->eps));
    if (w->st != GM_OK) return NULL;
    gm_tensor *in[] = {x, gm_work_cast(w, gm_work_unary(w, GM_FN_reciprocal, norm), x->dtype)};
    gm_tensor *y = gm_work_like(w, x);
    gm_work_into(w, GM_OP_scale, 2, in, NULL, 1, &y);
    return y;
}

/* y + alpha p q, in the place of y */
static gm_tensor *add_product(gm_work *w, gm_tensor *y, gm_tensor *p, gm_tensor *q, double alpha)
{
    gm_attrs a = gm_attrs_default();
    a.alpha = alpha;
    a.accumulate = true;
    gm_work_into(w, GM_OP_matmul, 2, (gm_tensor *[]){p, q}, &a, 1, &y);
    return y;
}

gm_tensor *gm_orthogonalize(gm_work *w, const gm_newton_schulz *rule, gm_tensor *x)
{
    gm_attrs   gram = gm_attrs_default();
    int        mark = w->n_held;
    gm_tensor *y = gm_work_keep(w, normalized(w, rule, x));
    gram.transpose_b = true;
    for (int i = 0; i < rule->steps && w->st == GM_OK; i++) {
        gm_work_drop(w, mark);
        y = gm_work_hold(w, y);
        gm_tensor *a = gm_work_run(w, GM_OP_matmul, 2, (gm_tensor *[]){y, y}, &gram);
        gm_tensor *b = add_product(w, gm_work_affine(w, a, rule->b, 0), a, a, rule->c);
        y = gm_work_keep(w, add_product(w, gm_work_affine(w, y, rule->a, 0), b, y, 1));
    }
    gm_work_drop(w, mark);
    return gm_work_hold(w, y);
}
