/* tile_map.h - how kernels for Hopper have tiles of a matrix copied (tensor_map.h). */
#ifndef GM_CUDA_TILE_MAP_H
#define GM_CUDA_TILE_MAP_H

#include "tensor_map.h"
#include "cuda.h"

/* A matrix of numbers of 16 bits whose rows lie `step` elements apart, each without gaps; and a tile of it. Sizes and
 * steps that the driver does not take are refused by gm_tile_map_takes. */
typedef struct gm_tile_matrix {
    const void *data;
    gm_dtype    dtype;
    int64_t     rows, columns, step;
    int         tile_rows, tile_columns; /* up to 256; 64 or 32 (swizzled over 128 or 64 bytes) */
} gm_tile_matrix;

/* Whether address, sizes and step are what the copies need: multiples of 16 bytes, below 2^31. */
bool gm_tile_map_takes(const gm_tile_matrix *m);
/* Fills a map; outside of the matrix, loads give zeros and stores write nothing. GM_EIO: the driver refuses it. */
gm_status gm_tile_map_make(gm_device *dev, const gm_tile_matrix *m, gm_tensor_map *out);

#endif
