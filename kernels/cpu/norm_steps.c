/* norm_steps.c - the norms of norm.c in steps, for rows of which this rank has a block. A step reads its rows from
 * memory once. It sums in double, in the order of norm.c. */

/* One job serves all four; NULL data where a tensor is absent. */
typedef struct norm_step {
    bool        stream;
    int64_t     width;
    cpu_rows    x, residual, sum, y; /* y: the result, in backward dx */
    cpu_rows    g, gsum;
    cpu_rows    mean, rstd, m2; /* one number a row, from here on */
    cpu_rows    h, h_hat;       /* sums, or the means of whole rows */
    const void *w, *b;
    double     *partial; /* thread t: dw at partial + 2 t width, db behind it */
} norm_step;

#define AS 32
#include "as.h"
#include "norm_steps_t.h"
#define AS 64
#include "as.h"
#include "norm_steps_t.h"
#define AS 0
#include "as.h"

static cpu_rows    scalars_or_none(const gm_tensor *t) { return t ? cpu_scalars_of(t) : (cpu_rows){0}; }
static const void *data_or_none(const gm_tensor *t) { return t ? gm_tensor_data(t) : NULL; }

/* Bytes that a row of k tensors like x takes. */
static int64_t row_bytes(const norm_step *j, int64_t k) { return k * j->width * j->x.size; }

static norm_step step_of(const gm_tensor *x)
{
    norm_step j = {.x = cpu_rows_of(x)};
    j.width = j.x.width;
    return j;
}

static gm_status norm_sums_rows(gm_device *dev, const gm_call *call)
{
    norm_step j = step_of(call->in[0]);
    if (call->in[1] && !call->out[0])
        return GM_FAIL(GM_EINVAL, "norm_sums: the sum of x and residual is not asked for");
    j.residual = rows_or_none(call->in[1]);
    j.sum = rows_or_none(call->out[0]);
    j.mean = scalars_or_none(call->out[1]);
    j.m2 = cpu_scalars_of(call->out[2]);
    int64_t tensors = 1 + (j.residual.data != NULL) + (j.sum.data != NULL);
    cpu_parallel(dev, j.x.rows, row_bytes(&j, tensors), BY_TYPE(call->in[0], norm_sums_part), &j);
    return GM_OK;
}

static gm_status cpu_norm_sums(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, norm_sums_rows);
}

static gm_status norm_apply_rows(gm_device *dev, const gm_call *call)
{
    norm_step j = step_of(call->in[0]);
    j.w = data_or_none(call->in[1]);
    j.b = data_or_none(call->in[2]);
    j.mean = scalars_or_none(call->in[3]);
    j.rstd = cpu_scalars_of(call->in[4]);
    j.y = cpu_rows_of(call->out[0]);
    j.stream = cpu_streams(j.x.rows * row_bytes(&j, 1));
    cpu_parallel(dev, j.x.rows, row_bytes(&j, 2), BY_TYPE(call->in[0], norm_apply_part), &j);
    return GM_OK;
}

static gm_status cpu_norm_apply(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, norm_apply_rows);
}

static gm_status norm_grad_sums_rows(gm_device *dev, const gm_call *call)
{
    norm_step j = step_of(call->in[1]);
    gm_block *block;
    j.g = cpu_rows_of(call->in[0]);
    j.w = data_or_none(call->in[2]);
    j.mean = scalars_or_none(call->in[3]);
    j.rstd = cpu_scalars_of(call->in[4]);
    j.h = scalars_or_none(call->out[2]);
    j.h_hat = scalars_or_none(call->out[3]);
    int    parts = cpu_parts(dev, j.x.rows, row_bytes(&j, 2));
    size_t room = (size_t)parts * 2 * (size_t)j.width * sizeof(double);
    GM_TRY(cpu_scratch(dev, room, &j.partial, &block));
    memset(j.partial, 0, room);
    cpu_parallel(dev, j.x.rows, row_bytes(&j, 2), BY_TYPE(call->in[1], norm_grad_sums_part), &j);
    if (call->out[0]) add_partials(call->out[0], j.partial, parts, 2 * j.width, false);
    if (call->out[1]) add_partials(call->out[1], j.partial + j.width, parts, 2 * j.width, false);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status cpu_norm_grad_sums(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, norm_grad_sums_rows);
}

static gm_status norm_grad_apply_rows(gm_device *dev, const gm_call *call)
{
    norm_step j = step_of(call->in[2]);
    j.g = cpu_rows_of(call->in[0]);
    j.gsum = rows_or_none(call->in[1]);
    j.w = data_or_none(call->in[3]);
    j.mean = scalars_or_none(call->in[4]);
    j.rstd = cpu_scalars_of(call->in[5]);
    j.h = scalars_or_none(call->in[6]);
    j.h_hat = cpu_scalars_of(call->in[7]);
    j.y = cpu_rows_of(call->out[0]);
    j.stream = cpu_streams(j.x.rows * row_bytes(&j, 1)) && j.width <= CPU_ROW;
    cpu_parallel(dev, j.x.rows, row_bytes(&j, 3 + (j.gsum.data != NULL)), BY_TYPE(call->in[2], norm_grad_apply_part),
                 &j);
    return GM_OK;
}

static gm_status cpu_norm_grad_apply(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, norm_grad_apply_rows);
}
