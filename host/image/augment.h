/* augment.h - the operations of RandAugment (Cubuk et al. 2020) on a picture of bytes, 1 or 3 planes, as Pillow does
 * them, with the strengths of torchvision. */
#ifndef GM_AUGMENT_H
#define GM_AUGMENT_H

#include <stdint.h>

typedef enum gm_augment {
    GM_AUGMENT_IDENTITY,
    GM_AUGMENT_SHEAR_X,
    GM_AUGMENT_SHEAR_Y,
    GM_AUGMENT_TRANSLATE_X,
    GM_AUGMENT_TRANSLATE_Y,
    GM_AUGMENT_ROTATE,
    GM_AUGMENT_BRIGHTNESS,
    GM_AUGMENT_COLOUR,
    GM_AUGMENT_CONTRAST,
    GM_AUGMENT_SHARPNESS,
    GM_AUGMENT_POSTERIZE,
    GM_AUGMENT_SOLARIZE,
    GM_AUGMENT_AUTO_CONTRAST,
    GM_AUGMENT_EQUALIZE,
    GM_AUGMENTS
} gm_augment;

/* Changes `in` into `out`, both (channels, height, width). strength: magnitude / (bins - 1), 0 to 1; turned: with the
 * opposite sign, for operations that have one. What comes in from outside of the picture is 0, and places are those of
 * the nearest pixel. */
void gm_augment_apply(gm_augment what, double strength, int turned, int64_t channels, int64_t height, int64_t width,
                      const uint8_t *in, uint8_t *out);

#endif
