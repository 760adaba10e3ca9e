/* cumsum.c - sums of the elements up to each along one dimension, in double.
 *
 * x is seen as (outer, n, inner), where n is the dimension. One thread has some neighbouring lines of one `outer` and
 * goes along n, so that memory is read in order; each line is added up by one thread from its first element on, so that
 * the bits do not depend on the number of threads. */

#define CUMSUM_LINES 64 /* neighbouring lines that are summed at a time */
#define CUMSUM_ROWS  4  /* lines of neighbouring elements that are */

typedef struct cumsum_job {
    const char *x;
    char       *y;
    int64_t     n, inner, panels; /* panels: of an outer place, of CUMSUM_LINES lines */
    bool        inverse;
} cumsum_job;

#define AS 32
#include "as.h"
#include "cumsum_t.h"
#define AS 64
#include "as.h"
#include "cumsum_t.h"
#define AS 0
#include "as.h"

static gm_status cpu_cumsum(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = NULL, *y = NULL;
    int        ndim = call->in[0]->ndim, dim = (int)(call->attrs->dim < 0 ? call->attrs->dim + ndim : call->attrs->dim);
    int64_t    outer = 1, inner = 1, n = call->in[0]->shape[dim], size = (int64_t)gm_dtype_size(call->in[0]->dtype);
    gm_status  st;
    for (int d = 0; d < ndim; d++) *(d < dim ? &outer : &inner) *= d == dim ? 1 : call->in[0]->shape[d];
    GM_TRY_OR(cpu_plain(dev, call->in[0]->dtype, call->in[0], true, &x), st, done);
    GM_TRY_OR(cpu_plain(dev, call->out[0]->dtype, call->out[0], false, &y), st, done);
    cumsum_job j = {.x = gm_tensor_data(x),
                    .y = gm_tensor_data(y),
                    .n = n,
                    .inner = inner,
                    .panels = (inner + CUMSUM_LINES - 1) / CUMSUM_LINES,
                    .inverse = call->attrs->inverse};
    int64_t    lines = inner < CUMSUM_LINES ? inner : CUMSUM_LINES;
    cpu_parallel(dev, n ? outer * j.panels : 0, 2 * n * lines * size, BY_TYPE(x, cumsum_part), &j);
done:
    gm_tensor_release(x);
    return cpu_home(dev, y, call->out[0], st);
}
