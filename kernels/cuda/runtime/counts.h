/* counts.h - counts how often this process used the device: the backend's side of gm_device_counts (device.h). */
#ifndef GM_CUDA_COUNTS_H
#define GM_CUDA_COUNTS_H

#include "driver.h"

/* Replaces the driver's functions that launch, copy, wait and allocate memory by functions that count and then call
 * them. Called once. */
void gm_cuda_count_calls(gm_driver *driver);
/* Counts a call of a library (cuBLASLt, cuDNN), which launches kernels of its own. */
void gm_cuda_count_library(void);
void gm_cuda_counts(const gm_device *dev, gm_device_counts *out);

#endif
