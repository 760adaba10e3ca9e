/* recurrent.c - the cells of recurrent layers (recurrent.cu). */
#include "../../runtime/cuda.h"
#include "recurrent_args.h"

/* The `count` parts of t (..., count width), each as rows. */
static void parts_of(const gm_tensor *t, int count, gm_row_view *views)
{
    for (int k = 0; t && k < count; k++) {
        gm_tensor part = *t;
        int       last = t->ndim - 1;
        part.shape[last] /= count;
        part.offset += k * part.shape[last] * part.stride[last];
        views[k] = gm_rows_last(&part);
    }
}

/* like: a tensor (..., width). */
static gm_status launch(gm_device *dev, const char *base, const gm_tensor *like, gm_cell_args *a)
{
    char name[GM_CUDA_NAME];
    a->width = like->shape[like->ndim - 1];
    a->rows = a->width ? gm_tensor_numel(like) / a->width : 0;
    gm_cuda_grid grid = gm_rows_grid(a->rows, a->width, like->dtype, GM_CELL_PACKS, &a->team);
    return GM_LAUNCH(dev, gm_cuda_name(name, base, like->dtype), grid, *a);
}

gm_status cuda_lstm_cell(gm_device *dev, const gm_call *call)
{
    gm_cell_args a = {
        .state = gm_rows_last(call->in[2]), .y = gm_rows_last(call->out[0]), .next = gm_rows_last(call->out[1])};
    parts_of(call->in[0], 4, a.x);
    parts_of(call->in[1], 4, a.moved);
    parts_of(call->out[2], 4, a.gates);
    return launch(dev, "gm_lstm_cell", call->out[0], &a);
}

gm_status cuda_lstm_cell_grad(gm_device *dev, const gm_call *call)
{
    gm_cell_args a = {.g = gm_rows_last(call->in[0]),
                      .gh = gm_rows_last(call->in[1]),
                      .gc = gm_rows_last(call->in[2]),
                      .state = gm_rows_last(call->in[4]),
                      .next = gm_rows_last(call->in[5]),
                      .dstate = gm_rows_last(call->out[1])};
    parts_of(call->in[3], 4, a.gates);
    parts_of(call->out[0], 4, a.x);
    return launch(dev, "gm_lstm_cell_grad", call->in[5], &a);
}

gm_status cuda_gru_cell(gm_device *dev, const gm_call *call)
{
    gm_cell_args a = {.state = gm_rows_last(call->in[2]), .y = gm_rows_last(call->out[0])};
    parts_of(call->in[0], 3, a.x);
    parts_of(call->in[1], 3, a.moved);
    parts_of(call->out[1], 4, a.gates);
    return launch(dev, "gm_gru_cell", call->out[0], &a);
}

gm_status cuda_gru_cell_grad(gm_device *dev, const gm_call *call)
{
    const gm_tensor *gates = call->in[2];
    gm_tensor        like = *gates; /* of a state's shape */
    gm_cell_args     a = {.g = gm_rows_last(call->in[0]),
                          .gh = gm_rows_last(call->in[1]),
                          .state = gm_rows_last(call->in[3]),
                          .dstate = gm_rows_last(call->out[2])};
    like.shape[like.ndim - 1] /= 4;
    parts_of(gates, 4, a.gates);
    parts_of(call->out[0], 3, a.x);
    parts_of(call->out[1], 3, a.moved);
    return launch(dev, "gm_gru_cell_grad", &like, &a);
}
