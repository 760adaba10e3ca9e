/* copy_args.h - arguments of those kernels of copy.cu for which gm_map_args (map.h) are not enough. */
#ifndef GM_CUDA_COPY_ARGS_H
#define GM_CUDA_COPY_ARGS_H

#include "../../common/map.h"

#define GM_TILE       32
#define GM_TILE_LINES 8  /* of a tile at once: 256 threads */
#define GM_PLATE      64 /* the side of a tile that is read and written by 16 bytes */
#define GM_PLATE_GAP  4  /* bytes between the lines of such a tile in shared memory */

/* y[row * y_row + column] = x[column * x_column + row] for each plane of the map, whose operands are y and x. */
typedef struct gm_turn_args {
    gm_map      map;
    const void *x;
    void       *y;
    int64_t     rows, columns, x_column, y_row; /* strides in elements */
    int64_t     planes_at_once;                 /* blocks along y */
} gm_turn_args;

#endif
