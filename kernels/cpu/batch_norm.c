/* batch_norm.c - batch norm in steps. A thread that sums has some of the channels, one that applies some of the images
 * of channels. Sums are in double, squares around the mean, which is subtracted in two parts, as in norm.c. */

typedef struct channel_job {
    cpu_images  x, g, y;                      /* y: the result, in backward dx */
    const void *w, *b, *mean, *rstd, *h, *hh; /* of each channel; h, hh: means of h and of h hat */
    void       *first, *second;               /* what sums give */
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

static gm_status batch_norm_sums_dense(gm_device *dev, const gm_call *call)
{
    channel_job j = {.x = cpu_images_of(call->in[0])};
    j.first = gm_tensor_data(call->out[0]);
    j.second = gm_tensor_data(call->out[1]);
    cpu_parallel(dev, j.x.c, j.x.n * j.x.inner * j.x.size, BY_ELEMENT(call->in[0], channel_sums_part), &j);
    return GM_OK;
}

static gm_status cpu_batch_norm_sums(gm_device *dev, const gm_call *call)
{
    return cpu_with_images(dev, call, batch_norm_sums_dense);
}

static gm_status batch_norm_apply_dense(gm_device *dev, const gm_call *call)
{
    channel_job j = {.x = cpu_images_of(call->in[0]), .y = cpu_images_of(call->out[0])};
    j.w = data_or_none(call->in[1]);
    j.b = data_or_none(call->in[2]);
    j.mean = gm_tensor_data(call->in[3]);
    j.rstd = gm_tensor_data(call->in[4]);
    cpu_parallel(dev, j.x.n * j.x.c, 2 * j.x.inner * j.x.size, BY_ELEMENT(call->in[0], channel_apply_part), &j);
    return GM_OK;
}

static gm_status cpu_batch_norm_apply(gm_device *dev, const gm_call *call)
{
    return cpu_with_images(dev, call, batch_norm_apply_dense);
}

static gm_status batch_norm_grad_sums_dense(gm_device *dev, const gm_call *call)
{
    channel_job j = {.g = cpu_images_of(call->in[0]), .x = cpu_images_of(call->in[1])};
    j.mean = gm_tensor_data(call->in[2]);
    j.rstd = gm_tensor_data(call->in[3]);
    j.first = gm_tensor_data(call->out[0]);
    j.second = gm_tensor_data(call->out[1]);
    cpu_parallel(dev, j.x.c, 2 * j.x.n * j.x.inner * j.x.size, BY_ELEMENT(call->in[1], channel_grad_sums_part), &j);
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
    cpu_parallel(dev, j.x.n * j.x.c, 3 * j.x.inner * j.x.size, BY_ELEMENT(call->in[1], channel_grad_apply_part), &j);
    return GM_OK;
}

static gm_status cpu_batch_norm_grad_apply(gm_device *dev, const gm_call *call)
{
    return cpu_with_images(dev, call, batch_norm_grad_apply_dense);
}
