/* left.c - see left.h. */
#include "left.h"

#include <stdlib.h>

typedef struct leaf {
    gm_value  *value;
    gm_tensor *grad, *own, *row, *sum; /* those of gm_parameter; NULL: none */
    uint32_t   partial;
    bool       set, own_set;
} leaf;

struct gm_left {
    int  n;
    leaf leaves[];
};

static gm_tensor *kept(gm_tensor *t)
{
    if (t) gm_tensor_retain(t);
    return t;
}

static leaf leaf_of(gm_value *v)
{
    const gm_parameter *p = v->param;
    gm_value_retain(v);
    if (!p) return (leaf){.value = v};
    return (leaf){.value = v,
                  .grad = kept(p->grad),
                  .own = kept(p->own),
                  .row = kept(p->row),
                  .sum = kept(p->sum),
                  .partial = p->grad_partial,
                  .set = p->grad_set,
                  .own_set = p->own_set};
}

gm_status gm_left_new(int n, gm_value *const *leaves, gm_left **out)
{
    gm_left *left = calloc(1, sizeof *left + (size_t)n * sizeof *left->leaves);
    if (!left) return GM_FAIL(GM_ENOMEM, "no memory for a list of %d gradients", n);
    left->n = n;
    for (int i = 0; i < n; i++) left->leaves[i] = leaf_of(leaves[i]);
    *out = left;
    return GM_OK;
}

static void put(gm_tensor **place, gm_tensor *t)
{
    if (*place == t) return;
    gm_tensor_release(*place);
    *place = kept(t);
}

void gm_left_put_back(const gm_left *left)
{
    for (const leaf *it = left->leaves; it < left->leaves + left->n; it++) {
        gm_parameter *p = it->value->param;
        if (!p || !it->value->requires_grad) continue;
        put(&p->grad, it->grad);
        put(&p->own, it->own);
        put(&p->row, it->row);
        put(&p->sum, it->sum);
        p->grad_partial = it->partial;
        p->grad_set = it->set;
        p->own_set = it->own_set;
    }
}

void gm_left_free(gm_left *left)
{
    if (!left) return;
    for (leaf *it = left->leaves; it < left->leaves + left->n; it++) {
        gm_tensor *const tensors[] = {it->grad, it->own, it->row, it->sum};
        for (size_t k = 0; k < sizeof tensors / sizeof *tensors; k++) gm_tensor_release(tensors[k]);
        gm_value_release(it->value);
    }
    free(left);
}
