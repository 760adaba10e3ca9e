/* refusal.h - how kernels refuse what only they can see, such as an index outside of its table: the first of them that
 * does leaves a record in device memory, skips the element, and the next call that waits for the device (gm_cuda_read,
 * gm_cuda_synchronize) fails with what it says. So nothing waits in a steady step, and nothing is silently clamped.
 * C for both sides; gm_refuse is for kernels. */
#ifndef GM_CUDA_REFUSAL_H
#define GM_CUDA_REFUSAL_H

#include <stdint.h>

typedef struct gm_refusal {
    int32_t count;               /* of refused elements; the first of them to arrive is described */
    int32_t op;                  /* gm_op */
    int64_t value, place, limit; /* "index 3 at position 1 (from 0) is outside a table of 3" */
} gm_refusal;

#ifdef GM_KERNEL
GM_DEVICE void gm_refuse(gm_refusal *r, int op, int64_t value, int64_t place, int64_t limit)
{
    if (gm_add_i32(&r->count, 1) != 0) return;
    r->op = op;
    r->value = value;
    r->place = place;
    r->limit = limit;
}
#else
#include "cuda.h"
/* The record of a device, for arguments of kernels. */
gm_status gm_cuda_refusal(gm_device *dev, gm_refusal **on_device);
#endif

#endif
