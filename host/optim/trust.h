/* trust.h - which rank counts what of the norms for trust ratios, and their sum over the ranks. Private to optimizer.c.
 *
 * The squares of a parameter are those of its global tensor: each element counts once, on the rank whose block has it
 * and whose coordinate is 0 on the other axes. All parameters' squares are summed by one small all-reduce over the
 * ranks of the stage. If no parameter is cut, every rank has all squares and nothing is sent.
 *
 * Stages of a pipeline hold copies of a tied parameter, and their updates must be equal bit for bit. So every stage
 * sums over the same axes, whatever cuts its parameters. */
#ifndef GM_OPTIM_TRUST_H
#define GM_OPTIM_TRUST_H

#include "optimizer.h"

/* The axes to sum over: those of a stage, or 0 if no parameter is cut. */
uint32_t gm_trust_axes(const gm_optimizer *o);
/* Does this rank measure parameter i? */
bool gm_trust_counts(const gm_optimizer *o, int i, uint32_t axes);
/* Sums t, f64, over these axes. */
gm_status gm_trust_sum(gm_rank *r, uint32_t axes, gm_tensor *t);

#endif
