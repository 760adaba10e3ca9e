/* gate_args.h - arguments of the kernels of gate.cu. */
#ifndef GM_CUDA_GATE_ARGS_H
#define GM_CUDA_GATE_ARGS_H

#include "../../common/rows.h"

#define GM_GATE_PACKS 1 /* of 16 bytes of a row that a thread has under way, of three tensors */

typedef struct gm_gate_args {
    gm_row_view g, a, b, da, db; /* da, db without data: not wanted */
    int64_t     rows, width;
    int32_t     team, function;
} gm_gate_args;

#endif
