/* lengths_args.h - arguments of the kernels of lengths.cu. C for host and kernels. */
#ifndef GM_CUDA_LENGTHS_ARGS_H
#define GM_CUDA_LENGTHS_ARGS_H

#include <stdint.h>

#include "attention_args.h"
#include "../../runtime/refusal.h"

#define GM_LENGTHS_THREADS 256 /* of a block, which has a sample */
#define GM_LENGTHS_BLANKS  3

typedef struct gm_lengths_args {
    const uint8_t *mask;    /* (samples, keys) */
    int32_t       *lengths; /* (samples): the number of keys that count, or 1 where none does */
    int32_t       *all;     /* (samples): the number of queries */
    int32_t       *none;    /* (samples): 1 where no key counts, else 0 */
    int64_t        mask_stride[2], keys, queries;
    gm_refusal    *refusal;
    int32_t        op; /* gm_op, for the refusal */
} gm_lengths_args;

/* Tensors of 16 bits (samples, rows, heads, size), which become zero where no key counts, and the lse there -inf. */
typedef struct gm_blank_args {
    gm_attention_view x[GM_LENGTHS_BLANKS];
    int64_t           rows[GM_LENGTHS_BLANKS], heads[GM_LENGTHS_BLANKS]; /* rows: 0: no such tensor */
    float            *lse;                                               /* (samples, lse_each), or NULL */
    int64_t           lse_each;
    const int32_t    *none;
    int32_t           size;
} gm_blank_args;

#endif
