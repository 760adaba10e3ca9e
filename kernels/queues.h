/* queues.h - further queues of a device and their order with its own work. A backend offers them for libraries that
 * work on its device beside the ops (gm_backend.queues; host/comm: NCCL on a CUDA stream).
 *
 * Work put into a queue runs in order, concurrently with the device's own work. A ticket orders a piece of such work
 * with the device's own:
 *
 *     enter(dev, &ticket)        makes a ticket after the work that the device has been given so far
 *     follow(queue, ticket)      later work of the queue runs after that point
 *     leave(queue, ticket)       ends the piece: `order` and `passed` can now use the ticket
 *     order(dev, ticket)         later work of the device runs after the piece
 *     give(dev, ticket)          frees the ticket, also before it has passed
 *
 * Copies between the device and page-locked memory (gm_device_host_pool) can run in queues, too, beside kernels.
 *
 * Nothing of these waits; gm_queues_wait does. */
#ifndef GM_QUEUES_H
#define GM_QUEUES_H

#include <stdbool.h>
#include <stddef.h>

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
    /* The same for work that can be part of a graph (graph.h). While the device records one, the piece is recorded: the
     * queue joins the recording by `follow`, and `order` must lead back to the device before the recording ends. */
    gm_status (*fork)(struct gm_device *dev, gm_ticket **out);
    gm_status (*follow)(gm_queue *queue, gm_ticket *ticket);
    gm_status (*leave)(gm_queue *queue, gm_ticket *ticket);
    gm_status (*leave_here)(struct gm_device *dev, gm_ticket *ticket); /* the piece was work of the device itself */
    gm_status (*order)(struct gm_device *dev, gm_ticket *ticket);
    /* Later work of the queue runs after the piece, which another queue did. */
    gm_status (*after)(gm_queue *queue, gm_ticket *ticket);
    /* begun: the device has come to it. Before `leave`, done is false. Not for a piece of a graph: it runs at each
     * replay, and its ticket says nothing. */
    gm_status (*passed)(struct gm_device *dev, gm_ticket *ticket, bool *begun, bool *done);
    void (*give)(struct gm_device *dev, gm_ticket *ticket); /* NULL is allowed */

    /* Kernels, and copies and fills within the device, go to the queue from here on, behind the ticket's entry; NULL:
     * to the device's again. */
    gm_status (*launch_on)(struct gm_device *dev, gm_queue *queue, gm_ticket *ticket);

    /* Copies to and from page-locked memory, which the caller leaves alone until a ticket behind them has passed. */
    gm_status (*copy_down)(gm_queue *queue, void *pinned, const void *device, size_t bytes);
    gm_status (*copy_up)(gm_queue *queue, void *device, const void *pinned, size_t bytes);

    /* Gives the recording of a graph (of the backend) back; the memory that the graph holds stays. A replay under way
     * ends first, and nobody waits for that. Later replays are refused. */
    void (*end_graph)(struct gm_device *dev, void *graph);
} gm_queues;

/* Waits until the device has done a piece of work, after `leave`. Work between devices in front of it may never end: as
 * gm_device.attend says. */
gm_status gm_queues_wait(struct gm_device *dev, gm_ticket *ticket);

#endif
