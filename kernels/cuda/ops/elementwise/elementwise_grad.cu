/* elementwise_grad.cu - dx = g f'(x): gm_unary_grad_<function>_<dtype> for items of 16 bytes,
 * gm_unary_grad_any_<dtype> for the rest. Each element has two reads and one write, so there is less arithmetic for
 * each byte than in elementwise_unary.cu. */
#include "../../common/functions.cuh"
#include "../../common/map.cuh"

#define GM_BINARY(name)
#define GM_COMPARE(name)
#define GM_UNARY(name)                                                                              \
    template <class T> GM_DEVICE void gm_unary_grad_##name(const gm_map_args a)                     \
    {                                                                                               \
        const gm_real<T> value = (gm_real<T>)a.alpha, high = (gm_real<T>)a.beta;                    \
        gm_map_items<T, 2>(a, [=](auto x, auto g) { return g * gm_slope_##name(x, value, high); }); \
    }                                                                                               \
    GM_KERNELS(gm_unary_grad_##name, gm_map_args)
#include "../../../functions.def"

template <class T, class R = gm_real<T>> GM_DEVICE void gm_unary_grad_any(const gm_map_args a)
{
    const int function = a.function;
    const R   value = (R)a.alpha, high = (R)a.beta;
    gm_map_elements<T, 2>(a, [=](R x, R g) { return g * gm_unary_slope_of(function, x, value, high); });
}
GM_KERNELS(gm_unary_grad_any, gm_map_args)
