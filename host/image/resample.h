/* resample.h - bilinear resampling of bytes, antialiased: each number of the result is that of Pillow's
 * Image.resize(..., BILINEAR), to the bit.
 *
 * For one axis, with scale = in / out and f = max(scale, 1), result i is the sum of weight(k) x value k over the k from
 * int(c - f + 0.5) to int(c + f + 0.5) - 1 that exist, where c = (i + 0.5) scale. The weight is
 * max(0, 1 - |k - c + 0.5| / f), divided by the sum of all of them, rounded to 22 bits behind the point. Columns come
 * first (along rows), and are rounded to bytes, then rows; the other way around if the width grows and the height
 * shrinks, as in Pillow 13. */
#ifndef GM_RESAMPLE_H
#define GM_RESAMPLE_H

#include <stddef.h>
#include <stdint.h>
#include "../../kernels/status.h"

typedef struct gm_resample_axis {
    int64_t  key[5];        /* what the weights are for */
    int64_t  in, out, taps; /* values, results; most values that one is made of */
    size_t   room;
    int64_t *first, *count; /* [out] */
    int32_t *weights;       /* [out][taps] */
} gm_resample_axis;

/* Weights and room, kept from one picture to the next. A zeroed one is empty. For one thread at a time. */
typedef struct gm_resampler {
    gm_resample_axis x, y;
    uint8_t         *between; /* one axis done, the other not yet */
    int32_t         *sums;
    size_t           room, sums_room;
} gm_resampler;

/* (channels, height, width) -> (channels, to_height, to_width). GM_ENOMEM. */
gm_status gm_resample(gm_resampler *r, const uint8_t *from, int64_t channels, int64_t height, int64_t width,
                      uint8_t *to, int64_t to_height, int64_t to_width);

/* One axis of a result of which a part is wanted: of `in` values that become `out`, those from `first` on are there,
 * `held` of them; results from `from` on are wanted, n of them. */
typedef struct gm_resample_span {
    int64_t in, out, from, n, first, held;
} gm_resample_span;

/* Sets first and held to what the wanted results are made of. */
void gm_resample_needs(gm_resample_span *s);
/* The part (channels, y->n, x->n) of the result, from the part (channels, y->held, x->held): the same bytes as those of
 * the whole. GM_ENOMEM. */
gm_status gm_resample_part(gm_resampler *r, const uint8_t *from, int64_t channels, const gm_resample_span *y,
                           const gm_resample_span *x, uint8_t *to);
void      gm_resampler_free(gm_resampler *r); /* a zeroed one is allowed */

#endif
