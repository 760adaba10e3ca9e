/* fake_sums.h - reductions of the emulation's NCCL, in the tensors' own type: 16-bit sums are rounded at each term. */
#ifndef GM_FAKE_SUMS_H
#define GM_FAKE_SUMS_H

#include <stdbool.h>
#include <stddef.h>

size_t gm_fake_size(int type); /* of an element of an ncclDataType_t */
/* sum becomes sum and term, elements of type, by an ncclRedOp_t; with the last of `places` terms a mean is divided. */
void gm_fake_combine(int type, int op, int places, char *sum, const char *term, bool last, size_t count);

#endif
