/* group_norm.h - group norm (Wu and He 2018, arXiv:1803.08494) of x (n, c, ...), whose samples and whole groups of
 * channels may be cut over ranks. It sends nothing.
 *
 * The function stands above gm_apply: it is made of the steps of batch norm in ops.def, to which the groups of all
 * samples are channels of one sample, and records one node. */
#ifndef GM_GROUP_NORM_H
#define GM_GROUP_NORM_H

#include "../../autograd/apply.h"

enum { GM_GN_X, GM_GN_W, GM_GN_B, GM_GN_INPUTS };

/* *y = (x - mean) / sqrt(variance + eps) w + b, laid out as x, with mean and variance of each group of c / groups
 * channels of a sample; w, b: NULL or (c). GM_ESHAPE: shapes or layouts do not fit. GM_EINVAL: groups do not divide the
 * channels. */
gm_status gm_group_norm(gm_rank *r, gm_value *const *in, int64_t groups, double eps, gm_value **y);

#endif
