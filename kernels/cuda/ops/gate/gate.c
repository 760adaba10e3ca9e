/* gate.c - gate_grad (gate.cu). The gates themselves are binary functions. */
#include "../../runtime/cuda.h"
#include "gate_args.h"

gm_status cuda_gate_grad(gm_device *dev, const gm_call *call)
{
    char             name[GM_CUDA_NAME];
    const gm_tensor *g = call->in[0];
    gm_gate_args     a = {.g = gm_rows_last(g),
                          .a = gm_rows_last(call->in[1]),
                          .b = gm_rows_last(call->in[2]),
                          .da = gm_rows_last(call->out[0]),
                          .db = gm_rows_last(call->out[1]),
                          .width = g->ndim ? g->shape[g->ndim - 1] : 1,
                          .function = (int32_t)call->attrs->function};
    a.rows = a.width ? gm_tensor_numel(g) / a.width : 0;
    gm_cuda_grid grid = gm_rows_grid(a.rows, a.width, g->dtype, GM_GATE_PACKS, &a.team);
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_gate_grad", g->dtype), grid, a);
}
