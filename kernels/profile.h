/* profile.h - what each kind of call costs on a device: how often, how long, with which operations and bytes (cost.c).
 *
 * Between gm_profile_start and gm_profile_stop every call of gm_run is timed: by events on the device's stream where
 * work is queued, so that nothing waits but where GM_PROFILE_SPANS calls are under way, and by the clock elsewhere.
 * A kind is an op with the dtype and shapes of its first inputs. What a kernel calls by itself counts as its own time.
 * The trap: what is replayed from a graph makes no calls, so graphs are not recorded meanwhile (graph.h); collectives
 * are no ops. */
#ifndef GM_PROFILE_H
#define GM_PROFILE_H

#include "device.h"

#define GM_PROFILE_SPANS 256 /* calls whose times are not read yet, at most */

typedef struct gm_profile_line {
    gm_op    op;
    char     about[152]; /* "bf16 (32768, 768) (2304, 768) gelu_tanh" */
    uint64_t calls;
    double   seconds, flops, bytes; /* of all calls together */
} gm_profile_line;

/* From here on calls are timed; what was timed before is forgotten. */
gm_status gm_profile_start(gm_device *dev);
/* Waits for what is queued; the lines stay until the next start. Without a start nothing happens. */
gm_status gm_profile_stop(gm_device *dev);
bool      gm_profile_runs(const gm_device *dev);
/* The lines of a profile that was stopped (none: *n is 0), those that took longest first; dev's own. */
void gm_profile_lines(gm_device *dev, const gm_profile_line **out, int *n);

/* For gm_run and gm_device_free. */
gm_status gm_profile_call(gm_device *dev, const gm_call *call, double flops, double bytes);
void      gm_profile_free(gm_device *dev);

#endif
