/* combine.h - the arithmetic of reductions, and copies between strips of tensors and messages. Private to comm/.
 *
 * Sums are taken in the order of the parts. 16-bit types are summed in f32 and rounded once; integers wrap. max and min
 * give NaN where any part has one, so that no rank overlooks it. */
#ifndef GM_COMBINE_H
#define GM_COMBINE_H

#include "comm.h"

/* out[n] = parts[0] op parts[1] op ..., a mean divided by `of`; out may be one of the parts. */
void gm_combine(gm_dtype dtype, gm_reduction op, int n_parts, const void *const *parts, void *out, int64_t n, int of);

/* Copies n rows of `bytes` bytes; row i begins i from_step bytes after `from` and i to_step bytes after `to`. */
void gm_copy_rows(char *to, size_t to_step, const char *from, size_t from_step, size_t bytes, int64_t n);

#endif
