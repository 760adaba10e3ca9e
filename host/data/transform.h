/* transform.h - changes a sample between the dataset and the batch.
 *
 * A chain runs its transforms in the given order. Bytes become numbers (value / 255) at the first normalize, or at
 * the end. Crop and flip need samples of shape (channels, height, width). For normalize, the channels are the first
 * dimension; a single mean serves all channels. Random choices are a pure function of (seed, purpose "augment", place
 * among the random transforms, epoch, number of the sample), so the order of samples and the threads do not matter.
 * Only one thread at a time may use a chain. */
#ifndef GM_TRANSFORM_H
#define GM_TRANSFORM_H

#include "../../kernels/tensor.h"

#define GM_TRANSFORMS_MAX 8
#define GM_CHANNELS_MAX   16

typedef enum gm_transform_kind { GM_NORMALIZE, GM_RANDOM_CROP, GM_RANDOM_FLIP } gm_transform_kind;

typedef struct gm_transform {
    gm_transform_kind kind;
    int               channels; /* normalize: the number of means; 1 serves all channels */
    double            mean[GM_CHANNELS_MAX], std[GM_CHANNELS_MAX]; /* for bytes: of the values 0 to 1 */
    int64_t           height, width, padding; /* crop: pixels of the result; zeros first added on each side */
    double            probability;            /* flip: the probability that left and right are exchanged */
} gm_transform;

typedef struct gm_transform_chain gm_transform_chain;

/* Makes a chain; the caller frees it. raw: dtype of samples, GM_U8 or GM_F64; GM_I64 samples pass unchanged, and
 * their list must be empty. shape: of one sample. out: GM_F32 or GM_F64. GM_ESHAPE: a transform does not fit the
 * shape. */
gm_status gm_transform_chain_new(const gm_transform *list, int n, gm_dtype raw, int ndim, const int64_t *shape,
                                 gm_dtype out, uint64_t seed, gm_transform_chain **p);
void      gm_transform_chain_free(gm_transform_chain *p); /* NULL is allowed */

/* Dtype (GM_I64 for tokens), shape (returns ndim) and number of elements of a transformed sample. */
gm_dtype gm_transform_chain_dtype(const gm_transform_chain *p);
int      gm_transform_chain_shape(const gm_transform_chain *p, int64_t *shape);
int64_t  gm_transform_chain_numel(const gm_transform_chain *p);

/* Transforms one sample. raw: the sample as the dataset gave it; it is overwritten. out: room for
 * gm_transform_chain_numel elements. */
void gm_transform_chain_run(gm_transform_chain *p, void *raw, uint64_t epoch, int64_t sample, void *out);

#endif
