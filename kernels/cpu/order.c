/* order.c - sort along the last dimension, by merging (stable), and what undoes it. A thread has whole rows. */

typedef struct order_job {
    cpu_rows x, y, index;
    int64_t  n;
    bool     descending;
    char    *room; /* of each thread: two rows of elements with their places */
    size_t   each;
} order_job;

#define AS 32
#include "as.h"
#include "order_t.h"
#define AS 64
#include "as.h"
#include "order_t.h"
#define AS 0
#include "as.h"

static gm_status sort_rows(gm_device *dev, const gm_call *call)
{
    order_job j = {.x = cpu_rows_of(call->in[0]), .y = cpu_rows_of(call->out[0]), .index = cpu_rows_of(call->out[1])};
    gm_block *block;
    int64_t   bytes = 16; /* an element with its place, and padding */
    j.n = j.x.width;
    j.descending = call->attrs->descending;
    j.each = (size_t)(2 * j.n * bytes);
    if (!j.n || !j.x.rows) return GM_OK;
    int64_t passes = 1;
    while (((int64_t)1 << passes) < j.n) passes++;
    int parts = cpu_parts(dev, j.x.rows, j.n * bytes * passes);
    GM_TRY(cpu_scratch(dev, (size_t)parts * j.each, &j.room, &block));
    cpu_parallel(dev, j.x.rows, j.n * bytes * passes, BY_TYPE(call->in[0], sort_part), &j);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status cpu_sort(gm_device *dev, const gm_call *call) { return cpu_with_rows(dev, call, 0, -1, sort_rows); }

static gm_status unsort_rows(gm_device *dev, const gm_call *call)
{
    order_job j = {.index = cpu_rows_of(call->in[0]), .x = cpu_rows_of(call->in[1]), .y = cpu_rows_of(call->out[0])};
    j.n = j.x.width;
    cpu_parallel(dev, j.x.rows, 3 * j.n * j.x.size, BY_TYPE(call->in[1], unsort_part), &j);
    return GM_OK;
}

static gm_status cpu_unsort(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, unsort_rows);
}
