/* newton_schulz.h - brings the singular values of a matrix near 1: Muon's orthogonalisation (Jordan 2024,
 * https://kellerjordan.github.io/posts/muon/).
 *
 * X is divided by its Frobenius norm. Then each step makes of it a X + (b A + c A A) X with A = X X'. The coefficients
 * push small singular values up quickly and leave all of them between about 0.7 and 1.2; they do not converge to 1. */
#ifndef GM_NEWTON_SCHULZ_H
#define GM_NEWTON_SCHULZ_H

#include "../autograd/work.h"

typedef struct gm_newton_schulz {
    int    steps;
    double a, b, c;
    double eps; /* the norm counts as at least this */
} gm_newton_schulz;

/* x (m, n) with m <= n, f32 or f64, which is not changed; the result belongs to the work. */
gm_tensor *gm_orthogonalize(gm_work *w, const gm_newton_schulz *rule, gm_tensor *x);

#endif
