/* pooling.c - the largest element and the average of windows (pooling.h), and their gradients. */
#include "../pooling.h"
#include "loops.h"

typedef struct images {
    gm_pool_axis axis[GM_SPACE];
    int64_t      n, in, out; /* images; places and windows of one */
} images;

/* large: as x, small: as y. */
static images images_of(const gm_attrs *at, const gm_tensor *large, const gm_tensor *small)
{
    images m = {.n = large->shape[0] * large->shape[1], .in = 1, .out = 1};
    gm_pool_axes(at, large->ndim - 2, large->shape + 2, small->shape + 2, m.axis);
    for (int d = 0; d < GM_SPACE; d++) {
        m.in *= m.axis[d].n;
        m.out *= m.axis[d].out;
    }
    return m;
}

/* The windows of result o of an image; returns what an average divides by. */
static double windows_of(const images *m, const gm_attrs *at, int64_t o, gm_pool_window *w)
{
    for (int d = GM_SPACE - 1; d >= 0; d--) {
        w[d] = gm_pool_window_of(&m->axis[d], o % m->axis[d].out);
        o /= m->axis[d].out;
    }
    return (double)gm_pool_places(&w[0], &w[1], &w[2], at->count_include_pad, at->divisor);
}

/* Place i of an image is in the windows of a result. */
static bool has(const images *m, const gm_pool_window *w, int64_t i)
{
    for (int d = GM_SPACE - 1; d >= 0; d--) {
        if (!gm_pool_has(&w[d], i % m->axis[d].n)) return false;
        i /= m->axis[d].n;
    }
    return true;
}

gm_status gm_ref_max_pool(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0], *y = call->out[0], *index = call->out[1];
    images           m = images_of(call->attrs, x, y);
    gm_pool_window   w[GM_SPACE];
    (void)dev;
    for (int64_t k = 0; k < m.n; k++)
        for (int64_t o = 0; o < m.out; o++) {
            double  best = -INFINITY;
            int64_t at = -1;
            windows_of(&m, call->attrs, o, w);
            for (int64_t i = 0; i < m.in; i++) {
                if (!has(&m, w, i) || isnan(best)) continue;
                double v = ref_get(x, k * m.in + i);
                if (at >= 0 && !isnan(v) && v <= best) continue;
                best = v;
                at = i;
            }
            ref_set(y, k * m.out + o, best);
            if (index) ref_set(index, k * m.out + o, (double)at);
        }
    return GM_OK;
}

gm_status gm_ref_avg_pool(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0], *y = call->out[0];
    images           m = images_of(call->attrs, x, y);
    gm_pool_window   w[GM_SPACE];
    (void)dev;
    for (int64_t k = 0; k < m.n; k++)
        for (int64_t o = 0; o < m.out; o++) {
            double sum = 0, places = windows_of(&m, call->attrs, o, w);
            for (int64_t i = 0; i < m.in; i++)
                if (has(&m, w, i)) sum += ref_get(x, k * m.in + i);
            ref_set(y, k * m.out + o, sum / places);
        }
    return GM_OK;
}

gm_status gm_ref_max_pool_grad(gm_device *dev, const gm_call *call)
{
    const gm_tensor *index = call->in[0], *g = call->in[1], *dx = call->out[0];
    images           m = images_of(call->attrs, dx, g);
    (void)dev;
    for (int64_t k = 0; k < m.n; k++)
        for (int64_t i = 0; i < m.in; i++) {
            double sum = 0;
            for (int64_t o = 0; o < m.out; o++)
                if ((int64_t)ref_get(index, k * m.out + o) == i) sum += ref_get(g, k * m.out + o);
            ref_put(dx, k * m.in + i, sum, call->attrs->accumulate);
        }
    return GM_OK;
}

gm_status gm_ref_avg_pool_grad(gm_device *dev, const gm_call *call)
{
    const gm_tensor *g = call->in[0], *dx = call->out[0];
    images           m = images_of(call->attrs, dx, g);
    gm_pool_window   w[GM_SPACE];
    (void)dev;
    for (int64_t k = 0; k < m.n; k++)
        for (int64_t i = 0; i < m.in; i++) {
            double sum = 0;
            for (int64_t o = 0; o < m.out; o++) {
                double places = windows_of(&m, call->attrs, o, w);
                if (has(&m, w, i)) sum += ref_get(g, k * m.out + o) / places;
            }
            ref_put(dx, k * m.in + i, sum, call->attrs->accumulate);
        }
    return GM_OK;
}
