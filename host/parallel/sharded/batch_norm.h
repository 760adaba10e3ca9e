/* batch_norm.h - batch norm (Ioffe and Szegedy 2015, arXiv:1502.03167) of x (n, c, ...), whose samples, channels and
 * further dimensions may be cut over ranks.
 *
 * Each channel is normalised over all elements of the whole batch: the ranks that share its samples or its space merge
 * mean and squares of their blocks (moments.c), so that any number of ranks computes what one does. Padding of blocks
 * counts nowhere, and a rank may have no sample at all. Sent are 2 numbers a channel, the bytes of one all_reduce, in
 * forward and again in backward; nothing where no axis cuts samples or space, and nothing with given statistics.
 *
 * The function stands above gm_apply: it is made of the steps of ops.def, and records one node. */
#ifndef GM_BATCH_NORM_H
#define GM_BATCH_NORM_H

#include "../../autograd/apply.h"

enum { GM_BN_X, GM_BN_W, GM_BN_B, GM_BN_MEAN, GM_BN_VARIANCE, GM_BN_INPUTS };

/* *y = (x - mean) / sqrt(variance + eps) w + b, laid out as x; w, b: NULL or (c). Without in[GM_BN_MEAN] mean and
 * variance are those of x: *mean and *variance (NULL: not wanted) receive them, (c), cut as the channels of x, without
 * a gradient; this variance divides by the number of elements less 1, while y divides by that number. With it and
 * in[GM_BN_VARIANCE], (c), these are used as constants. Collective over the axes that cut x other than its channels, in
 * forward and backward, unless statistics are given. GM_ESHAPE: shapes or layouts do not fit; x is partial. GM_EINVAL:
 * one of mean and variance alone; a batch with fewer than two elements in a channel. */
gm_status gm_batch_norm(gm_rank *r, gm_value *const *in, double eps, gm_value **y, gm_value **mean,
                        gm_value **variance);

#endif
