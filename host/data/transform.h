/* transform.h - what happens to a sample between the dataset and the batch.
 *
 * A pipeline runs its transforms in the order given; bytes become numbers (value / 255) at the first
 * normalize, or at the end. Shapes are (channels, height, width) for crop and flip; normalize counts
 * channels along the first dimension and takes one mean for all where one is given. Random choices
 * are a pure function of (seed, purpose "augment", place among the random transforms, epoch,
 * number of the sample): the order of the samples and the threads do not matter. Called by one thread at a time. */
#ifndef GM_TRANSFORM_H
#define GM_TRANSFORM_H

#include "../../kernels/tensor.h"

#define GM_TRANSFORMS_MAX 8
#define GM_CHANNELS_MAX   16

typedef enum gm_transform_kind { GM_NORMALIZE, GM_RANDOM_CROP, GM_RANDOM_FLIP } gm_transform_kind;

typedef struct gm_transform {
    gm_transform_kind kind;
    int               channels; /* normalize: how many means; 1 serves all channels */
    double            mean[GM_CHANNELS_MAX], std[GM_CHANNELS_MAX]; /* of values 0 to 1 where x is bytes */
    int64_t           height, width, padding; /* crop: result, and zeros added on each side before */
    double            probability;            /* flip, left and right */
} gm_transform;

typedef struct gm_pipeline gm_pipeline;

/* raw: dtype of samples (GM_U8, GM_F64; GM_I64 passes through untouched and takes no transforms);
 * shape: of one sample; out: GM_F32 or GM_F64. GM_ESHAPE when a transform does not fit the shape. */
gm_status gm_pipeline_new(const gm_transform *list, int n, gm_dtype raw, int ndim, const int64_t *shape, gm_dtype out,
                          uint64_t seed, gm_pipeline **p);
void      gm_pipeline_free(gm_pipeline *p); /* NULL is allowed */

/* What comes out: dtype (GM_I64 for tokens), shape (returns ndim), number of elements. */
gm_dtype gm_pipeline_dtype(const gm_pipeline *p);
int      gm_pipeline_shape(const gm_pipeline *p, int64_t *shape);
int64_t  gm_pipeline_numel(const gm_pipeline *p);

/* raw: one sample as the dataset gave it, overwritten; out: room for gm_pipeline_numel elements. */
void gm_pipeline_run(gm_pipeline *p, void *raw, uint64_t epoch, int64_t sample, void *out);

#endif
