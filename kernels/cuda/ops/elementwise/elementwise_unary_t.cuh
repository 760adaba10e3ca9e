/* elementwise_unary_t.cuh - unary functions of one dtype: a kernel each for items, one of all for elements. */

#define GM_BINARY(name)
#define GM_COMPARE(name)
#define GM_UNARY(name)                                \
    GM_EACH_KERNEL(gm_unary_##name, gm_map_args)      \
    {                                                 \
        const GM_R value = (GM_R)a.alpha;             \
        GM_MAP_ITEMS(1, GM_N(gm_fn_##name)(u, value)) \
    }
#include "../../../functions.def"
#undef GM_UNARY
#undef GM_BINARY
#undef GM_COMPARE

GM_EACH_KERNEL(gm_unary_any, gm_map_args) { GM_MAP_ELEMENTS(1, GM_N(gm_unary)(a.function, u, (GM_R)a.alpha)) }
