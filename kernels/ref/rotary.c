/* rotary.c - rotary position embeddings (Su et al. arXiv:2104.09864): pairs of a row turned by an angle that grows with
 * the row's position. ops.def has the shapes. */
#include "loops.h"

/* The position of row (b, s) of the block. */
static double position_at(const gm_call *call, const int64_t *at)
{
    const gm_tensor *index = call->in[2];
    const gm_box    *box = &call->attrs->box;
    if (!index) return (double)(call->attrs->first + at[1] + (box->ndim ? box->offset[1] : 0));
    return ref_get(index, index->ndim == 2 ? at[0] * index->shape[1] + at[1] : at[1]);
}

/* The pair that element e is in: j, or -1 where the element is not turned. *other: the other element of the pair. */
static int64_t pair_of(int64_t e, int64_t pairs, bool interleaved, int64_t *other)
{
    if (e >= 2 * pairs) return -1;
    *other = interleaved ? e ^ 1 : (e + pairs) % (2 * pairs);
    return interleaved ? e / 2 : e % pairs;
}

gm_status gm_ref_rotary(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0], *y = call->out[0];
    const gm_attrs  *at = call->attrs;
    int64_t          place[GM_MAX_DIMS], pairs = call->in[1]->shape[0], other = 0;
    (void)dev;
    for (int64_t i = 0, n = gm_tensor_numel(x); i < n; i++) {
        ref_coordinates(x->ndim, x->shape, i, place);
        int64_t e = place[x->ndim - 1], j = pair_of(e, pairs, at->interleaved, &other);
        if (j < 0 || (at->rotated && place[x->ndim - 2] >= at->rotated)) {
            ref_set(y, i, ref_get(x, i));
            continue;
        }
        double angle = position_at(call, place) * ref_get(call->in[1], j), s = e < other ? -sin(angle) : sin(angle);
        if (at->inverse) s = -s;
        ref_set(y, i, at->alpha * (ref_get(x, i) * cos(angle) + ref_get(x, i + other - e) * s));
    }
    return GM_OK;
}
