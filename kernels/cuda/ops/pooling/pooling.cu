/* pooling.cu - pooling (kernels/pooling.h): a thread for each window, and in gradients one for each place, which looks
 * at the windows that may have it. So nothing is added by two threads, and sums have one order. */
#include "../../common/map.cuh"
#include "pooling_args.h"

/* Element i of (n, c, d, h, w) in row-major order; n counts images: batch and channel together. */
typedef struct gm_pool_place {
    int64_t n, d, h, w;
} gm_pool_place;

GM_DEVICE gm_pool_place gm_pool_place_of(int64_t i, int64_t d, int64_t h, int64_t w)
{
    gm_pool_place p;
    int64_t       rest = i / w;
    p.w = i - rest * w;
    i = rest / h;
    p.h = rest - i * h;
    p.n = i / d;
    p.d = i - p.n * d;
    return p;
}

/* Elements from data to the first of image n, and on to a place in it. */
GM_DEVICE int64_t gm_pool_image(const gm_pool_view &v, int64_t n, int64_t channels)
{
    return n / channels * v.stride[0] + n % channels * v.stride[1];
}

GM_DEVICE int64_t gm_pool_at(const gm_pool_view &v, int64_t d, int64_t h, int64_t w)
{
    return d * v.stride[2] + h * v.stride[3] + w * v.stride[4];
}

#define GM_POOL_WINDOWS(d, h, w, at)                                                                       \
    const gm_pool_window d = gm_pool_window_of(&a.axis[0], at.d), h = gm_pool_window_of(&a.axis[1], at.h), \
                         w = gm_pool_window_of(&a.axis[2], at.w)

template <class T, class R = gm_real<T>> GM_DEVICE void gm_max_pool(const gm_pool_args a)
{
    GM_GRID_LOOP(i, a.elements) {
        const gm_pool_place p = gm_pool_place_of(i, a.axis[0].out, a.axis[1].out, a.axis[2].out);
        const T            *x = (const T *)a.x.data + gm_pool_image(a.x, p.n, a.channels);
        R                   best = -INFINITY;
        int64_t             at = -1;
        GM_POOL_WINDOWS(d, h, w, p);
        for (int64_t u = d.begin; u < d.end; u += d.step)
            for (int64_t v = h.begin; v < h.end; v += h.step)
                for (int64_t k = w.begin; k < w.end; k += w.step) {
                    const R here = gm_at<T>(x, gm_pool_at(a.x, u, v, k));
                    if (here > best || at < 0 || (here != here && best == best)) {
                        best = here;
                        at = (u * a.axis[1].n + v) * a.axis[2].n + k;
                    }
                }
        gm_set<T>(a.y.data, gm_pool_image(a.y, p.n, a.channels) + gm_pool_at(a.y, p.d, p.h, p.w), best);
        if (a.index.data)
            ((int64_t *)a.index.data)[gm_pool_image(a.index, p.n, a.channels) + gm_pool_at(a.index, p.d, p.h, p.w)] =
                at;
    }
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_avg_pool(const gm_pool_args a)
{
    GM_GRID_LOOP(i, a.elements) {
        const gm_pool_place p = gm_pool_place_of(i, a.axis[0].out, a.axis[1].out, a.axis[2].out);
        const T            *x = (const T *)a.x.data + gm_pool_image(a.x, p.n, a.channels);
        R                   sum = 0;
        GM_POOL_WINDOWS(d, h, w, p);
        for (int64_t u = d.begin; u < d.end; u += d.step)
            for (int64_t v = h.begin; v < h.end; v += h.step)
                for (int64_t k = w.begin; k < w.end; k += w.step) sum += gm_at<T>(x, gm_pool_at(a.x, u, v, k));
        sum /= (R)gm_pool_places(&d, &h, &w, a.with_padding, a.divisor);
        gm_set<T>(a.y.data, gm_pool_image(a.y, p.n, a.channels) + gm_pool_at(a.y, p.d, p.h, p.w), sum);
    }
}

/* dx, set or added to, from add(window), which returns what a window adds to the place. */
template <class T, class F> GM_DEVICE void gm_pool_gather(const gm_pool_args &a, F add)
{
    GM_GRID_LOOP(i, a.elements) {
        const gm_pool_place p = gm_pool_place_of(i, a.axis[0].n, a.axis[1].n, a.axis[2].n);
        const int64_t       to = gm_pool_image(a.x, p.n, a.channels) + gm_pool_at(a.x, p.d, p.h, p.w);
        int64_t             d, h, w, end_d, end_h, end_w, from_h, from_w;
        gm_real<T>          sum = 0;
        gm_pool_windows_at(&a.axis[0], p.d, &d, &end_d);
        gm_pool_windows_at(&a.axis[1], p.h, &from_h, &end_h);
        gm_pool_windows_at(&a.axis[2], p.w, &from_w, &end_w);
        for (; d < end_d; d++)
            for (h = from_h; h < end_h; h++)
                for (w = from_w; w < end_w; w++) sum += add(p, d, h, w);
        gm_set<T>(a.x.data, to, a.accumulate ? gm_at<T>(a.x.data, to) + sum : sum);
    }
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_max_pool_grad(const gm_pool_args a)
{
    gm_pool_gather<T>(a, [&a](const gm_pool_place &p, int64_t d, int64_t h, int64_t w) {
        const int64_t k = gm_pool_image(a.index, p.n, a.channels) + gm_pool_at(a.index, d, h, w);
        const int64_t at = a.wide ? ((const int64_t *)a.index.data)[k] : ((const int32_t *)a.index.data)[k];
        if (at != (p.d * a.axis[1].n + p.h) * a.axis[2].n + p.w) return (R)0;
        return gm_at<T>(a.y.data, gm_pool_image(a.y, p.n, a.channels) + gm_pool_at(a.y, d, h, w));
    });
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_avg_pool_grad(const gm_pool_args a)
{
    gm_pool_gather<T>(a, [&a](const gm_pool_place &p, int64_t d, int64_t h, int64_t w) {
        const gm_pool_window u = gm_pool_window_of(&a.axis[0], d), v = gm_pool_window_of(&a.axis[1], h),
                             k = gm_pool_window_of(&a.axis[2], w);
        const R g = gm_at<T>(a.y.data, gm_pool_image(a.y, p.n, a.channels) + gm_pool_at(a.y, d, h, w));
        return g / (R)gm_pool_places(&u, &v, &k, a.with_padding, a.divisor);
    });
}

GM_KERNELS(gm_max_pool, gm_pool_args)
GM_KERNELS(gm_avg_pool, gm_pool_args)
GM_KERNELS(gm_max_pool_grad, gm_pool_args)
GM_KERNELS(gm_avg_pool_grad, gm_pool_args)
