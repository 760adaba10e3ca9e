/* turned_args.h - arguments of the kernel of turned.cu. C for host and kernels. */
#ifndef GM_CUDA_TURNED_ARGS_H
#define GM_CUDA_TURNED_ARGS_H

#include <stdint.h>

#define GM_TURN_SIDE    64  /* rows and columns of a tile */
#define GM_TURN_WORDS   33  /* of a row of a tile in shared memory: one more than it has, so that columns lie apart */
#define GM_TURN_THREADS 256 /* of a block, which has a tile */
#define GM_TURN_PACK    8   /* numbers of 16 bits that are loaded or stored at once */

/* from (n, rows, columns) to (n, columns, rows), both contiguous, of 16 bits, at multiples of 16 bytes. */
typedef struct gm_turn_args {
    const void *from;
    void       *to;
    int64_t     rows, columns;
    int32_t     tiles[2]; /* of a plane, along its rows and along its columns */
} gm_turn_args;

#endif
