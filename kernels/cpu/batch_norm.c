/* batch_norm.c - batch norm in steps. A thread that sums has some of the channels, one that applies some of the images
 * of channels. Sums are in double, squares around the mean, which is subtracted in two parts, as in norm.c.
 *
 * Where images are short, as those of (n, c) are, and channels neighbours, a sample is a row instead, and each of its
 * columns has the numbers of its channel: a thread that sums has blocks of columns, and adds up those of a channel when
 * all samples are in; one that applies has some of the samples. */

#define CHANNEL_SHORT   32  /* elements of an image, below which samples are rows */
#define CHANNEL_COLUMNS 128 /* in a block, at most */
#define CHANNEL_ROOM    (CHANNEL_COLUMNS + CPU_VECTOR / 4)

typedef struct channel_job {
    cpu_images  x, g, y;                      /* y: the result, in backward dx */
    const void *w, *b, *mean, *rstd, *h, *hh; /* of each channel; h, hh: means of h and of h hat */
    void       *first, *second;               /* what sums give */
    const void *numbers;                      /* of columns, where samples are rows and numbers are applied */
} channel_job;

#define AS 32
#include "as.h"
#include "batch_norm_t.h"
#define AS 64
#include "as.h"
#include "batch_norm_t.h"
#define AS 16
#include "as.h"
#include "batch_norm_t.h"
#define AS 0
#include "as.h"

static bool samples_are_rows(const cpu_images *m)
{
    return m->inner > 0 && m->inner < CHANNEL_SHORT && m->c_step == m->inner;
}

static gm_status batch_norm_sums_dense(gm_device *dev, const gm_call *call)
{
    gm_tensor  *x = call->in[0];
    channel_job j = {.x = cpu_images_of(x)};
    j.first = gm_tensor_data(call->out[0]);
    j.second = gm_tensor_data(call->out[1]);
    gm_job part = samples_are_rows(&j.x) ? BY_ELEMENT(x, column_sums_part) : BY_ELEMENT(x, channel_sums_part);
    cpu_parallel(dev, j.x.c, j.x.n * j.x.inner * j.x.size, part, &j);
    return GM_OK;
}

static gm_status cpu_batch_norm_sums(gm_device *dev, const gm_call *call)
{
    return cpu_with_images(dev, call, batch_norm_sums_dense);
}

/* Applies numbers of columns, of which `fill` writes four at most, to all samples. */
static gm_status apply_by_columns(gm_device *dev, channel_job *j, void (*fill)(const channel_job *, void *),
                                  gm_job part, int64_t tensors)
{
    const int64_t n = j->x.c * j->x.inner;
    void         *room;
    gm_block     *block;
    GM_TRY(cpu_scratch(dev, (size_t)n * 4 * sizeof(double), &room, &block));
    fill(j, room);
    j->numbers = room;
    cpu_parallel(dev, j->x.n, tensors * n * j->x.size, part, j);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status batch_norm_apply_dense(gm_device *dev, const gm_call *call)
{
    channel_job j = {.x = cpu_images_of(call->in[0]), .y = cpu_images_of(call->out[0])};
    j.w = data_or_none(call->in[1]);
    j.b = data_or_none(call->in[2]);
    j.mean = gm_tensor_data(call->in[3]);
    j.rstd = gm_tensor_data(call->in[4]);
    if (samples_are_rows(&j.x) && samples_are_rows(&j.y))
        return apply_by_columns(dev, &j, BY_ELEMENT(call->in[0], column_numbers),
                                BY_ELEMENT(call->in[0], column_apply_part), 2);
    cpu_parallel(dev, j.x.n * j.x.c, 2 * j.x.inner * j.x.size, BY_ELEMENT(call->in[0], channel_apply_part), &j);
    return GM_OK;
}

static gm_status cpu_batch_norm_apply(gm_device *dev, const gm_call *call)
{
    return cpu_with_images(dev, call, batch_norm_apply_dense);
}

static gm_status batch_norm_grad_sums_dense(gm_device *dev, const gm_call *call)
{
    gm_tensor  *x = call->in[1];
    channel_job j = {.g = cpu_images_of(call->in[0]), .x = cpu_images_of(x)};
    bool        rows = samples_are_rows(&j.x) && samples_are_rows(&j.g);
    gm_job      part = rows ? BY_ELEMENT(x, column_grad_sums_part) : BY_ELEMENT(x, channel_grad_sums_part);
    j.mean = gm_tensor_data(call->in[2]);
    j.rstd = gm_tensor_data(call->in[3]);
    j.first = gm_tensor_data(call->out[0]);
    j.second = gm_tensor_data(call->out[1]);
    cpu_parallel(dev, j.x.c, 2 * j.x.n * j.x.inner * j.x.size, part, &j);
    return GM_OK;
}

static gm_status cpu_batch_norm_grad_sums(gm_device *dev, const gm_call *call)
{
    return cpu_with_images(dev, call, batch_norm_grad_sums_dense);
}

static gm_status batch_norm_grad_apply_dense(gm_device *dev, const gm_call *call)
{
    channel_job j = {.g = cpu_images_of(call->in[0]), .x = cpu_images_of(call->in[1])};
    j.y = cpu_images_of(call->out[0]);
    j.w = data_or_none(call->in[2]);
    j.mean = gm_tensor_data(call->in[3]);
    j.rstd = gm_tensor_data(call->in[4]);
    j.h = data_or_none(call->in[5]);
    j.hh = data_or_none(call->in[6]);
    if (samples_are_rows(&j.x) && samples_are_rows(&j.g) && samples_are_rows(&j.y))
        return apply_by_columns(dev, &j, BY_ELEMENT(call->in[1], column_grad_numbers),
                                BY_ELEMENT(call->in[1], column_grad_apply_part), 3);
    cpu_parallel(dev, j.x.n * j.x.c, 3 * j.x.inner * j.x.size, BY_ELEMENT(call->in[1], channel_grad_apply_part), &j);
    return GM_OK;
}

static gm_status cpu_batch_norm_grad_apply(gm_device *dev, const gm_call *call)
{
    return cpu_with_images(dev, call, batch_norm_grad_apply_dense);
}
