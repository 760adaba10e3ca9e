/* colour.h - changes the colours of a picture of bytes, 1 or 3 planes of n pixels, in place.
 *
 * Each result is rounded to the nearest byte. The gray of a pixel is 0.299 R + 0.587 G + 0.114 B, or its one value.
 *     brightness   f v
 *     contrast     m + f (v - m), m: the mean gray of the picture
 *     saturation   g + f (v - g), g: the gray of the pixel; one channel stays as it is
 *     hue          the angle of the colour moves by f turns of the circle, -0.5 to 0.5 (HSV); one channel stays */
#ifndef GM_COLOUR_H
#define GM_COLOUR_H

#include <stdint.h>

typedef enum gm_colour_change { GM_BRIGHTNESS, GM_CONTRAST, GM_SATURATION, GM_HUE, GM_COLOUR_CHANGES } gm_colour_change;

void gm_colour_apply(gm_colour_change what, double f, uint8_t *pixels, int64_t channels, int64_t n);

#endif
