/* trust.h - trust ratios: how far an update of a whole tensor goes, by the norm of the tensor.
 *
 * LARS (You, Gitman and Ginsburg 2017, arXiv:1708.03888) multiplies the gradient, weight decay included, before the
 * direction is taken: coefficient |w| / (|g| + weight_decay |w| + eps). LAMB (You et al. 2020, arXiv:1904.00962)
 * multiplies the update, weight decay included: |w| / |u|. Where a norm is 0 the ratio is 1.
 *
 * The norms are those of the global tensor. So an update has two calls: with the attribute `measure` the op changes
 * nothing but `trust`, f64 (2) of each tensor, which becomes the sums of squares of the block (w, then g or u); the
 * caller sums them over the ranks; the second call computes the same u again and goes by the ratio. The caller fills
 * trust with 0 before, because a block without elements may leave it as it is. */
#ifndef GM_TRUST_H
#define GM_TRUST_H

#include <math.h>
#include <stdint.h>

#ifndef GM_INLINE
#define GM_INLINE static inline
#endif

enum { GM_TRUST_NONE, GM_TRUST_LAMB, GM_TRUST_LARS, GM_TRUST_KINDS };

typedef struct gm_trust_rule {
    int64_t kind;                    /* GM_TRUST_* */
    double  coefficient, eps, decay; /* of LARS; decay: the weight decay that is part of the gradient */
    double  smallest, largest;       /* the ratio stays between them; largest 0: no bound */
} gm_trust_rule;

/* squares: |w|^2, and |g|^2 (LARS) or |u|^2 (LAMB). */
GM_INLINE double gm_trust_ratio(const gm_trust_rule *r, double w_squares, double other_squares)
{
    double w = sqrt(w_squares), other = sqrt(other_squares), ratio;
    if (!(w > 0 && other > 0)) return 1;
    if (r->kind == GM_TRUST_LARS) ratio = r->coefficient * w / (other + r->decay * w + r->eps);
    else ratio = w / other;
    if (r->largest > 0 && ratio > r->largest) ratio = r->largest;
    return ratio < r->smallest ? r->smallest : ratio;
}

#endif
