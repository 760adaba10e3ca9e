/* random.c - random ops: pure functions of the stream and of each element's index in the global tensor.
 * Element i takes word i % 4 of philox block i / 4; what a word means is in sample.h. Dropout: see drop.h. */
#include "../drop.h"
#include "loops.h"

typedef struct draw {
    const gm_tensor *t;
    const gm_box    *box;
    uint64_t         key, step;
} draw;

static draw draw_of(const gm_device *dev, const gm_call *call, const gm_tensor *t)
{
    const gm_stream *stream = &call->attrs->stream;
    return (draw){t, &call->attrs->box, stream->key, ref_stream_step(dev, stream)};
}

static uint64_t global_index(const draw *d, int64_t i)
{
    int64_t at[GM_MAX_DIMS];
    ref_coordinates(d->t->ndim, d->t->shape, i, at);
    return gm_box_index(d->box, d->t->ndim, d->t->shape, at);
}

static uint32_t word_of(const draw *d, int64_t i) { return gm_philox_word(d->key, global_index(d, i), d->step); }

gm_status gm_ref_uniform(gm_device *dev, const gm_call *call)
{
    const gm_tensor *y = call->out[0];
    draw             d = draw_of(dev, call, y);
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++)
        ref_set(y, i, gm_sample_uniform(call->attrs->low, call->attrs->high, word_of(&d, i)));
    return GM_OK;
}

static double normal_at(const draw *d, const gm_attrs *at, int64_t i)
{
    uint64_t index = global_index(d, i), pair = index & ~(uint64_t)1;
    double   even, odd;
    gm_sample_normal(at->mean, at->std, gm_philox_word(d->key, pair, d->step),
                     gm_philox_word(d->key, pair + 1, d->step), &even, &odd);
    return index & 1 ? odd : even;
}

gm_status gm_ref_normal(gm_device *dev, const gm_call *call)
{
    const gm_tensor *y = call->out[0];
    const gm_attrs  *at = call->attrs;
    draw             d = draw_of(dev, call, y);
    gm_truncated     cut = {0};
    if (at->truncated) cut = gm_truncated_of(at->mean, at->std, at->low, at->high);
    for (int64_t i = 0, n = gm_tensor_numel(y); i < n; i++)
        ref_set(y, i, at->truncated ? gm_sample_truncated(&cut, word_of(&d, i)) : normal_at(&d, at, i));
    return GM_OK;
}

gm_status gm_ref_dropout(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0];
    const gm_drop    drop = gm_drop_of(call->attrs->stream.key, call->attrs->p);
    const double     exact = gm_drop_keep(drop.threshold), keep = x->dtype == GM_F64 ? exact : (float)exact;
    draw             d = draw_of(dev, call, x);
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++) {
        bool dropped = gm_is_dropped(drop.round_keys, drop.threshold, global_index(&d, i), d.step);
        ref_set(call->out[0], i, dropped ? 0 : ref_get(x, i) * keep);
    }
    return GM_OK;
}
