/* ref.h - the reference backend: plain loops in double that define what every op means.
 * Slow and obvious on purpose; it judges the others (spec/kernels). Same memory as the CPU's. */
#ifndef GM_REF_H
#define GM_REF_H
#include "../device.h"
extern const gm_backend gm_ref;
#endif
