/* convolution.cu - convolutions of 1, 2 and 3 dimensions where cuDNN does not compute them: a thread has a result and
 * sums up what it reads; of the gradient of weights, a block has an element and sums up over samples and places. These
 * kernels take every call, and read each element as often as the kernel has places: they are many times slower than
 * products on tensor cores. */
#include "../../common/dtype.cuh"
#include "../../common/functions.cuh"
#include "convolution_args.h"

/* The coordinates of element i of a view, in row-major order. */
GM_DEVICE void gm_convolution_at(const gm_convolution_view &v, int64_t i, int64_t *at)
{
    GM_UNROLL for (int d = 4; d >= 0; d--)
    {
        at[d] = i % v.size[d];
        i /= v.size[d];
    }
}

template <class T> GM_DEVICE T *gm_convolution_place(const gm_convolution_view &v, const int64_t *at)
{
    int64_t offset = 0;
    GM_UNROLL for (int d = 0; d < 5; d++) offset += at[d] * v.stride[d];
    return (T *)v.data + offset;
}

/* f(x) of what gm_function_is_activation allows, by number. */
template <class R> GM_DEVICE R gm_convolution_function(int function, R x)
{
    switch (function) {
    case GM_FN_relu: return gm_fn_relu(x, (R)0);
    case GM_FN_gelu: return gm_fn_gelu(x, (R)0);
    case GM_FN_gelu_tanh: return gm_fn_gelu_tanh(x, (R)0);
    case GM_FN_silu: return gm_fn_silu(x, (R)0);
    case GM_FN_sigmoid: return gm_fn_sigmoid(x, (R)0);
    case GM_FN_tanh: return gm_fn_tanh(x, (R)0);
    }
    return x;
}

template <class T, class R = gm_real<T>>
GM_DEVICE void gm_convolution_end(const gm_convolution_args &a, const int64_t *p, R sum)
{
    if (a.b) sum += (R)gm_get(((const T *)a.b)[p[1] * a.b_stride]);
    if (a.pre.data) *gm_convolution_place<T>(a.pre, p) = gm_put<T>(sum);
    sum = gm_convolution_function(a.function, sum);
    *gm_convolution_place<T>(a.y, p) = gm_put<T>(sum);
}

/* k: the coordinates of element j of the kernel, in k[2] .. k[4] */
GM_DEVICE void gm_convolution_kernel(const gm_convolution_view &w, int64_t j, int64_t *k)
{
    k[4] = j % w.size[4];
    k[3] = j / w.size[4] % w.size[3];
    k[2] = j / w.size[4] / w.size[3];
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_convolution(const gm_convolution_args a)
{
    GM_GRID_LOOP(i, a.n) {
        int64_t p[5], x[5], k[5];
        R       sum = 0;
        gm_convolution_at(a.y, i, p);
        x[0] = p[0];
        k[0] = p[1];
        const int64_t first = p[1] / a.of_group * a.w.size[1], places = a.w.size[2] * a.w.size[3] * a.w.size[4];
        for (int64_t j = 0; j < places; j++) {
            bool inside = true;
            gm_convolution_kernel(a.w, j, k);
            GM_UNROLL for (int d = 0; d < 3; d++)
            {
                x[d + 2] = p[d + 2] * a.stride[d] + k[d + 2] * a.dilation[d] - a.low[d];
                inside = inside && x[d + 2] >= 0 && x[d + 2] < a.x.size[d + 2];
            }
            for (k[1] = 0; inside && k[1] < a.w.size[1]; k[1]++) {
                x[1] = first + k[1];
                sum += gm_get(*gm_convolution_place<T>(a.x, x)) * gm_get(*gm_convolution_place<T>(a.w, k));
            }
        }
        gm_convolution_end<T>(a, p, sum);
    }
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_transposed_convolution(const gm_convolution_args a)
{
    GM_GRID_LOOP(i, a.n) {
        int64_t p[5], x[5], k[5];
        R       sum = 0;
        gm_convolution_at(a.y, i, p);
        x[0] = p[0];
        k[1] = p[1] % a.w.size[1];
        const int64_t first = p[1] / a.w.size[1] * a.of_group, places = a.w.size[2] * a.w.size[3] * a.w.size[4];
        for (int64_t j = 0; j < places; j++) {
            bool inside = true;
            gm_convolution_kernel(a.w, j, k);
            GM_UNROLL for (int d = 0; d < 3; d++)
            {
                const int64_t along = p[d + 2] + a.low[d] - k[d + 2] * a.dilation[d];
                x[d + 2] = along / a.stride[d];
                inside = inside && along >= 0 && along % a.stride[d] == 0 && x[d + 2] < a.x.size[d + 2];
            }
            for (int64_t c = 0; inside && c < a.of_group; c++) {
                x[1] = k[0] = first + c;
                sum += gm_get(*gm_convolution_place<T>(a.x, x)) * gm_get(*gm_convolution_place<T>(a.w, k));
            }
        }
        gm_convolution_end<T>(a, p, sum);
    }
}

/* Blocks: the elements of dw. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_convolution_weight_grad(const gm_convolution_args a)
{
    GM_SHARED(R, scratch);
    int64_t k[5], p[5], x[5];
    R       sum = 0;
    gm_convolution_at(a.w, gm_block_x, k);
    x[1] = k[0] / a.of_group * a.w.size[1] + k[1];
    const int64_t places = a.y.size[2] * a.y.size[3] * a.y.size[4], all = a.y.size[0] * places;
    for (int64_t i = gm_thread; i < all; i += gm_block_size) {
        bool inside = true;
        gm_convolution_at(a.y, i % places, p);
        p[1] = k[0];
        p[0] = x[0] = i / places;
        GM_UNROLL for (int d = 0; d < 3; d++)
        {
            x[d + 2] = p[d + 2] * a.stride[d] + k[d + 2] * a.dilation[d] - a.low[d];
            inside = inside && x[d + 2] >= 0 && x[d + 2] < a.x.size[d + 2];
        }
        if (inside) sum += gm_get(*gm_convolution_place<T>(a.x, x)) * gm_get(*gm_convolution_place<T>(a.y, p));
    }
    sum = gm_block_sum(sum, scratch);
    if (gm_thread) return;
    T *dw = gm_convolution_place<T>(a.w, k);
    *dw = gm_put<T>(sum + (a.accumulate ? gm_get(*dw) : (R)0));
}

/* Blocks: the channels of g. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_convolution_bias_grad(const gm_convolution_args a)
{
    GM_SHARED(R, scratch);
    int64_t       p[5];
    R             sum = 0;
    const int64_t places = a.y.size[2] * a.y.size[3] * a.y.size[4], all = a.y.size[0] * places;
    for (int64_t i = gm_thread; i < all; i += gm_block_size) {
        gm_convolution_at(a.y, i % places, p);
        p[0] = i / places;
        p[1] = gm_block_x;
        sum += gm_get(*gm_convolution_place<T>(a.y, p));
    }
    sum = gm_block_sum(sum, scratch);
    if (gm_thread) return;
    T *db = (T *)a.b + gm_block_x * a.b_stride;
    *db = gm_put<T>(sum + (a.accumulate ? gm_get(*db) : (R)0));
}

/* Bias and activation after a product by cuDNN, which y holds. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_convolution_finish(const gm_convolution_args a)
{
    GM_GRID_LOOP(i, a.n) {
        int64_t p[5];
        gm_convolution_at(a.y, i, p);
        gm_convolution_end<T>(a, p, (R)gm_get(*gm_convolution_place<T>(a.y, p)));
    }
}

/* Where x has what is element i of y, which has other sizes than x: it lies a.low further in space. p, q: the
 * coordinates in y and in x. False: x has no such element. */
GM_DEVICE bool gm_convolution_match(const gm_convolution_args &a, int64_t i, int64_t *p, int64_t *q)
{
    bool inside = true;
    gm_convolution_at(a.y, i, p);
    GM_UNROLL for (int d = 0; d < 5; d++)
    {
        q[d] = p[d] + (d < 2 ? 0 : a.low[d < 2 ? 0 : d - 2]);
        inside = inside && q[d] >= 0 && q[d] < a.x.size[d];
    }
    return inside;
}

/* y = x where x has elements, and 0 elsewhere. accumulate: y += x. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_convolution_refit(const gm_convolution_args a)
{
    GM_GRID_LOOP(i, a.n) {
        int64_t    p[5], q[5];
        const bool inside = gm_convolution_match(a, i, p, q);
        T         *to = gm_convolution_place<T>(a.y, p);
        const R    v = inside ? gm_get(*gm_convolution_place<T>(a.x, q)) : (R)0;
        *to = gm_put<T>(a.accumulate ? gm_get(*to) + v : v);
    }
}

/* The same of packs of 16 bytes, without sums. */
GM_KERNEL(gm_convolution_refit_packs, gm_convolution_args)
{
    GM_GRID_LOOP(i, a.n) {
        int64_t    p[5], q[5];
        const bool inside = gm_convolution_match(a, i, p, q);
        gm_vector  v = {{0, 0, 0, 0}};
        if (inside) v = gm_load_vector(gm_convolution_place<gm_vector>(a.x, q));
        gm_store_vector(gm_convolution_place<gm_vector>(a.y, p), v);
    }
}

GM_KERNELS(gm_convolution, gm_convolution_args)
GM_KERNELS(gm_convolution_finish, gm_convolution_args)
GM_KERNELS(gm_transposed_convolution, gm_convolution_args)
GM_KERNELS(gm_convolution_weight_grad, gm_convolution_args)
GM_KERNELS(gm_convolution_bias_grad, gm_convolution_args)
GM_KERNELS(gm_convolution_refit, gm_convolution_args)
