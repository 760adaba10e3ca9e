/* cumsum.c - sums of the elements up to each along one dimension. */
#include "loops.h"

gm_status gm_ref_cumsum(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0];
    int              dim = ref_dim(call, x->ndim);
    (void)dev;
    for (int64_t line = 0, lines = ref_lines(x, dim); line < lines; line++) {
        ref_line from = ref_line_of(x, dim, line), to = ref_line_of(call->out[0], dim, line);
        double   sum = 0;
        for (int64_t i = 0; i < from.n; i++) {
            int64_t at = call->attrs->inverse ? from.n - 1 - i : i;
            ref_line_set(&to, at, sum += ref_line_get(&from, at));
        }
    }
    return GM_OK;
}
