/* recorded.h - graphs (kernels/graph.h) with operations between devices in them. Callers record and replay through
 * these functions, which on one rank, and for graphs without such operations, do no more than those of graph.h. c may
 * be NULL: there are no other ranks.
 *
 * All ranks of an operation must record it, in graphs that all of them replay equally often: whoever records lets the
 * ranks agree before (gm_comm_tell), and again after, by the texts of gm_comm_recorded. A replay is a call of all
 * ranks, `replay` in records and errors, so that a rank which does not come is named, a failure ends the wait for the
 * device, and the time-out of communication holds: it counts from the moment at which the device has begun the replay.
 *
 * What is recorded does not run. So it is in no account, and does not count in the history of its group; each replay
 * adds the calls and bytes of its operations to the accounts.
 *
 * The traps: a graph ends when links are closed (after a failure, with the mesh's job, for a change of transport);
 * record it again. Links must have been made before: run what is to be recorded once. */
#ifndef GM_RECORDED_H
#define GM_RECORDED_H

#include "../../kernels/graph.h"
#include "comm.h"

/* Waits until the device has passed all operations between devices, then begins (gm_device_capture_begin). GM_EINVAL:
 * operations are under way that nobody has waited for. */
gm_status gm_comm_record_begin(gm_comm *c, gm_device *dev);
/* Ends the recording. GM_EINVAL, and the recording is dropped: an operation in it was not waited for. */
gm_status gm_comm_record_end(gm_comm *c, gm_device *dev, gm_graph **out);
void      gm_comm_record_drop(gm_comm *c, gm_device *dev);
/* The operations between devices in a graph as text: "GROUP:HASH", for each group and direction in which this rank has
 * some, with blanks between. The hashes of one group are equal on its members exactly when they recorded the same
 * operations in the same order. "" where there are none; belongs to the graph. */
const char *gm_comm_recorded(const gm_graph *g);
/* Queues the work of the graph; does not wait for the device. Collective over all ranks if the graph has operations
 * between devices. GM_EINVAL: the graph has ended, or operations are under way that nobody has waited for. */
gm_status gm_comm_replay(gm_comm *c, gm_device *dev, gm_graph *g);
/* Closes all links; the next operations make new ones. For all ranks, after a recording that failed on some of them:
 * what the library remembers of it may differ. Nothing may be queued between devices. */
void gm_comm_renew_links(gm_comm *c);

#endif
