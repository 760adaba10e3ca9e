/* softmax.c - softmax, log softmax and their gradients along one dimension.
 *
 * Rows along the last dimension are processed where they lie, and so is softmax along another dimension of contiguous
 * tensors, whose columns are lanes. Else another dimension is first moved to the end (cpu_with_rows: by a view, or by a
 * transposed copy if its stride is not 1). The largest element is subtracted before exp. log softmax is (x - max) -
 * log(sum), so that large logits keep their digits. */

typedef struct softmax_job {
    cpu_rows x, g, y; /* gradients: x is the forward's result */
    int64_t  width;
    bool     stream, whole; /* whole: it streams whole vectors to addresses that vectors divide */
} softmax_job;

#define SOFTMAX_VECTORS 4  /* of columns that go beside each other */
#define SOFTMAX_COLUMNS 8  /* so few lanes are worth it */
#define SOFTMAX_ROWS    32 /* elements of a column that are added before they are added to the whole */

/* Contiguous: (outer, n, inner). */
typedef struct softmax_columns {
    const void *x;
    void       *y;
    int64_t     n, inner, strips; /* strips: of columns, for each of the outer places */
} softmax_columns;

#define AS 32
#include "as.h"
#include "softmax_t.h"
#define AS 64
#include "as.h"
#include "softmax_t.h"
#define AS 0
#include "as.h"

static gm_status softmax_rows(gm_device *dev, const gm_call *call)
{
    static const gm_job jobs[4][2] = {
        {softmax_part_f32, softmax_part_f64},
        {softmax_grad_part_f32, softmax_grad_part_f64},
        {log_softmax_part_f32, log_softmax_part_f64},
        {log_softmax_grad_part_f32, log_softmax_grad_part_f64},
    };
    gm_tensor  *x = call->in[0], *g = cpu_in(call, 1);
    softmax_job j = {.x = cpu_rows_of(x), .y = cpu_rows_of(call->out[0])};
    if (g) j.g = cpu_rows_of(g);
    j.width = j.x.width;
    j.stream = cpu_streams(j.x.rows * j.width * j.x.size) && j.width <= CPU_ROW;
    j.whole = j.stream && j.y.even &&
              ((uintptr_t)j.y.data | (uint64_t)j.y.step | (uint64_t)(j.width * j.x.size)) % CPU_VECTOR == 0;
    gm_job job = jobs[call->op - GM_OP_softmax][x->dtype == GM_F64];
    cpu_parallel(dev, j.width ? j.x.rows : 0, 4 * j.width * j.x.size, job, &j);
    return GM_OK;
}

static gm_status along_dim(gm_device *dev, const gm_call *call)
{
    int ndim = call->in[0]->ndim;
    return cpu_with_rows(dev, call, ndim, (int)(call->attrs->dim < 0 ? call->attrs->dim + ndim : call->attrs->dim),
                         softmax_rows);
}

/* Softmax along a dimension with `inner` elements behind it. */
static gm_status softmax_by_columns(gm_device *dev, const gm_call *call, int dim, int64_t inner)
{
    const gm_tensor *x = call->in[0];
    const int64_t    size = (int64_t)gm_dtype_size(x->dtype), strip = SOFTMAX_VECTORS * CPU_VECTOR / size;
    softmax_columns  j = {gm_tensor_data(x), gm_tensor_data(call->out[0]), x->shape[dim], inner,
                          (inner + strip - 1) / strip};
    const int64_t    outer = j.n ? gm_tensor_numel(x) / (j.n * inner) : 0, columns = inner < strip ? inner : strip;
    cpu_parallel(dev, outer * j.strips, 4 * columns * j.n * size, BY_TYPE(x, softmax_columns_part), &j);
    return GM_OK;
}

static gm_status cpu_softmax(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0];
    const int        dim = (int)(call->attrs->dim < 0 ? call->attrs->dim + x->ndim : call->attrs->dim);
    int64_t          inner = 1;
    for (int d = dim + 1; d < x->ndim; d++) inner *= x->shape[d];
    if (inner < SOFTMAX_COLUMNS || !gm_tensor_is_contiguous(x) || !gm_tensor_is_contiguous(call->out[0]))
        return along_dim(dev, call);
    return softmax_by_columns(dev, call, dim, inner);
}

static gm_status cpu_softmax_grad(gm_device *dev, const gm_call *call) { return along_dim(dev, call); }
static gm_status cpu_log_softmax(gm_device *dev, const gm_call *call) { return along_dim(dev, call); }
static gm_status cpu_log_softmax_grad(gm_device *dev, const gm_call *call) { return along_dim(dev, call); }

_Static_assert(GM_OP_softmax_grad == GM_OP_softmax + 1 && GM_OP_log_softmax == GM_OP_softmax + 2 &&
                   GM_OP_log_softmax_grad == GM_OP_softmax + 3,
               "softmax_rows finds its job by the order of ops.def");
