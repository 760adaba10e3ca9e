/* cpu_t.h - a table of kernels. TABLE: its variable; TABLE_NAME: what it is called; TABLE_AMX, if defined: real or
 * plain, which products and attention of bf16 it has (narrow.c). Part of cpu.c. */
#pragma GCC diagnostic  push
#pragma GCC diagnostic  ignored "-Woverride-init" /* some kernels take the place of others */
extern const gm_backend TABLE;

const gm_backend TABLE = {
    .name = TABLE_NAME,
    .has_data = true,
    .on_host = true,
    .memory = {cpu_raw_alloc, cpu_raw_free},
    GM_HOST_GRAPHS,
    .kernel =
        {
#define GM_OP(name, rule, in, out, attrs) [GM_OP_##name] = any_##name,
#include "../ops.def"
#undef GM_OP
#if defined(TABLE_AMX)
            [GM_OP_matmul] = GM_CAT(TABLE_AMX, _matmul),
            [GM_OP_linear] = GM_CAT(TABLE_AMX, _linear),
            [GM_OP_linear_weight_grad] = GM_CAT(TABLE_AMX, _linear_weight_grad),
            [GM_OP_linear_input_grad] = GM_CAT(TABLE_AMX, _linear_input_grad),
            [GM_OP_grouped_matmul] = GM_CAT(TABLE_AMX, _grouped_matmul),
            [GM_OP_grouped_weight_grad] = GM_CAT(TABLE_AMX, _grouped_weight_grad),
            [GM_OP_convolution] = GM_CAT(TABLE_AMX, _convolution),
            [GM_OP_transposed_convolution] = GM_CAT(TABLE_AMX, _transposed_convolution),
            [GM_OP_convolution_weight_grad] = GM_CAT(TABLE_AMX, _convolution_weight_grad),
            [GM_OP_attention] = GM_CAT(TABLE_AMX, _attention),
            [GM_OP_attention_grad] = GM_CAT(TABLE_AMX, _attention_grad),
#endif
        },
};
#pragma GCC diagnostic pop
#undef TABLE
#undef TABLE_NAME
#undef TABLE_AMX
