/* elementwise_grad_t.cuh - gradients of unary functions of one dtype: in[0] is x, in[1] is g. */

#define GM_BINARY(name)
#define GM_COMPARE(name)
#define GM_UNARY(name)                                       \
    GM_EACH_KERNEL(gm_unary_grad_##name, gm_map_args)        \
    {                                                        \
        const GM_R value = (GM_R)a.alpha;                    \
        GM_MAP_ITEMS(2, v * GM_N(gm_slope_##name)(u, value)) \
    }
#include "../../../functions.def"
#undef GM_UNARY
#undef GM_BINARY
#undef GM_COMPARE

GM_EACH_KERNEL(gm_unary_grad_any, gm_map_args)
{
    GM_MAP_ELEMENTS(2, v *GM_N(gm_unary_slope)(a.function, u, (GM_R)a.alpha))
}
