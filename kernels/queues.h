/* queues.h - queues of a device beside its own, and the order between them: what a backend offers to those who let a
 * library work on its device beside the ops (gm_backend.queues; host/comm: NCCL on a CUDA stream).
 *
 * What is put into a queue runs in order, beside what the device is given meanwhile. A ticket says where a piece of
 * such work has its place among the device's own:
 *
 *     enter(dev, &ticket)        behind what the device has been given so far
 *     follow(queue, ticket)      what is put into the queue from here on comes behind that
 *     leave(queue, ticket)       the work ends here: the ticket can now be ordered after and asked for
 *     order(dev, ticket)         what the device is given from here on comes behind it
 *     give(dev, ticket)          may be done before it has passed
 *
 * Nothing here waits. */
#ifndef GM_QUEUES_H
#define GM_QUEUES_H

#include <stdbool.h>

#include "status.h"

struct gm_device;

typedef struct gm_queue  gm_queue;
typedef struct gm_ticket gm_ticket;

typedef struct gm_queues {
    /* Its work goes before the device's own where both could run. */
    gm_status (*open)(struct gm_device *dev, gm_queue **out);
    void (*close)(gm_queue *queue); /* nothing waits for it any more; frees; NULL is allowed */
    /* As its libraries know it (a CUstream); the device is the calling thread's from here on. */
    gm_status (*handle)(gm_queue *queue, void **out);

    gm_status (*enter)(struct gm_device *dev, gm_ticket **out);
    gm_status (*follow)(gm_queue *queue, gm_ticket *ticket);
    gm_status (*leave)(gm_queue *queue, gm_ticket *ticket);
    gm_status (*order)(struct gm_device *dev, gm_ticket *ticket);
    /* begun: the device has come to it. Before `leave`, done is false. */
    gm_status (*passed)(struct gm_device *dev, gm_ticket *ticket, bool *begun, bool *done);
    void (*give)(struct gm_device *dev, gm_ticket *ticket); /* NULL is allowed */

    /* Kernels launched from here on go to the queue, behind the ticket's entry; NULL: to the device's again. */
    gm_status (*launch_on)(struct gm_device *dev, gm_queue *queue, gm_ticket *ticket);
} gm_queues;

#endif
