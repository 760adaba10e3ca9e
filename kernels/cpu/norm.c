/* norm.c - layer norm and RMS norm over the last dimension, forward and backward.
 *
 * A row is read from memory once and stays in cache for its passes: mean and squares in double, the result. A mean of
 * 1e4 with a variance of 1 keeps its digits in f32. The mean is subtracted in two parts, because a mean rounded to f32
 * would lose those digits again. Gradients of w and b are sums over rows: NORM_ROWS rows that follow each other are
 * added in their own type, the rest by each thread in double, and these sums in order of threads. */

#define NORM_ROWS 4

/* One job serves both norms and both directions; NULL data where a tensor is absent. */
typedef struct norm_job {
    bool        rms, stream;
    double      eps;
    int64_t     width;
    cpu_rows    x, residual, y, sum, mean, rstd; /* forward */
    cpu_rows    g, gsum, dx;                     /* backward, beside x, mean, rstd */
    const void *w, *b;
    double     *partial; /* thread t: dw at partial + 2 t width, db behind it; NULL if neither is wanted */
    void       *rows;    /* of each thread: a row of h, where dx goes past the caches or has 16 bits; else NULL */
} norm_job;

#define AS 32
#include "as.h"
#include "norm_t.h"
#define AS 64
#include "as.h"
#include "norm_t.h"
#define AS 16
#include "as.h"
#include "norm_t.h"
#define AS 17
#include "as.h"
#include "norm_t.h"
#define AS 0
#include "as.h"

static cpu_rows rows_or_none(const gm_tensor *t) { return t ? cpu_rows_of(t) : (cpu_rows){0}; }

static gm_status norm_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = call->in[0], *residual = call->in[1], *w = call->in[2], *b = cpu_in(call, 3);
    bool       rms = call->op == GM_OP_rms_norm;
    norm_job   j = {.rms = rms, .eps = call->attrs->eps};
    j.x = cpu_rows_of(x);
    j.width = j.x.width;
    j.residual = rows_or_none(residual);
    j.y = cpu_rows_of(call->out[0]);
    j.sum = rows_or_none(call->out[1]);
    if (!rms) j.mean = cpu_scalars_of(call->out[2]);
    j.rstd = cpu_scalars_of(call->out[rms ? 2 : 3]);
    j.w = w ? gm_tensor_data(w) : NULL;
    j.b = b ? gm_tensor_data(b) : NULL;
    j.stream = cpu_streams(j.x.rows * j.width * j.x.size) && !(residual && !call->out[1]); /* y holds the sum then */
    int64_t tensors = 2 + (residual != NULL) + (call->out[1] != NULL);
    cpu_parallel(dev, j.x.rows, tensors * j.width * j.x.size, BY_ANY(x, norm_part), &j);
    return GM_OK;
}

static gm_status cpu_layer_norm(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, norm_rows);
}

static gm_status cpu_rms_norm(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, norm_rows);
}

/* y (+)= the sum of parts[0], parts[step], ... in order: gradients of parameters from sums of threads or of blocks. */
static void add_partials(gm_tensor *y, const double *parts, int count, int64_t step, bool accumulate)
{
    void   *data = gm_tensor_data(y);
    int64_t n = gm_tensor_numel(y), stride = cpu_stride1(y);
    for (int64_t i = 0; i < n; i++) {
        double s = accumulate ? gm_load(y->dtype, data, i * stride) : 0;
        for (int k = 0; k < count; k++) s += parts[k * step + i];
        gm_store(y->dtype, data, i * stride, s);
    }
}

static gm_status norm_grad_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = call->in[2], *w = call->in[3], *dw = call->out[1], *db = cpu_out(call, 2);
    bool       rms = call->op == GM_OP_rms_norm_grad;
    gm_block  *block = NULL;
    norm_job   j = {.rms = rms};
    j.g = cpu_rows_of(call->in[0]);
    j.gsum = rows_or_none(call->in[1]);
    j.x = cpu_rows_of(x);
    j.width = j.x.width;
    if (!rms) j.mean = cpu_scalars_of(call->in[4]);
    j.rstd = cpu_scalars_of(call->in[rms ? 4 : 5]);
    j.w = w ? gm_tensor_data(w) : NULL;
    j.dx = cpu_rows_of(call->out[0]);
    j.stream = cpu_streams(j.x.rows * j.width * j.x.size) && j.width <= CPU_ROW;
    int64_t size = (int64_t)gm_dtype_size(gm_dtype_wide(x->dtype)); /* sums of 16 bits have the bits of those of f32 */
    int64_t bytes = NORM_ROWS * (call->in[1] ? 4 : 3) * j.width * size;
    int64_t groups = (j.x.rows + NORM_ROWS - 1) / NORM_ROWS;
    int     parts = cpu_parts(dev, groups, bytes);
    size_t  row = (size_t)parts * (size_t)j.width * sizeof(double), room = dw || db ? 2 * row : 0;
    bool    rows = j.stream || gm_dtype_is_narrow(x->dtype);
    if (room || rows) {
        char *at;
        GM_TRY(cpu_scratch(dev, room + (rows ? row : 0), &at, &block));
        j.partial = room ? (double *)(void *)at : NULL;
        j.rows = rows ? at + room : NULL;
        memset(at, 0, room);
    }
    cpu_parallel(dev, groups, bytes, BY_ANY(x, norm_grad_part), &j);
    if (dw) add_partials(dw, j.partial, parts, 2 * j.width, call->attrs->accumulate);
    if (db) add_partials(db, j.partial + j.width, parts, 2 * j.width, call->attrs->accumulate);
    if (block) gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status cpu_layer_norm_grad(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, norm_grad_rows);
}

static gm_status cpu_rms_norm_grad(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, norm_grad_rows);
}
