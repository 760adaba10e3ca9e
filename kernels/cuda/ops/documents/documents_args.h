/* documents_args.h - arguments of the kernel of documents.cu. C for host and kernels. */
#ifndef GM_CUDA_DOCUMENTS_ARGS_H
#define GM_CUDA_DOCUMENTS_ARGS_H

#include <stdint.h>

#define GM_DOCUMENTS_THREADS 256 /* of a block, which has a row */

typedef struct gm_documents_args {
    const void *segment; /* (batch, n), i32 where narrow, else i64 */
    int64_t    *spans;   /* (batch, n, 3) */
    int64_t     segment_stride[2], spans_stride[3];
    int64_t     n;
    int32_t     narrow;
} gm_documents_args;

#endif
