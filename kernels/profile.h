/* profile.h - what each kind of call costs on a device: number of calls, time, operations and bytes (cost.c).
 *
 * Every call of gm_run between gm_profile_start and gm_profile_stop is timed. If the device queues its work, events on
 * its stream take the time; nothing waits unless GM_PROFILE_SPANS calls are under way. Otherwise the clock of the host
 * takes it. A kind of call is an op of a module with the dtype and shapes of its first inputs. Calls that a kernel
 * makes itself count as its own time. The trap: a graph that runs again makes no calls, so no graphs are recorded
 * meanwhile (graph.h). Collectives are not ops and are not in a profile. */
#ifndef GM_PROFILE_H
#define GM_PROFILE_H

#include "device.h"

#define GM_PROFILE_SPANS 256 /* the most calls whose times have not been read yet */

typedef struct gm_profile_line {
    gm_op    op;
    char     about[152]; /* "bf16 (32768, 768) (2304, 768) gelu_tanh" */
    char     path[200];  /* of the module; "": none */
    uint64_t hash;       /* of op, about and path */
    uint64_t calls;
    double   seconds, flops, bytes; /* the sums over all calls */
} gm_profile_line;

/* Starts a profile and forgets the last one. */
gm_status gm_profile_start(gm_device *dev);
/* Ends the profile; waits for the queued work. The lines stay until the next start. Does nothing without a start. */
gm_status gm_profile_stop(gm_device *dev);
bool      gm_profile_runs(const gm_device *dev);
/* Gives the lines of the stopped profile, owned by dev, the longest total time first; *n = 0: there is none. */
void gm_profile_lines(gm_device *dev, const gm_profile_line **out, int *n);

/* Describes a call: the dtype of its first tensor, the shapes of its first two inputs (of its first output if it has no
 * inputs), its function, whether it is causal. */
void gm_profile_describe(const gm_call *call, char *buf, size_t size);

/* The module in which a device works now: the place of its pool without the op. */
void gm_profile_path(const gm_device *dev, char *buf, size_t size);

/* For gm_run and gm_device_free. */
gm_status gm_profile_call(gm_device *dev, const gm_call *call, double flops, double bytes);
void      gm_profile_free(gm_device *dev);

#endif
