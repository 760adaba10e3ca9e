/* elementwise_unary.cu - y = f(x): gm_unary_<function>_<dtype> for items of 16 bytes, gm_unary_any_<dtype> for the
 * rest. Each element is read once and written once. The limit is bandwidth; for costly functions in 16 bits it is the
 * number of instructions (functions.cuh). */
#include "../../common/functions.cuh"
#include "../../common/map.cuh"

#define GM_BINARY(name)
#define GM_COMPARE(name)
#define GM_UNARY(name)                                                               \
    template <class T> GM_DEVICE void gm_unary_##name(const gm_map_args a)           \
    {                                                                                \
        const gm_real<T> value = (gm_real<T>)a.alpha, high = (gm_real<T>)a.beta;     \
        gm_map_items<T, 1>(a, [=](auto x) { return gm_fn_##name(x, value, high); }); \
    }                                                                                \
    GM_KERNELS(gm_unary_##name, gm_map_args)
#include "../../../functions.def"

template <class T, class R = gm_real<T>> GM_DEVICE void gm_unary_any(const gm_map_args a)
{
    const int function = a.function;
    const R   value = (R)a.alpha, high = (R)a.beta;
    gm_map_elements<T, 1>(a, [=](R x) { return gm_unary_of(function, x, value, high); });
}
GM_KERNELS(gm_unary_any, gm_map_args)
