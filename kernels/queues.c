/* queues.c - how the host waits for a piece of work in a queue (queues.h). */
#include "queues.h"

#include <sched.h>
#include <time.h>
#include "device.h"

gm_status gm_queues_wait(gm_device *dev, gm_ticket *ticket)
{
    unsigned turns = 0;
    for (bool begun, done, idle;; turns++) {
        GM_TRY(dev->backend->queues->passed(dev, ticket, &begun, &done));
        if (done) return GM_OK;
        if (dev->attend) GM_TRY(dev->attend(dev->attend_context, &idle));
        if (turns < 256) continue;
        if (turns < 512) sched_yield();
        else nanosleep(&(struct timespec){0, 20000}, NULL);
    }
}
