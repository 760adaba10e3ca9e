/* chance.c - random words of what is rounded by chance: parameters of 16 bits without masters, moments in bf16. An
 * element has the word of its parameter's name and of its place in the global tensor, so that training has the same
 * bits in every mode and ZeRO stage. See items.h. */
#include "../../kernels/philox.h"
#include "../../kernels/states.h"
#include "../gradients/parts.h"
#include "items.h"

bool gm_item_draws(const gm_optimizer *o, const item *it)
{
    return it->set.states == GM_STATES_BF16 ||
           (gm_item_attrs(o, it)->stochastic && gm_dtype_is_narrow(it->parameter->local->dtype));
}

void gm_item_place_words(const item *it, gm_attrs *a)
{
    const gm_value *v = it->parameter;
    int64_t         local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    bool            whole = true;
    gm_layout_block(&v->rank->mesh, gm_owned_layout(v), v->rank->coordinate, v->ndim, v->shape, &a->box, local,
                    logical);
    for (int d = 0; d < v->ndim; d++) whole = whole && local[d] == v->shape[d];
    if (whole) a->box.ndim = 0;
    a->stream.key = gm_mix64(a->stream.key + gm_mix64(it->set.site));
}
