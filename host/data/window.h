/* window.h - which part of a sample of height x width a transform keeps. It may reach beyond the sample: zeros. */
#ifndef GM_WINDOW_H
#define GM_WINDOW_H

#include "../../kernels/philox.h"
#include "transform.h"

/* The window of a crop of any kind. key: of the transform's random numbers. GM_ESHAPE: it does not fit. */
gm_status gm_window_of(const gm_transform *t, uint64_t key, uint64_t epoch, int64_t sample, int64_t height,
                       int64_t width, gm_window *w);

/* Height and width after a resize. */
void gm_resized(const gm_transform *t, int64_t height, int64_t width, int64_t *to_height, int64_t *to_width);

/* Cuts a window out of (channels, height, width) values of `size` bytes; what lies outside becomes zero. */
void gm_window_cut(const gm_window *w, const char *in, int64_t channels, int64_t height, int64_t width, size_t size,
                   char *out);

#endif
