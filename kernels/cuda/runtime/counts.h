/* counts.h - what the host asked of the device, counted in this process: the backend's side of gm_device_counts. */
#ifndef GM_CUDA_COUNTS_H
#define GM_CUDA_COUNTS_H

#include "driver.h"

/* Puts functions that count before those of the driver that launch, copy, wait and take memory; once. */
void gm_cuda_count_calls(gm_driver *driver);
/* A library was asked for work, which launches kernels of its own. */
void gm_cuda_count_library(void);
void gm_cuda_counts(const gm_device *dev, gm_device_counts *out);

#endif
