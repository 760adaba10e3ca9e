/* documents.c - where the documents of a row begin and end (documents.cu). */
#include "../../runtime/cuda.h"
#include "documents_args.h"

gm_status cuda_documents(gm_device *dev, const gm_call *call)
{
    const gm_tensor  *segment = call->in[0], *spans = call->out[0];
    gm_documents_args a = {.segment = gm_tensor_data(segment),
                           .spans = gm_tensor_data(spans),
                           .segment_stride = {segment->stride[0], segment->stride[1]},
                           .spans_stride = {spans->stride[0], spans->stride[1], spans->stride[2]},
                           .n = segment->shape[1],
                           .narrow = segment->dtype == GM_I32};
    if (gm_tensor_numel(segment) == 0) return GM_OK;
    return GM_LAUNCH(dev, "gm_documents",
                     ((gm_cuda_grid){.x = segment->shape[0],
                                     .block = GM_DOCUMENTS_THREADS,
                                     .shared = 2 * GM_DOCUMENTS_THREADS * sizeof(int64_t)}),
                     a);
}
