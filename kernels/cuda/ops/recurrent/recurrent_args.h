/* recurrent_args.h - arguments of the kernels of recurrent.cu. */
#ifndef GM_CUDA_RECURRENT_ARGS_H
#define GM_CUDA_RECURRENT_ARGS_H

#include "../../common/rows.h"

#define GM_CELL_PACKS 1 /* of 16 bytes of each part of a row that a thread has under way */

/* All views have rows of `width`; x, moved and gates of a tensor are one for each gate. Without data: not given, or not
 * wanted. Backward, dx and dmoved stand in x and moved. */
typedef struct gm_cell_args {
    gm_row_view x[4], moved[4], gates[4];
    gm_row_view state, y, next;    /* state: c or h */
    gm_row_view g, gh, gc, dstate; /* backward */
    int64_t     rows, width;
    int32_t     team;
} gm_cell_args;

#endif
