/* narrow.c - runs calls with tensors of bf16 or f16 by the kernels of f32.
 *
 * It casts inputs, and outputs that are read, to f32 in scratch of the pool, runs the kernel of f32, and rounds what
 * this wrote to 16 bits, once. So each op has one implementation. In addition to the work in f32, a call costs two
 * casts of its 16-bit tensors (some 6 bytes for each element and direction). This is right, but not fast. Three kinds
 * of calls do without: ops that handle 16 bits themselves (is_native); products and attention of bf16 on processors
 * that multiply it (takes_pairs); ops of bf16 or f16 whose kernels are also compiled for such elements in memory
 * (reads_bf16, reads_f16), which have the same bits. If there is an error, all outputs keep their values. */

static bool is_native(gm_op op)
{
    switch (op) {
    case GM_OP_fill:
    case GM_OP_copy:
    case GM_OP_embedding:   /* moves rows */
    case GM_OP_pages_write: /* moves rows */
    case GM_OP_rows_take:   /* moves rows */
    case GM_OP_rows_put:    /* moves rows */
    case GM_OP_embedding_bag:
    case GM_OP_rescale_rows: /* as a rule there is nothing to do */
    case GM_OP_attention_paged:
    case GM_OP_linear_quantized:
    case GM_OP_grouped_matmul:
    case GM_OP_grouped_weight_grad:
#define GM_OPTIMIZER(name, ...) case GM_OP_##name:
#include "../optimizers.def"
#undef GM_OPTIMIZER
    case GM_OP_sum_squares:
    case GM_OP_step_control: return true;
    default: return false;
    }
}

/* Kernels that are made for elements of f16, too (AS 17 of as.h). */
static bool reads_f16(gm_op op)
{
    switch (op) {
    case GM_OP_axpy:
    case GM_OP_affine:
    case GM_OP_scale:
    case GM_OP_unary:
    case GM_OP_unary_grad:
    case GM_OP_binary:
    case GM_OP_compare:
    case GM_OP_where:
    case GM_OP_layer_norm:
    case GM_OP_layer_norm_grad:
    case GM_OP_rms_norm:
    case GM_OP_rms_norm_grad: return true;
    default: return false;
    }
}

/* For elements of bf16 (AS 16) these, and more. */
static bool reads_bf16(gm_op op)
{
    switch (op) {
    case GM_OP_gate_grad:
    case GM_OP_lstm_cell:
    case GM_OP_lstm_cell_grad:
    case GM_OP_gru_cell:
    case GM_OP_gru_cell_grad:
    case GM_OP_dropout:
    case GM_OP_rotary:
    case GM_OP_embedding_grad:
    case GM_OP_cross_entropy:
    case GM_OP_cross_entropy_grad:
    case GM_OP_cross_entropy_both:
    case GM_OP_batch_norm_sums:
    case GM_OP_batch_norm_apply:
    case GM_OP_batch_norm_grad_sums:
    case GM_OP_batch_norm_grad_apply:
    case GM_OP_sum: return true;
    default: return reads_f16(op);
    }
}

/* Is each tensor of floats of this dtype, but for those that ops.def keeps in f32? */
static bool is_all(gm_dtype dtype, const gm_call *call)
{
    const gm_slots *takes = gm_op_takes(call->op), *gives = gm_op_gives(call->op);
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        bool             in = i < call->n_in;
        const gm_tensor *t = in ? call->in[i] : call->out[i - call->n_in];
        const gm_slot   *slot = in ? gm_slots_at(takes, i) : gm_slots_at(gives, i - call->n_in);
        if (t && gm_dtype_is_float(t->dtype) && !slot->wide && t->dtype != dtype) return false;
    }
    return true;
}

/* Calls of gemm_ops.c, gemm_grads.c, grouped.c, convolution_ops.c and attention.c that multiply bf16 as it is. */
static bool takes_pairs(const gm_call *call)
{
    switch (call->op) {
    case GM_OP_matmul:
    case GM_OP_linear:
    case GM_OP_linear_weight_grad:
    case GM_OP_linear_input_grad:
    case GM_OP_grouped_matmul:
    case GM_OP_grouped_weight_grad:
    case GM_OP_convolution:
    case GM_OP_transposed_convolution:
    case GM_OP_convolution_weight_grad: return gemm_takes_pairs(call);
    default: return attention_takes_pairs(call);
    }
}

static bool is_narrow(const gm_tensor *t) { return t && gm_dtype_is_narrow(t->dtype); }

static bool has_narrow(const gm_call *call)
{
    bool found = false;
    for (int i = 0; i < call->n_in; i++) found |= is_narrow(call->in[i]);
    for (int i = 0; i < call->n_out; i++) found |= is_narrow(call->out[i]);
    if (call->op == GM_OP_linear && (gemm_is_thin(call, NULL) || linear_reads(call))) return false;
    if (!found || is_native(call->op) || takes_pairs(call)) return false;
    if (reads_f16(call->op) && is_all(GM_F16, call)) return false;
    return !reads_bf16(call->op) || !is_all(GM_BF16, call);
}

/* x + residual in f32 becomes x, rounded to 16 bits as the sum that the op keeps: it normalises what its gradient
 * will see. */
static gm_status add_residual(gm_device *dev, gm_dtype dtype, gm_tensor **in)
{
    gm_attrs   at = gm_attrs_default();
    gm_tensor *sum;
    GM_TRY(cpu_axpy(dev, &(gm_call){GM_OP_axpy, 1, 1, &in[1], &in[0], &at}));
    GM_TRY(gm_tensor_new(dev, dtype, in[0]->ndim, in[0]->shape, &sum));
    gm_status st = copy_tensor(dev, sum, in[0]);
    if (st == GM_OK) st = copy_tensor(dev, in[0], sum);
    gm_tensor_release(sum);
    gm_tensor_release(in[1]);
    in[1] = NULL;
    return st;
}

static gm_status widen_call(gm_device *dev, const gm_call *call, gm_tensor **wide)
{
    bool            replaces = strstr(gm_op_attrs(call->op), "accumulate") && !call->attrs->accumulate;
    const gm_slots *takes = gm_op_takes(call->op), *gives = gm_op_gives(call->op);
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        gm_tensor *t = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        bool       read = i < call->n_in || (gives->slot[i - call->n_in].inout && !replaces);
        if (is_narrow(t)) GM_TRY(cpu_compact(dev, GM_F32, t, read, &wide[i]));
        else if (t) gm_tensor_retain(wide[i] = t);
    }
    bool residual = call->n_in > 1 && !strcmp(takes->slot[1].name, "residual") && wide[1];
    return residual ? add_residual(dev, call->in[0]->dtype, wide) : GM_OK;
}

static gm_status run_widened(gm_device *dev, const gm_call *call, gm_kernel kernel)
{
    gm_tensor *wide[CPU_TENSORS] = {NULL};
    gm_call    c = *call;
    c.in = wide;
    c.out = wide + c.n_in;
    gm_status st = widen_call(dev, call, wide);
    if (st == GM_OK) st = kernel(dev, &c);
    for (int i = 0; i < c.n_out && st == GM_OK; i++)
        if (is_narrow(call->out[i])) st = copy_tensor(dev, call->out[i], c.out[i]);
    for (int i = 0; i < c.n_in + c.n_out; i++) gm_tensor_release(wide[i]);
    return st;
}

#define GM_OP(name, rule, in, out, attrs)                                                                      \
    static gm_status any_##name(gm_device *dev, const gm_call *call)                                           \
    {                                                                                                          \
        return cpu_clean_after(has_narrow(call) ? run_widened(dev, call, cpu_##name) : cpu_##name(dev, call)); \
    }
#include "../ops.def"
#undef GM_OP

#if GEMM_PAIRS
/* Products in tables of AMX: real_NAME by its instructions, plain_NAME by plain C in their place (gemm_amx.c). */
#define AMX_OP(way, name)                                                \
    static gm_status way##_##name(gm_device *dev, const gm_call *call)   \
    {                                                                    \
        if (!takes_pairs(call)) return any_##name(dev, call);            \
        return cpu_clean_after(name##_by(dev, call, &amx_##way##_kind)); \
    }
#define AMX_OPS(way)                    \
    AMX_OP(way, matmul)                 \
    AMX_OP(way, linear)                 \
    AMX_OP(way, linear_weight_grad)     \
    AMX_OP(way, linear_input_grad)      \
    AMX_OP(way, grouped_matmul)         \
    AMX_OP(way, grouped_weight_grad)    \
    AMX_OP(way, convolution)            \
    AMX_OP(way, transposed_convolution) \
    AMX_OP(way, convolution_weight_grad)
AMX_OPS(real)
AMX_OPS(plain)
#undef AMX_OPS
#undef AMX_OP

/* Attention in these tables (attention_amx.c). */
#define ATTENTION_OP(way, name)                                                            \
    static gm_status way##_##name(gm_device *dev, const gm_call *call)                     \
    {                                                                                      \
        if (!takes_pairs(call)) return any_##name(dev, call);                              \
        if (!tiled_pays(call)) return cpu_clean_after(run_widened(dev, call, cpu_##name)); \
        return cpu_clean_after(name##_by(dev, call, &amx_##way##_attention));              \
    }
ATTENTION_OP(real, attention)
ATTENTION_OP(real, attention_grad)
ATTENTION_OP(plain, attention)
ATTENTION_OP(plain, attention_grad)
#undef ATTENTION_OP
#endif
