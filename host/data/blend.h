/* blend.h - samples that are mixed with others: mixup (Zhang et al. 2018) and cutmix (Yun et al. 2019).
 *
 * A sample is mixed with a partner, any sample of the dataset. Its share and that of the partner add up to 1; the
 * share is drawn from Beta(alpha, alpha). Mixup adds both by their shares. Cutmix puts a part of the partner, of its
 * share of the area, around a random place into the picture; what lies outside of the picture is cut off, and the
 * shares are those of the areas then. Labels become probabilities of the classes: the shares. All of it is a function
 * of (seed, epoch, number of the sample), so it does not depend on batches, ranks and threads. */
#ifndef GM_BLEND_H
#define GM_BLEND_H

#include "../../kernels/tensor.h"

typedef enum gm_blend_kind { GM_MIXUP, GM_CUTMIX } gm_blend_kind;

#define GM_BLENDS_MAX 4

typedef struct gm_blend {
    gm_blend_kind kind;
    double        alpha, probability; /* alpha above 0; the probability that a sample is mixed in this way */
} gm_blend;

/* What becomes of a sample. */
typedef struct gm_blend_choice {
    bool          blended;
    gm_blend_kind kind;
    int64_t       partner;
    double        share;                    /* of the sample itself */
    int64_t       top, left, bottom, right; /* cutmix: the part that is the partner's */
} gm_blend_choice;

/* Chooses for one of `samples` samples of this shape, the first of n blends whose chance comes. */
gm_blend_choice gm_blend_choose(const gm_blend *list, int n, uint64_t seed, uint64_t epoch, int64_t sample,
                                int64_t samples, int ndim, const int64_t *shape);
/* x becomes the mixture of x and other: n elements, f32 or f64; cutmix: (channels, height, width). */
void gm_blend_samples(const gm_blend_choice *c, gm_dtype dtype, int64_t n, const int64_t *shape, void *x,
                      const void *other);
/* y[classes], f32 or f64: the probabilities of the classes. */
void gm_blend_labels(const gm_blend_choice *c, gm_dtype dtype, int64_t classes, int64_t label, int64_t other, void *y);

#endif
