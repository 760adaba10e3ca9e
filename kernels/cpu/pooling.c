/* pooling.c - the largest element and the average of windows, and their gradients (../pooling.h). A thread has some of
 * the images, so that gradients of places that several windows share are added in one order. Where windows have one
 * size, the largest elements of a line of them are found in vectors (max_pool_t.h); adaptive pooling, long kernels and
 * lines of few windows go window by window. */
#include "../pooling.h"

#define POOL_ROW     4096 /* elements of a row of an image, with padding, that are in a buffer */
#define POOL_WINDOWS 512  /* windows of a line that are worked on at a time */
#define POOL_KERNEL  64   /* the longest kernel of such windows */

typedef struct pool_job {
    gm_pool_axis axis[GM_SPACE];
    cpu_images   x, y, index; /* x, or dx; y, or g */
    int32_t      with_padding;
    int64_t      divisor;
    bool         accumulate;
} pool_job;

/* Windows [first, first + count) of a line, and how a row lies in the buffer: phases of `pitch` elements. offset: from
 * a window's place in its phase to each place of the kernel. */
typedef struct pool_block {
    int64_t first, count, phases, pitch;
    int64_t offset[POOL_KERNEL];
} pool_block;

/* The largest block; without windows where the row does not fit, or vectors do not pay. */
static pool_block pool_block_of(const gm_pool_axis *axis)
{
    pool_block    b = {0};
    const int64_t reach = axis->dilation * (axis->kernel - 1), vector = CPU_VECTOR / 4;
    if (axis->adaptive || axis->kernel > POOL_KERNEL || axis->out < 4) return b;
    b.phases = reach + 1 < axis->stride ? reach + 1 : axis->stride;
    const int64_t more = reach / axis->stride + vector, room = POOL_ROW / b.phases - more; /* vectors reach further */
    b.count = room / vector * vector;
    if (b.count > POOL_WINDOWS) b.count = POOL_WINDOWS;
    if (b.count > axis->out) b.count = axis->out;
    if (b.count < 4) b.count = 0;
    b.pitch = b.count + more;
    for (int64_t c = 0; c < axis->kernel; c++) {
        const int64_t place = c * axis->dilation;
        b.offset[c] = place % axis->stride * b.pitch + place / axis->stride;
    }
    return b;
}

#define AS 32
#include "as.h"
#include "max_pool_t.h"
#include "pooling_t.h"
#define AS 64
#include "as.h"
#include "max_pool_t.h"
#include "pooling_t.h"
#define AS 0
#include "as.h"

/* large: x or dx; small: y or g. */
static pool_job pool_job_of(const gm_call *call, const gm_tensor *large, const gm_tensor *small, const gm_tensor *index)
{
    pool_job j = {.x = cpu_images_of(large), .y = cpu_images_of(small), .index = cpu_images_of(index)};
    j.with_padding = call->attrs->count_include_pad;
    j.divisor = call->attrs->divisor;
    j.accumulate = call->attrs->accumulate;
    gm_pool_axes(call->attrs, large->ndim - 2, large->shape + 2, small->shape + 2, j.axis);
    return j;
}

static void pool_run(gm_device *dev, const pool_job *j, gm_job part)
{
    int64_t windows = j->y.inner;
    for (int d = 0; d < GM_SPACE; d++) windows *= j->axis[d].adaptive ? 1 : j->axis[d].kernel;
    cpu_parallel(dev, j->x.n * j->x.c, (j->x.inner + 2 * windows) * j->x.size, part, (void *)(uintptr_t)j);
}

static gm_status max_pool_dense(gm_device *dev, const gm_call *call)
{
    pool_job j = pool_job_of(call, call->in[0], call->out[0], call->out[1]);
    pool_run(dev, &j, BY_TYPE(call->in[0], max_pool_part));
    return GM_OK;
}

static gm_status avg_pool_dense(gm_device *dev, const gm_call *call)
{
    pool_job j = pool_job_of(call, call->in[0], call->out[0], NULL);
    pool_run(dev, &j, BY_TYPE(call->in[0], avg_pool_part));
    return GM_OK;
}

static gm_status max_pool_grad_dense(gm_device *dev, const gm_call *call)
{
    pool_job j = pool_job_of(call, call->out[0], call->in[1], call->in[0]);
    pool_run(dev, &j, BY_TYPE(call->in[1], max_pool_grad_part));
    return GM_OK;
}

static gm_status avg_pool_grad_dense(gm_device *dev, const gm_call *call)
{
    pool_job j = pool_job_of(call, call->out[0], call->in[0], NULL);
    pool_run(dev, &j, BY_TYPE(call->in[0], avg_pool_grad_part));
    return GM_OK;
}

static gm_status cpu_max_pool(gm_device *dev, const gm_call *call)
{
    return cpu_with_images(dev, call, max_pool_dense);
}
static gm_status cpu_avg_pool(gm_device *dev, const gm_call *call)
{
    return cpu_with_images(dev, call, avg_pool_dense);
}
static gm_status cpu_max_pool_grad(gm_device *dev, const gm_call *call)
{
    return cpu_with_images(dev, call, max_pool_grad_dense);
}
static gm_status cpu_avg_pool_grad(gm_device *dev, const gm_call *call)
{
    return cpu_with_images(dev, call, avg_pool_grad_dense);
}
