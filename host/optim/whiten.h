/* whiten.h - what makes the columns of a matrix orthonormal, from the products of its columns with each other.
 *
 * Of b (m, n) with the singular value decomposition U S V', the products C = b' b are V S^2 V'. With W = V S^-1 the
 * columns of b W are those of U, the left singular vectors, by falling singular values. So the device does all that has
 * the size of b, and the host decomposes the small C (../lapack/lapack.h). */
#ifndef GM_WHITEN_H
#define GM_WHITEN_H

#include "../../kernels/tensor.h"

/* c (..., n, n), f64, contiguous, symmetric in its last two dimensions: becomes W, matrix by matrix. A column of W is
 * zero where S is at most `least` (0 or more) times the largest one: b has no such direction, but for rounding. What is
 * not finite in a matrix makes all of it NaN. Waits for the device; on meta it does nothing. GM_ENOMEM; GM_EINVAL:
 * LAPACK is not there. */
gm_status gm_whiten(gm_tensor *c, double least);

#endif
