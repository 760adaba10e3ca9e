/* transform.h - changes a sample between the dataset and the batch.
 *
 * A chain runs its transforms in the given order. Bytes become numbers (value / 255) at the first normalize, or at the
 * end. All others need samples of shape (channels, height, width); resize, resized crop, colour jitter and rand
 * augment need bytes. A kernel of the user (kernel.h) takes samples of any shape, bytes or numbers as it says, and may
 * give another shape. For normalize, the channels are the first dimension; a single mean serves all channels. Samples
 * may differ in height and width (GM_ANY_SIZE), if a transform gives all of them one size. Random choices are a pure
 * function of (seed, purpose "augment", place among the random transforms, epoch, number of the sample), so the order
 * of samples and the threads do not matter. Only one thread at a time may use a chain. */
#ifndef GM_TRANSFORM_H
#define GM_TRANSFORM_H

#include "../../kernels/tensor.h"
#include "../image/image.h"
#include "kernel.h"

#define GM_TRANSFORMS_MAX  16
#define GM_CHANNELS_MAX    16
#define GM_AUGMENT_OPS_MAX 64
#define GM_ANY_SIZE        (-1) /* a height and width that differ from sample to sample */

typedef enum gm_transform_kind {
    GM_NORMALIZE,
    GM_RANDOM_CROP,
    GM_RANDOM_FLIP,
    GM_RESIZE,
    GM_CENTER_CROP,
    GM_RESIZED_CROP,
    GM_COLOR_JITTER,
    GM_RAND_AUGMENT,
    GM_KERNEL
} gm_transform_kind;

typedef struct gm_transform {
    gm_transform_kind kind;
    int               channels; /* normalize: the number of means; 1 serves all channels */
    double            mean[GM_CHANNELS_MAX], std[GM_CHANNELS_MAX]; /* for bytes: of the values 0 to 1 */
    int64_t           height, width; /* pixels of the result; resize with width 0: height is that of the shorter side */
    int64_t           padding;       /* random crop: zeros first added on each side */
    double            probability;   /* flip: the probability that left and right are exchanged */
    double   scale[2], ratio[2];     /* resized crop: least and most of the area, as a fraction; of width / height */
    double   strength;               /* rand augment: magnitude / (bins - 1) */
    int      ops;                    /* how many operations one after the other, at most GM_AUGMENT_OPS_MAX */
    uint32_t among;                  /* which of gm_augment, bit by bit */
    double   amount[4]; /* colour jitter, by gm_colour_change: factors from 1 - a to 1 + a, not below 0; hue -a to a */
    gm_kernel_use kernel; /* of the user */
} gm_transform;

const char *gm_transform_name(gm_transform_kind kind);
/* Of a transform of pictures: 0 < least <= most; the size of a result is that of a picture. GM_EINVAL, GM_ESHAPE. */
gm_status gm_transform_check(const gm_transform *t);

typedef struct gm_transform_chain gm_transform_chain;

/* Makes a chain; the caller frees it. raw: dtype of samples, GM_U8 or GM_F64; GM_I64 samples pass unchanged, and
 * their list must be empty. shape: of one sample. out: GM_F32 or GM_F64. GM_ESHAPE: a transform does not fit the
 * shape, or samples keep different sizes. */
gm_status gm_transform_chain_new(const gm_transform *list, int n, gm_dtype raw, int ndim, const int64_t *shape,
                                 gm_dtype out, uint64_t seed, gm_transform_chain **p);
void      gm_transform_chain_free(gm_transform_chain *p); /* NULL is allowed */

/* Dtype (GM_I64 for tokens), shape (returns ndim) and number of elements of a transformed sample. */
gm_dtype gm_transform_chain_dtype(const gm_transform_chain *p);
int      gm_transform_chain_shape(const gm_transform_chain *p, int64_t *shape);
int64_t  gm_transform_chain_numel(const gm_transform_chain *p);

/* Transforms one sample. raw: the sample as the dataset gave it; it is overwritten. out: room for
 * gm_transform_chain_numel elements. GM_ENOMEM. */
gm_status gm_transform_chain_run(gm_transform_chain *p, void *raw, uint64_t epoch, int64_t sample, void *out);

/* The same for a picture, of which only the part is decoded that the first transform keeps:
 *     rule = gm_transform_chain_begin(p, epoch, sample); gm_image_decode(..., &rule, &image);
 *     gm_transform_chain_image(p, &image, out);
 * GM_ESHAPE: a crop does not fit this picture. */
gm_window_rule gm_transform_chain_begin(gm_transform_chain *p, uint64_t epoch, int64_t sample);
gm_status      gm_transform_chain_image(gm_transform_chain *p, gm_image *image, void *out);

#endif
