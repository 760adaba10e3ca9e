/* ref.h - the reference backend: plain loops in double that define what every op means. It is slow on purpose, so that
 * its code is obvious. Specs compare the other backends with it (spec/kernels). It uses the same memory as "cpu". */
#ifndef GM_REF_H
#define GM_REF_H
#include "../device.h"
extern const gm_backend gm_ref;
#endif
