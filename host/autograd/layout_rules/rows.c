/* rows.c - layouts of ops that work along one dimension, which must be whole, and leave the others alone: norms,
 * softmax, losses, embedding, attention. Not linear, so that no operand may be partial, but for an embedding's
 * table. */
#include "family.h"

/* All dimensions of input i but one are the output's. */
static gm_status join_others(gm_rule_call *c, int i, int along)
{
    for (int d = 0; c->in[i] && d < c->in[i]->ndim; d++)
        if (d != along) GM_TRY(gm_rule_join(c, i, d, d));
    return GM_OK;
}

/* x and residual (..., n), parameters (n). */
static gm_status layer_or_rms_norm(gm_rule_call *c)
{
    int last = c->in[0]->ndim - 1;
    for (int i = 0; i < c->n_in; i++)
        GM_TRY(gm_rule_whole(c, i, i < 2 ? last : 0, "the last dimension, which is normalised over, is cut"));
    for (int i = 0; i < 2; i++) GM_TRY(join_others(c, i, last));
    return gm_rule_slices(c);
}

static gm_status softmax(gm_rule_call *c)
{
    int dim = (int)(c->attrs->dim < 0 ? c->attrs->dim + c->in[0]->ndim : c->attrs->dim);
    for (int i = 0; i < c->n_in; i++) {
        GM_TRY(gm_rule_whole(c, i, dim, "the dimension of the softmax is cut"));
        GM_TRY(join_others(c, i, dim));
    }
    return gm_rule_slices(c);
}

static gm_status cumsum(gm_rule_call *c)
{
    int dim = (int)(c->attrs->dim < 0 ? c->attrs->dim + c->in[0]->ndim : c->attrs->dim);
    GM_TRY(gm_rule_whole(c, 0, dim, "the dimension that is summed along is cut"));
    GM_TRY(join_others(c, 0, dim));
    return gm_rule_slices(c);
}

static gm_status top_k(gm_rule_call *c)
{
    int last = c->in[0]->ndim - 1;
    GM_TRY(gm_rule_whole(c, 0, last, "the dimension whose largest are picked is cut"));
    GM_TRY(join_others(c, 0, last));
    return gm_rule_slices(c);
}

static gm_status sort(gm_rule_call *c)
{
    int last = c->in[0]->ndim - 1;
    GM_TRY(gm_rule_whole(c, 0, last, "the dimension that is sorted is cut"));
    GM_TRY(join_others(c, 0, last));
    return gm_rule_slices(c);
}

/* x (b, s, ..., d), frequency (r), index (s) or (b, s). A block knows the place of its positions in the sequence. */
static gm_status rotary(gm_rule_call *c)
{
    const gm_value *x = c->in[0], *index = c->in[2];
    int             last = x->ndim - 1;
    GM_TRY(gm_rule_whole(c, 0, last, "the dimension in which pairs are turned is cut"));
    GM_TRY(gm_rule_whole(c, 1, 0, "the frequencies are cut"));
    if (c->attrs->rotated)
        GM_TRY(gm_rule_whole(c, 0, last - 1, "the dimension of which only some entries are turned is cut"));
    GM_TRY(join_others(c, 0, last));
    for (int d = 0; index && d < index->ndim; d++) GM_TRY(gm_rule_join(c, 2, d, d + 2 - index->ndim));
    GM_TRY(gm_rule_slices(c));
    return index ? GM_OK : gm_rule_box(c->r, c->attrs, &c->out[0], x->ndim, x->shape);
}

/* segment (b, s) -> (b, s, 3) */
static gm_status documents(gm_rule_call *c)
{
    GM_TRY(gm_rule_whole(c, 0, 1, "documents are found in whole sequences, but the sequence is cut"));
    GM_TRY(gm_rule_join(c, 0, 0, 0));
    return gm_rule_slices(c);
}

gm_status gm_layout_rule_norm(gm_rule_call *c)
{
    GM_TRY(gm_rule_no_partial(c));
    switch (c->op) {
    case GM_OP_layer_norm:
    case GM_OP_rms_norm: return layer_or_rms_norm(c);
    case GM_OP_cumsum: return cumsum(c);
    case GM_OP_softmax:
    case GM_OP_softmax_grad:
    case GM_OP_log_softmax:
    case GM_OP_log_softmax_grad: return softmax(c);
    case GM_OP_top_k: return top_k(c);
    case GM_OP_sort: return sort(c);
    case GM_OP_rotary: return rotary(c);
    case GM_OP_documents: return documents(c);
    default: return gm_layout_rule_optimizer(c);
    }
}

/* logits (..., classes), target (...), scale () */
gm_status gm_layout_rule_loss(gm_rule_call *c)
{
    int last = c->in[0]->ndim - 1;
    if (c->op != GM_OP_cross_entropy && c->op != GM_OP_cross_entropy_both) return gm_layout_rule_optimizer(c);
    GM_TRY(gm_rule_no_partial(c));
    GM_TRY(gm_rule_whole(c, 0, last, "the dimension of classes is cut"));
    GM_TRY(join_others(c, 0, last));
    GM_TRY(join_others(c, 1, -1));
    return gm_rule_slices(c);
}

/* index, row and weight (b, t, n) are cut alike by bags, y (b, t, width) by these and by columns of w (rows, width). */
gm_status gm_rule_bags(gm_rule_call *c)
{
    GM_TRY(gm_rule_whole(c, 2, 0, "the bounds of the tables are cut"));
    for (int i = 1; i <= 3; i += 2) {
        GM_TRY(gm_rule_whole(c, i, 1, "the tables are cut"));
        GM_TRY(gm_rule_whole(c, i, 2, "the places of a bag are cut"));
        GM_TRY(gm_rule_join(c, i, 0, 0));
    }
    return gm_rule_join(c, 0, 1, 2);
}

static gm_status embedding_bag(gm_rule_call *c)
{
    GM_TRY(gm_rule_no_partial(c));
    GM_TRY(gm_rule_whole(c, 0, 0, "the rows of the table are cut"));
    GM_TRY(gm_rule_bags(c));
    GM_TRY(gm_rule_slices(c));
    if (c->n_out < 2) return GM_OK;
    c->out[1] = gm_layout_replicated();
    gm_layout_copy_dim(&c->out[1], 0, &c->out[0], 0);
    return GM_OK;
}

/* w (rows, width), index (...) -> (..., width) */
gm_status gm_layout_rule_embedding(gm_rule_call *c)
{
    if (c->op == GM_OP_embedding_bag) return embedding_bag(c);
    if (c->op != GM_OP_embedding) return gm_layout_rule_optimizer(c);
    GM_TRY(gm_rule_whole(c, 0, 0, "the rows of the table are cut"));
    GM_TRY(join_others(c, 1, -1));
    GM_TRY(gm_rule_join(c, 0, 1, c->in[1]->ndim));
    if (c->in[1]->layout.partial) return gm_rule_no_partial(c);
    c->out[0].partial = c->in[0]->layout.partial;
    return gm_rule_slices(c);
}

/* ---- attention: batch and heads may be cut ---- */

/* Heads that are grouped must be cut so that each block has whole groups. */
static gm_status check_groups(const gm_rule_call *c, const gm_layout *q, int64_t heads, int64_t kv_heads)
{
    int parts = gm_layout_parts(&c->r->mesh, q, 2);
    if (parts == 1 || ((heads == kv_heads || kv_heads % parts == 0) && (c->attrs->p == 0 || heads % parts == 0)))
        return GM_OK;
    return gm_rule_refuse(c, c->attrs->p == 0 ? "the parts that the heads are cut into do not divide the key heads"
                                              : "with dropout, the heads must be cut evenly");
}

static gm_layout lse_of(const gm_layout *o)
{
    gm_layout all = *o;
    return gm_layout_permute(&all, 4, (int[]){0, 2, 1, 3});
}

/* The dropout of the probabilities (b, h, s, t). */
static gm_status attention_box(gm_rule_call *c, const gm_layout *o, int64_t keys)
{
    gm_layout probabilities = lse_of(o);
    int64_t   shape[4] = {c->global[0].shape[0], c->global[0].shape[2], c->global[0].shape[1], keys};
    return c->attrs->p > 0 ? gm_rule_box(c->r, c->attrs, &probabilities, 4, shape) : GM_OK;
}

/* Batch and heads of q (b, s, h, d), k and v (b, t, hk, d), key_mask (b, t), limits (b, s, 2). */
gm_status gm_rule_attention_dims(gm_rule_call *c)
{
    GM_TRY(gm_rule_no_partial(c));
    for (int i = 0; i < 3; i++) GM_TRY(gm_rule_whole(c, i, 3, "the size of the heads is cut"));
    GM_TRY(gm_rule_whole(c, 4, 2, "a first and an end belong together, but limits are cut between them"));
    for (int i = 0; i < 5; i++) GM_TRY(gm_rule_join(c, i, 0, 0));
    GM_TRY(gm_rule_join(c, 0, 2, 2));
    bool grouped = c->in[1]->shape[2] != c->in[0]->shape[2];
    for (int i = 1; i < 3; i++) {
        if (!grouped) {
            GM_TRY(gm_rule_join(c, i, 2, 2));
            continue;
        }
        const gm_layout *k = &c->in[i]->layout, *q = &c->out[0];
        if (k->n_cuts[2] && (k->n_cuts[2] != q->n_cuts[2] || gm_layout_dim_axes(k, 2) != gm_layout_dim_axes(q, 2)))
            return gm_rule_refuse(c, "query heads and key heads are cut in different ways");
        c->to[i][2] = 2;
    }
    return check_groups(c, &c->out[0], c->in[0]->shape[2], c->in[1]->shape[2]);
}

/* bias (n, h, s, t): of these only the heads may be cut, as those of q are. A block of samples knows its first one. */
static gm_status attention_bias(gm_rule_call *c)
{
    static const char *const why[] = {"the samples of the bias are cut", NULL, "the queries of the bias are cut",
                                      "the keys of the bias are cut"};
    for (int d = 0; d < 4; d++)
        if (why[d]) GM_TRY(gm_rule_whole(c, 5, d, why[d]));
    return gm_rule_join(c, 5, 1, 2);
}

static void attention_row(gm_rule_call *c)
{
    gm_box  block;
    int64_t local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    if (!c->in[5]) return;
    gm_layout_block(&c->r->mesh, &c->out[0], c->r->coordinate, 4, c->global[0].shape, &block, local, logical);
    c->attrs->row = block.offset[0];
}

/* q (b, s, h, d), k and v (b, t, hk, d), key_mask (b, t), limits (b, s, 2), bias (n, h, s, t) */
gm_status gm_layout_rule_attention(gm_rule_call *c)
{
    if (c->op != GM_OP_attention) return gm_layout_rule_optimizer(c);
    for (int i = 0; i < 5; i++) GM_TRY(gm_rule_whole(c, i, 1, "the sequence is cut"));
    GM_TRY(gm_rule_attention_dims(c));
    GM_TRY(attention_bias(c));
    GM_TRY(gm_rule_slices(c));
    c->out[1] = lse_of(&c->out[0]);
    attention_row(c);
    return attention_box(c, &c->out[0], c->in[1]->shape[1]);
}

/* ---- what only the tape and the optimizer run, on blocks ---- */

gm_status gm_layout_rule_optimizer(gm_rule_call *c)
{
    return gm_rule_refuse(c, "this op runs on blocks only, not on tensors that are cut or partial");
}

gm_status gm_layout_rule_experts(gm_rule_call *c) { return gm_layout_rule_optimizer(c); }
gm_status gm_layout_rule_rowwise(gm_rule_call *c) { return gm_layout_rule_optimizer(c); }
