/* refusal.c - the record of refusals (refusal.h). After the first launch of a kernel that may refuse, every wait also
 * copies the record to the host. */
#include "refusal.h"

#include <inttypes.h>
#include "driver.h"

gm_status gm_cuda_refusal(gm_device *dev, gm_refusal **on_device)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    if (!cu->refusal) {
        CUdeviceptr p;
        if (!cu->refused) GM_CU(cu->driver, cuMemAllocHost(&cu->refused, sizeof(gm_refusal)));
        GM_CU(cu->driver, cuMemAlloc(&p, sizeof(gm_refusal)));
        cu->refusal = p;
        GM_CU(cu->driver, cuMemsetD8Async(p, 0, sizeof(gm_refusal), cu->stream));
    }
    *on_device = (gm_refusal *)(uintptr_t)cu->refusal;
    return GM_OK;
}

gm_status gm_cuda_ask_refusal(gm_cuda *cu)
{
    if (!cu->refusal) return GM_OK;
    GM_CU(cu->driver, cuMemcpyDtoHAsync(cu->refused, cu->refusal, sizeof(gm_refusal), cu->stream));
    return GM_OK;
}

/* limit: what can be named, or minus the rows that an expert has. */
static gm_status hear_experts(const gm_refusal *r)
{
    if (r->limit < 0)
        return GM_FAIL(GM_EINVAL,
                       "%s: choice %" PRId64 " (from 0) is one too many for expert %" PRId64 ", which has %" PRId64
                       " rows (found by the GPU, noticed here; %d such)",
                       gm_op_name((gm_op)r->op), r->place, r->value, -r->limit, (int)r->count);
    return GM_FAIL(GM_EINVAL,
                   "%s: number %" PRId64 " at position %" PRId64 " (from 0) is none of %" PRId64
                   "%s, nor -1 (found by the GPU, noticed here; %d such)",
                   gm_op_name((gm_op)r->op), r->value, r->place, r->limit,
                   r->op <= GM_OP_experts_order && r->op != GM_OP_experts_before ? " experts" : "", (int)r->count);
}

static gm_status hear_attention(const gm_refusal *r)
{
    return GM_FAIL(GM_EINVAL,
                   "%s: key_mask has a zero before a one in row %" PRId64 " (from 0): %" PRId64 " of its first %" PRId64
                   " keys are hidden; prefix_mask takes rows of ones and then zeros, leave it out for others (found by "
                   "the GPU, noticed here; %d such)",
                   gm_op_name((gm_op)r->op), r->place, r->value, r->limit, (int)r->count);
}

static gm_status hear_groups(const gm_refusal *r)
{
    return GM_FAIL(GM_EINVAL,
                   "%s: bound %" PRId64 " at position %" PRId64 " (from 0) is not from the one before it to %" PRId64
                   ", the number of rows (found by the GPU, noticed here)",
                   gm_op_name((gm_op)r->op), r->value, r->place, r->limit);
}

gm_status gm_cuda_hear_refusal(gm_cuda *cu)
{
    const gm_refusal *r = cu->refused;
    if (!cu->refusal || !r->count) return GM_OK;
    GM_CU(cu->driver, cuMemsetD8Async(cu->refusal, 0, sizeof(gm_refusal), cu->stream));
    if (r->op == GM_OP_cross_entropy || r->op == GM_OP_cross_entropy_grad)
        return GM_FAIL(GM_EINVAL,
                       "%s: target %" PRId64 " of row %" PRId64 " (from 0) is none of %" PRId64
                       " classes (found by the GPU, noticed here; %d such)",
                       gm_op_name((gm_op)r->op), r->value, r->place, r->limit, (int)r->count);
    if (r->op == GM_OP_attention || r->op == GM_OP_attention_grad) return hear_attention(r);
    if (r->op >= GM_OP_experts_count && r->op <= GM_OP_experts_combine_grad) return hear_experts(r);
    if (r->op == GM_OP_grouped_matmul || r->op == GM_OP_grouped_weight_grad) return hear_groups(r);
    return GM_FAIL(GM_EINVAL,
                   "%s: index %" PRId64 " at position %" PRId64 " (from 0) is outside a table of %" PRId64
                   " (found by the GPU, noticed here; %d such)",
                   gm_op_name((gm_op)r->op), r->value, r->place, r->limit, (int)r->count);
}

void gm_cuda_forget_refusal(gm_cuda *cu)
{
    if (cu->refusal) cu->driver->cuMemFree(cu->refusal);
    if (cu->refused) cu->driver->cuMemFreeHost(cu->refused);
}
