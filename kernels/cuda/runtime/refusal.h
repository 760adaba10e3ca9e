/* refusal.h - how kernels refuse values that only they can see, such as an index outside of its table. A kernel skips
 * such an element. The first one leaves a record in device memory. The next call that waits for the device
 * (gm_cuda_read, gm_cuda_synchronize) fails with a message made from the record. So a steady step need not wait, and no
 * value is silently changed. The file is C for host and kernels; gm_refuse is for kernels. */
#ifndef GM_CUDA_REFUSAL_H
#define GM_CUDA_REFUSAL_H

#include <stdint.h>

typedef struct gm_refusal {
    int32_t count;               /* refused elements; the other fields describe the first one that was recorded */
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
