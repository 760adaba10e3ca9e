/* journal_op.c - what a record keeps of a call of gm_run. See journal.h. */
#include <string.h>

#include "device.h"
#include "profile.h"
#include "journal.h"

/* The least of the three dimensions of a product (of attention: of queries, keys and the width of a head). Rates of
 * products depend on it: a thin product reads its operands for little work. 0: the op makes no products. */
static int64_t least_dimension(const gm_call *c, double products)
{
    const gm_tensor *a = c->n_in > 1 ? c->in[0] : NULL, *b = c->n_in > 1 ? c->in[1] : NULL;
    double           m, n, k;
    if (products <= 0 || !a || !b || a->ndim < 2 || b->ndim < 2) return 0;
    if (c->op == GM_OP_attention || c->op == GM_OP_attention_grad) {
        m = (double)a->shape[1];
        n = (double)b->shape[1];
        k = (double)a->shape[a->ndim - 1];
    } else if (c->op == GM_OP_matmul) {
        m = (double)a->shape[a->ndim - (c->attrs->transpose_a ? 1 : 2)];
        k = (double)a->shape[a->ndim - (c->attrs->transpose_a ? 2 : 1)];
        n = (double)b->shape[b->ndim - (c->attrs->transpose_b ? 2 : 1)];
    } else if (c->op == GM_OP_grouped_matmul || c->op == GM_OP_grouped_weight_grad) { /* of a mean group */
        bool    weight = c->op == GM_OP_grouped_weight_grad;
        int64_t groups = weight ? c->in[2]->shape[0] - 1 : b->shape[0];
        m = (double)a->shape[0] / (groups > 0 ? (double)groups : 1);
        n = (double)b->shape[weight || c->attrs->transpose_b ? 1 : 2];
        k = (double)a->shape[1];
    } else if (c->op == GM_OP_convolution || c->op == GM_OP_transposed_convolution ||
               c->op == GM_OP_convolution_weight_grad) { /* channels out, channels in by places of the kernel, places */
        const gm_tensor *w = c->op == GM_OP_convolution_weight_grad && c->out[0] ? c->out[0] : b;
        m = (double)w->shape[0] / (double)c->attrs->groups;
        n = w->shape[0] ? (double)(gm_tensor_numel(w) / w->shape[0]) : 0;
        k = products / (2 * (double)c->attrs->groups * (m * n > 1 ? m * n : 1));
    } else {
        n = (double)b->shape[b->ndim - 1];
        k = (double)a->shape[a->ndim - 1];
        m = (double)gm_tensor_numel(a) / (k > 0 ? k : 1);
        if (c->op == GM_OP_linear) n = (double)b->shape[0];
    }
    double least = m < n ? m : n;
    return (int64_t)(least < k ? least : k);
}

static const gm_tensor *first_tensor(const gm_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i]) return c->in[i];
    for (int i = 0; i < c->n_out; i++)
        if (c->out[i]) return c->out[i];
    return NULL;
}

/* The name of an op without what the user calls it: rates belong to the work. */
static const char *name_of(const gm_call *c)
{
    gm_attrs plain = *c->attrs;
    plain.name = NULL;
    return gm_op_called(c->op, &plain);
}

void gm_journal_call(gm_journal *r, const gm_device *dev, const gm_call *call, double flops, double bytes)
{
    char             about[152], path[200];
    const gm_tensor *first = first_tensor(call);
    gm_event        *e = gm_journal_add(r, GM_EVENT_OP);
    if (!e) return;
    gm_profile_describe(call, about, sizeof about);
    gm_profile_path(dev, path, sizeof path);
    e->name = gm_journal_text(r, name_of(call));
    e->about = gm_journal_text(r, about);
    e->dtype = first ? gm_journal_text(r, gm_dtype_name(first->dtype)) : -1;
    e->path = gm_journal_text(r, path);
    e->flops = flops;
    e->bytes = bytes;
    e->products = gm_cost_products(call);
    e->size = least_dimension(call, e->products);
    e->again = r->again > 0;
}
