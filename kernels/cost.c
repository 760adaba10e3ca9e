/* cost.c - the floating-point operations and the bytes moved by each op.
 *
 * A multiplication and an addition are two operations. Functions such as exp and tanh count as one operation each, as
 * in most publications, so that the figures can be compared. Bytes are the fewest that any implementation moves: it
 * reads each input once, writes each output once, and also reads in-out outputs. */
#include <string.h>

#include "op.h"

static double numel(const gm_tensor *t) { return t ? (double)gm_tensor_numel(t) : 0; }
static double first_in(const gm_call *c) { return numel(c->in[0]); }
static double first_out(const gm_call *c) { return numel(c->out[0]); }

static double flops_fill(const gm_call *c)
{
    (void)c;
    return 0;
}
static double flops_copy(const gm_call *c)
{
    (void)c;
    return 0;
}
static double flops_axpy(const gm_call *c) { return 2 * first_in(c); }
static double flops_affine(const gm_call *c) { return 2 * first_in(c); }
static double flops_scale(const gm_call *c) { return (c->attrs->accumulate ? 2 : 1) * first_in(c); }
static double flops_unary(const gm_call *c) { return first_in(c); }
static double flops_unary_grad(const gm_call *c) { return 2 * first_in(c); }
static double flops_binary(const gm_call *c) { return first_out(c); }
static double flops_gate_grad(const gm_call *c) { return 5 * first_in(c); }
static double flops_lstm_cell(const gm_call *c) { return first_out(c) * (c->in[1] ? 13 : 9); }
static double flops_lstm_cell_grad(const gm_call *c) { return 24 * numel(c->in[5]); }
static double flops_gru_cell(const gm_call *c) { return first_out(c) * (c->in[1] ? 11 : 8); }
static double flops_gru_cell_grad(const gm_call *c) { return first_out(c) / 3 * 16; }
static double flops_compare(const gm_call *c) { return first_out(c); }
static double flops_where(const gm_call *c) { return first_out(c); }
static double flops_uniform(const gm_call *c) { return first_out(c); }
static double flops_normal(const gm_call *c) { return first_out(c); }
static double flops_dropout(const gm_call *c) { return first_in(c); }

static double flops_matmul(const gm_call *c)
{
    const gm_tensor *a = c->in[0];
    return 2 * first_out(c) * (double)a->shape[a->ndim - 1 - c->attrs->transpose_a];
}

static double linear_product(const gm_call *c) { return 2 * first_out(c) * (double)c->in[1]->shape[1]; }

static double flops_linear(const gm_call *c)
{
    return linear_product(c) + first_out(c) * ((c->in[2] ? 1 : 0) + (c->attrs->function ? 1 : 0));
}

static double flops_bias_activation_grad(const gm_call *c)
{
    return first_in(c) * ((c->out[1] ? 1 : 0) + (c->attrs->function ? 2 : 0));
}

/* g' x and g w: each element of the second operand is multiplied with a row or column of g */
static double weight_product(const gm_call *c) { return 2 * first_in(c) * (double)c->in[1]->shape[1]; }
/* a number is its code times a scale; the product is that of the numbers */
static double flops_quantize(const gm_call *c) { return 2 * first_in(c); }
static double flops_dequantize(const gm_call *c) { return first_out(c); }
static double quantized_product(const gm_call *c)
{
    return 2 * first_out(c) * (double)c->in[0]->shape[c->in[0]->ndim - 1];
}
static double flops_linear_quantized(const gm_call *c)
{
    return quantized_product(c) + first_out(c) * ((c->in[2] ? 1 : 0) + (c->attrs->function ? 1 : 0));
}
static double flops_float8_scale(const gm_call *c) { return first_in(c); }
static double flops_float8_encode(const gm_call *c) { return 2 * first_in(c); }
static double float8_product(const gm_call *c) { return 2 * first_out(c) * (double)c->in[1]->shape[1]; }
static double flops_float8_product(const gm_call *c) { return float8_product(c) + (c->in[4] ? first_out(c) : 0); }
/* the largest of each block, then a quotient and a code; square: the codes are the same in both orders */
static double flops_float8_block_encode(const gm_call *c)
{
    return 3 * first_in(c) * (c->out[0] && c->out[2] && !c->attrs->square ? 2 : 1);
}
static double flops_float8_block_product(const gm_call *c) { return flops_float8_product(c); }
static double flops_linear_weight_grad(const gm_call *c) { return weight_product(c) + (c->out[1] ? first_in(c) : 0); }
static double flops_linear_input_grad(const gm_call *c) { return weight_product(c) + 2 * first_out(c); }

/* of each element of the side of the kernel's places, out or in, the products with a row of w */
static double convolution_product(const gm_call *c)
{
    bool             of_weight = c->op == GM_OP_convolution_weight_grad;
    const gm_tensor *w = of_weight ? c->out[0] : c->in[1];
    double           n = c->op == GM_OP_convolution ? first_out(c) : first_in(c);
    for (int d = 1; d < c->in[0]->ndim; d++)
        n *= (double)(w ? w->shape[d] : d == 1 ? c->in[1]->shape[1] / c->attrs->groups : c->attrs->kernel.at[d - 2]);
    return 2 * n;
}
static double flops_convolution(const gm_call *c)
{
    return convolution_product(c) + first_out(c) * ((c->in[2] ? 1 : 0) + (c->attrs->function ? 1 : 0));
}
static double flops_transposed_convolution(const gm_call *c) { return flops_convolution(c); }
static double flops_convolution_weight_grad(const gm_call *c)
{
    return convolution_product(c) + (c->out[1] ? first_in(c) : 0);
}

static double flops_layer_norm(const gm_call *c) { return 8 * first_in(c); }
static double flops_layer_norm_grad(const gm_call *c) { return 14 * first_in(c); }
static double flops_rms_norm(const gm_call *c) { return 5 * first_in(c); }
static double flops_rms_norm_grad(const gm_call *c) { return 10 * first_in(c); }
/* steps of the two norms, which together cost what those do: with a mean it is layer norm */
static double flops_norm_sums(const gm_call *c) { return (c->out[1] ? 4 : 2) * first_in(c); }
static double flops_norm_apply(const gm_call *c) { return (c->in[3] ? 4 : 3) * first_in(c); }
static double flops_norm_grad_sums(const gm_call *c) { return (c->in[3] ? 6 : 5) * first_in(c); }
static double flops_norm_grad_apply(const gm_call *c) { return (c->in[4] ? 8 : 5) * first_in(c); }
/* batch norm in steps: as layer norm */
static double flops_batch_norm_sums(const gm_call *c) { return 4 * first_in(c); }
static double flops_batch_norm_apply(const gm_call *c) { return 4 * first_in(c); }
static double flops_batch_norm_grad_sums(const gm_call *c) { return 5 * first_in(c); }
static double flops_batch_norm_grad_apply(const gm_call *c) { return (c->in[5] ? 5 : 1) * first_in(c); }

static double flops_sort(const gm_call *c) { return first_in(c); }
static double flops_unsort(const gm_call *c) { return flops_fill(c); }

/* One operation for each place of each window; adaptive windows share out the places. */
static double places(const gm_call *c, const gm_tensor *large, const gm_tensor *small)
{
    double n = numel(small);
    for (int d = 0; d + 2 < small->ndim; d++)
        n *= c->attrs->output.at[d] ? (double)large->shape[d + 2] / (double)small->shape[d + 2]
                                    : (double)c->attrs->kernel.at[d];
    return n;
}
static double flops_max_pool(const gm_call *c) { return places(c, c->in[0], c->out[0]); }
static double flops_max_pool_grad(const gm_call *c) { return numel(c->in[1]); }
static double flops_avg_pool(const gm_call *c) { return places(c, c->in[0], c->out[0]) + first_out(c); }
static double flops_avg_pool_grad(const gm_call *c) { return places(c, c->out[0], c->in[0]) + first_in(c); }
static double flops_cumsum(const gm_call *c) { return first_in(c); }
static double flops_softmax(const gm_call *c) { return 5 * first_in(c); }
static double flops_softmax_grad(const gm_call *c) { return 4 * first_in(c); }
static double flops_log_softmax(const gm_call *c) { return 5 * first_in(c); }
static double flops_log_softmax_grad(const gm_call *c) { return 4 * first_in(c); }

static int64_t within(int64_t x, int64_t most) { return x < 0 ? 0 : x < most ? x : most; }

/* The sum over s queries of how many of t keys stand before key i + end; i: the number of the query. */
static double keys_before(int64_t s, int64_t t, int64_t end)
{
    int64_t some = within(1 - end, s), all = within(t - end, s); /* the first queries that see one key, all keys */
    double  n = all > some ? (double)(all - some) : 0;
    return n * (double)(some + all - 1 + 2 * end) / 2 + (double)(s - all) * (double)t;
}

/* Pairs (query, key) that are computed: all, or those that the causal mask and the window leave. What limits leave of
 * these, only their numbers on the device say. */
static double visible_pairs(const gm_call *c)
{
    int64_t s = c->in[0]->shape[1], t = c->in[1]->shape[1], end = t - s + c->attrs->behind + 1;
    if (!c->attrs->causal) return (double)s * (double)t;
    return keys_before(s, t, end) - (c->attrs->window ? keys_before(s, t, end - c->attrs->window) : 0);
}

static double flops_attention(const gm_call *c)
{
    const int64_t *q = c->in[0]->shape; /* (b, s, h, d) */
    return 4 * (double)q[0] * (double)q[2] * (double)q[3] * visible_pairs(c);
}

/* Five products of that size instead of two. */
static double flops_attention_grad(const gm_call *c) { return 2.5 * flops_attention(c); }

/* Counts are numbers on the device: as if all pages of a row were full, or all of a window. */
static double paged_keys(const gm_call *c)
{
    double all = (double)c->in[3]->shape[1] * (double)c->in[1]->shape[2];
    double most = (double)(c->attrs->window + c->in[0]->shape[1] - 1); /* that the queries of a row see together */
    return (double)c->in[3]->shape[0] * (c->attrs->window && most < all ? most : all);
}

static double flops_attention_paged(const gm_call *c)
{
    const int64_t *q = c->in[0]->shape; /* (b, s, h, d) */
    return 4 * (double)q[1] * (double)q[2] * (double)q[3] * paged_keys(c);
}

static double flops_documents(const gm_call *c) { return flops_fill(c); }
static double flops_pages_write(const gm_call *c)
{
    (void)c;
    return 0;
}

/* Six operations for a pair. */
static double flops_rotary(const gm_call *c)
{
    const gm_tensor *x = c->in[0];
    int64_t          all = x->ndim > 3 ? x->shape[x->ndim - 2] : 1, rotated = c->attrs->rotated;
    double           lines = first_in(c) / (double)(x->shape[x->ndim - 1] ? x->shape[x->ndim - 1] : 1);
    return 6 * numel(c->in[1]) * lines * (rotated && all ? (double)rotated / (double)all : 1);
}

static double flops_embedding(const gm_call *c)
{
    (void)c;
    return 0;
}
static double flops_embedding_grad(const gm_call *c) { return numel(c->in[1]); }
static double of_places(const gm_call *c) { return numel(c->in[1]) * (double)c->in[0]->shape[1]; }
static double flops_embedding_bag(const gm_call *c) { return (c->in[3] ? 2 : 1) * of_places(c); }
static double flops_embedding_bag_weight_grad(const gm_call *c) { return 2 * of_places(c); }
static double flops_embedding_rows(const gm_call *c) { return (c->in[2] ? 2 : 1) * numel(c->out[1]); }
static double flops_rows_take(const gm_call *c) { return flops_embedding(c); }
static double flops_rows_put(const gm_call *c) { return flops_embedding(c); }
static double flops_cross_entropy(const gm_call *c) { return 4 * first_in(c); }
static double flops_cross_entropy_grad(const gm_call *c) { return 4 * first_in(c); }
static double flops_cross_entropy_both(const gm_call *c) { return 8 * first_in(c); }
static double flops_rescale_rows(const gm_call *c) { return numel(c->in[1]); } /* comparisons */
static double flops_experts_count(const gm_call *c) { return flops_fill(c); }
static double flops_experts_before(const gm_call *c) { return flops_fill(c); }
static double flops_experts_limit(const gm_call *c) { return flops_fill(c); }
static double flops_experts_order(const gm_call *c) { return flops_fill(c); }
static double flops_experts_gather(const gm_call *c) { return c->in[2] ? first_out(c) : 0; }
static double of_choices(const gm_call *c) { return numel(c->in[1]) * (double)c->in[0]->shape[1]; }
static double flops_experts_combine(const gm_call *c) { return (c->in[2] ? 2 : 1) * of_choices(c); }
static double flops_experts_combine_grad(const gm_call *c) { return 2 * of_choices(c); }
/* As if all rows were in a group: only the numbers on the device say which are. */
static double grouped_product(const gm_call *c)
{
    return 2 * first_in(c) * (double)(c->op == GM_OP_grouped_matmul ? c->out[0]->shape[1] : c->in[1]->shape[1]);
}
static double flops_grouped_matmul(const gm_call *c) { return grouped_product(c) + (c->in[3] ? first_out(c) : 0); }
static double flops_grouped_weight_grad(const gm_call *c)
{
    return (c->out[0] ? grouped_product(c) : 0) + (c->out[1] ? first_in(c) : 0);
}
static double flops_sum(const gm_call *c) { return first_in(c); }
static double flops_max(const gm_call *c) { return first_in(c); }
static double flops_min(const gm_call *c) { return first_in(c); }
static double flops_argmax(const gm_call *c) { return first_in(c); }
static double flops_top_k(const gm_call *c) { return first_in(c); }
static double flops_scatter(const gm_call *c) { return numel(c->in[1]); }

static double all_inputs(const gm_call *c)
{
    double n = 0;
    for (int i = 0; i < c->n_in; i++) n += numel(c->in[i]);
    return n;
}

static double flops_sum_squares(const gm_call *c) { return 2 * all_inputs(c); }
static double flops_step_control(const gm_call *c) { return all_inputs(c); }
/* Elements of the gradients: the first input is the control tensor. */
static double gradients(const gm_call *c) { return all_inputs(c) - first_in(c) - numel(c->in[1]); }

#define GM_OPTIMIZER(name, moments, there, positive, momentum, attributes, flops, ...) \
    static double flops_##name(const gm_call *c)                                       \
    {                                                                                  \
        const gm_attrs *at = c->attrs;                                                 \
        (void)at;                                                                      \
        return gradients(c) * ((flops) + (at->measure ? 4 : 0));                       \
    }
#include "optimizers.def"
#undef GM_OPTIMIZER

static double (*const rules[GM_OP_COUNT])(const gm_call *) = {
#define GM_OP(name, rule, in, out, attrs) [GM_OP_##name] = flops_##name,
#include "ops.def"
#undef GM_OP
};

double gm_cost_products(const gm_call *call)
{
    switch (call->op) {
    case GM_OP_linear: return linear_product(call);
    case GM_OP_linear_quantized: return quantized_product(call);
    case GM_OP_float8_product:
    case GM_OP_float8_block_product: return float8_product(call);
    case GM_OP_linear_weight_grad:
    case GM_OP_linear_input_grad: return weight_product(call);
    case GM_OP_convolution:
    case GM_OP_transposed_convolution:
    case GM_OP_convolution_weight_grad: return convolution_product(call);
    case GM_OP_grouped_matmul: return grouped_product(call);
    case GM_OP_grouped_weight_grad: return call->out[0] ? grouped_product(call) : 0;
    case GM_OP_matmul:
    case GM_OP_attention:
    case GM_OP_attention_paged:
    case GM_OP_attention_grad: return rules[call->op](call);
    default: return 0;
    }
}

static double distinct_bytes(const gm_tensor *t)
{
    if (!t) return 0;
    double n = (double)gm_dtype_size(t->dtype);
    for (int d = 0; d < t->ndim; d++)
        if (t->stride[d] || !t->shape[d]) n *= (double)t->shape[d];
    return n;
}

/* In-out outputs that only get new values. */
static bool overwrites(const gm_call *c)
{
    if (c->op == GM_OP_fill || c->op == GM_OP_uniform || c->op == GM_OP_normal) return true;
    return strstr(gm_op_attrs(c->op), "accumulate") && !c->attrs->accumulate;
}

/* What these ops touch of a pool. */
static double bytes_of_pages(const gm_call *c)
{
    const gm_tensor *x = c->in[0], *k = c->in[1];
    if (c->op == GM_OP_pages_write) return 2 * distinct_bytes(x);
    double pool = distinct_bytes(k), of_rows = paged_keys(c) * (double)(k->shape[1] * k->shape[3]);
    of_rows *= (double)gm_dtype_size(k->dtype);
    return 2 * (of_rows < pool ? of_rows : pool) + 2 * distinct_bytes(x);
}

void gm_cost(const gm_call *call, double *flops, double *bytes)
{
    const gm_slots *slots = gm_op_gives(call->op);
    *flops = rules[call->op](call);
    *bytes = 0;
    if (call->op == GM_OP_pages_write || call->op == GM_OP_attention_paged) {
        *bytes = bytes_of_pages(call);
        return;
    }
    for (int i = 0; i < call->n_in; i++) *bytes += distinct_bytes(call->in[i]);
    if (call->op == GM_OP_rescale_rows) return; /* as a rule no row is multiplied */
    for (int i = 0; i < call->n_out; i++)
        *bytes += distinct_bytes(call->out[i]) * (slots->slot[i % slots->n].inout && !overwrites(call) ? 2 : 1);
}
