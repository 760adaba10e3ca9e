/* tensor_map.h - how a matrix in memory is cut into tiles that a multiprocessor copies by itself (CUtensorMap of the
 * driver's API, "Tensor Map Object Management"). The host fills it (gm_cuda_tile_map), kernels take it as a part of
 * their arguments. The file is C for host and kernels. */
#ifndef GM_CUDA_TENSOR_MAP_H
#define GM_CUDA_TENSOR_MAP_H

#include <stdint.h>

#ifdef __cplusplus
#define GM_MAP_ALIGNED alignas(64)
#else
#define GM_MAP_ALIGNED _Alignas(64)
#endif

typedef struct gm_tensor_map {
    GM_MAP_ALIGNED uint64_t word[16];
} gm_tensor_map;

#endif
