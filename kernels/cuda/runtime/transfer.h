/* transfer.h - copies that nobody waits for, and marks behind them; gm_backend in device.h describes the functions. */
#ifndef GM_CUDA_TRANSFER_H
#define GM_CUDA_TRANSFER_H

#include "cuda.h"

gm_status gm_cuda_take_pinned(void *device, size_t bytes, void **out);
void      gm_cuda_give_pinned(void *device, void *p, size_t bytes);
gm_status gm_cuda_read_later(gm_device *dev, void *pinned, const void *device, size_t bytes);
gm_status gm_cuda_write_later(gm_device *dev, void *device, const void *pinned, size_t bytes);
gm_status gm_cuda_mark(gm_device *dev, void **mark);
gm_status gm_cuda_passed(gm_device *dev, void *mark, bool *passed);
void      gm_cuda_unmark(gm_device *dev, void *mark);

#endif
