/* pooling.h - the windows of pooling, for all backends: C for the host and for kernels of GPUs.
 *
 * A window of an axis is the places begin, begin + step, ... before end, of those inside of the image. In pooling with
 * a kernel, window o starts at o stride - before and has `kernel` places, `dilation` apart. In adaptive pooling of n
 * places to `out` windows, it is the places from floor(o n / out) to before ceil((o + 1) n / out). The trap: a window
 * may have no place at all (kernel 2, dilation 3, one place of padding on each side of two). */
#ifndef GM_POOLING_H
#define GM_POOLING_H

#include <stdint.h>

#ifndef GM_INLINE
#define GM_INLINE static inline
#endif

typedef struct gm_pool_axis {
    int64_t n, out; /* places; windows */
    int64_t kernel, stride, dilation, before, after;
    int32_t adaptive;
} gm_pool_axis;

typedef struct gm_pool_window {
    int64_t begin, end, step;
    int64_t padded; /* places that it has with those in the padding (dilation 1) */
} gm_pool_window;

GM_INLINE gm_pool_window gm_pool_window_of(const gm_pool_axis *a, int64_t o)
{
    gm_pool_window w;
    if (a->adaptive) {
        w.begin = o * a->n / a->out;
        w.end = ((o + 1) * a->n + a->out - 1) / a->out;
        w.step = 1;
        w.padded = w.end - w.begin;
        return w;
    }
    int64_t start = o * a->stride - a->before, last = start + a->dilation * (a->kernel - 1);
    w.step = a->dilation;
    w.begin = start < 0 ? start + (-start + w.step - 1) / w.step * w.step : start;
    w.end = last + 1 < a->n ? last + 1 : a->n;
    w.padded = (last + 1 < a->n + a->after ? last + 1 : a->n + a->after) - start;
    return w;
}

/* The windows *first to before *end are all that may have place i; does window w have it? */
GM_INLINE void gm_pool_windows_at(const gm_pool_axis *a, int64_t i, int64_t *first, int64_t *end)
{
    if (a->adaptive) {
        *first = i * a->out / a->n;
        *end = ((i + 1) * a->out + a->n - 1) / a->n;
        return;
    }
    int64_t reach = i + a->before, least = reach - a->dilation * (a->kernel - 1);
    *first = least <= 0 ? 0 : (least + a->stride - 1) / a->stride;
    *end = reach / a->stride + 1 < a->out ? reach / a->stride + 1 : a->out;
}

GM_INLINE int gm_pool_has(const gm_pool_window *w, int64_t i)
{
    return i >= w->begin && i < w->end && (i - w->begin) % w->step == 0;
}

/* Places of the three windows, one of each axis, that an average divides by. */
GM_INLINE int64_t gm_pool_places(const gm_pool_window *d, const gm_pool_window *h, const gm_pool_window *w,
                                 int32_t with_padding, int64_t divisor)
{
    if (divisor) return divisor;
    if (with_padding) return d->padded * h->padded * w->padded;
    return (d->end - d->begin) * (h->end - h->begin) * (w->end - w->begin);
}

#ifndef GM_KERNEL
#include "op.h"

/* The three axes of an image of `dims` axes, whose sizes these are; those in front that it lacks have one place. */
static inline void gm_pool_axes(const gm_attrs *at, int dims, const int64_t *in, const int64_t *out, gm_pool_axis *axis)
{
    for (int d = 0; d < GM_SPACE; d++) axis[d] = (gm_pool_axis){1, 1, 1, 1, 1, 0, 0, 0};
    for (int d = 0; d < dims; d++)
        axis[GM_SPACE - dims + d] = (gm_pool_axis){.n = in[d],
                                                   .out = out[d],
                                                   .kernel = at->kernel.at[d],
                                                   .stride = at->stride.at[d],
                                                   .dilation = at->dilation.at[d],
                                                   .before = at->pad_low.at[d],
                                                   .after = at->pad_high.at[d],
                                                   .adaptive = at->output.at[d] > 0};
}
#endif

#endif
