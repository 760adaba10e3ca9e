/* normals.h - standard normal numbers of made-up data. */
#ifndef GM_NORMALS_H
#define GM_NORMALS_H

#include <stdint.h>

/* n numbers of stream (key, step): to[k] = base[k] (NULL: 0) + scale * standard normal (Box-Muller). */
void gm_normals(uint64_t key, uint64_t step, int64_t n, double scale, const double *base, double *to);

#endif
