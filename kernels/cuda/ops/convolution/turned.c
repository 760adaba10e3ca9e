/* turned.c - see turned.h. */
#include "turned.h"

#include "../../../memory.h"
#include "../../dnn/dnn.h"
#include "turned_args.h"

enum { X, W, Y };

gm_status gm_turn_planes(gm_device *dev, const void *from, void *to, int64_t n, int64_t rows, int64_t columns)
{
    gm_turn_args a = {.from = from, .to = to, .rows = rows, .columns = columns};
    a.tiles[0] = (int32_t)((rows + GM_TURN_SIDE - 1) / GM_TURN_SIDE);
    a.tiles[1] = (int32_t)((columns + GM_TURN_SIDE - 1) / GM_TURN_SIDE);
    return GM_LAUNCH(dev, "gm_convolution_turn",
                     ((gm_cuda_grid){.x = n * a.tiles[0] * a.tiles[1],
                                     .block = GM_TURN_THREADS,
                                     .shared = GM_TURN_SIDE * GM_TURN_WORDS * sizeof(uint32_t)}),
                     a);
}

/* t: x, w and y of the call */
static bool gains(const gm_call *call, gm_tensor *const *t)
{
    bool of_image = call->op != GM_OP_convolution_weight_grad;
    if (t[X]->ndim != 4 || call->attrs->groups != 1 || (of_image && call->attrs->accumulate)) return false;
    return t[W]->shape[2] * t[W]->shape[3] > 1;
}

static size_t bytes_of(const gm_tensor *t) { return ((size_t)gm_tensor_numel(t) * 2 + 255) & ~(size_t)255; }

static gm_status turn(gm_device *dev, const gm_tensor *t, void *turned, bool back)
{
    int64_t channels = t->shape[1], places = t->shape[2] * t->shape[3];
    if (back) return gm_turn_planes(dev, turned, gm_tensor_data(t), t->shape[0], places, channels);
    return gm_turn_planes(dev, gm_tensor_data(t), turned, t->shape[0], channels, places);
}

/* turned: memory for x and y */
static gm_status compute(gm_device *dev, const gm_dnn_convolution *p, gm_tensor *const *t, void *const *turned,
                         bool *served)
{
    void *data[3] = {turned[X], gm_tensor_data(t[W]), turned[Y]};
    if (p->side != GM_DNN_OF_INPUT) GM_TRY(turn(dev, t[X], turned[X], false));
    if (p->side != GM_DNN_OF_RESULT) GM_TRY(turn(dev, t[Y], turned[Y], false));
    GM_TRY(gm_dnn_convolve_problem(dev, p, data, served));
    if (!*served || p->side == GM_DNN_OF_WEIGHT) return GM_OK;
    return p->side == GM_DNN_OF_INPUT ? turn(dev, t[X], turned[X], true) : turn(dev, t[Y], turned[Y], true);
}

gm_status gm_convolve_turned(gm_device *dev, const gm_call *call, bool *served)
{
    gm_dnn_convolution p;
    gm_tensor         *t[3];
    void              *turned[3];
    gm_block          *block;
    bool               takes;
    *served = false;
    if (call->out[0]->ndim != 4) return GM_OK;
    GM_TRY(gm_dnn_problem_of(dev, call, &p, t, &takes));
    if (!takes || !gains(call, t)) return GM_OK;
    p.channels_last[X] = p.channels_last[Y] = 1;
    GM_TRY(gm_cuda_scratch(dev, bytes_of(t[X]) + bytes_of(t[Y]), &turned[X], &block));
    turned[Y] = (char *)turned[X] + bytes_of(t[X]);
    gm_status st = compute(dev, &p, t, turned, served);
    gm_pool_release(dev->pool, block);
    return st;
}
