/* network.h - the links of a machine, and which of them a collective uses.
 *
 * A collective is an algorithm: rounds of messages between members. It takes the latency of its rounds, and then moves
 * its bytes. Each message has a route, and adds its bytes to each link on it. A collective alone therefore takes
 *     latency + max over links of (bytes on the link / bandwidth of the link).
 * With p members, n bytes (comm.h), latency l and bandwidth b of a port, ring all_reduce takes
 * 2 (p - 1) l + 2 (p - 1) / p n / b.
 *
 * Where hops differ, a piece of the bytes pays each hop that it takes (all but one, or two, of the ring).
 *
 * Ring: the members in order of rank. If they lie in several units of the innermost level, as many in each, there is a
 * ring for each place in a unit, which leaves its units at that place and carries its share (NCCL's channels).
 * Tree: a binary tree, up and down. Direct: every member to every other (host/comm);
 * at once: so is the whole of a small all_reduce, in one round. */
#ifndef GM_NETWORK_H
#define GM_NETWORK_H

#include "machine.h"

typedef struct gm_network gm_network;

typedef struct gm_use {
    int    link;
    double share; /* bytes on the link by byte of n */
} gm_use;

/* What a collective of one group takes, for any n. */
typedef struct gm_transfer {
    double  latency;
    double  slowest; /* seconds for a byte of n, alone */
    int     n;
    gm_use *uses; /* owned */
} gm_transfer;

gm_status gm_network_new(const gm_machine *m, int world, gm_network **out);
void      gm_network_free(gm_network *w); /* NULL is allowed */
int       gm_network_links(const gm_network *w);
double    gm_network_bandwidth(const gm_network *w, int link);
/* Is this a way between a rank and its disk or host ("disk_read", "host_write")? The ranks do not move these bytes. */
bool gm_network_is_below(const char *op);
/* Does a tree of this op differ from its ring? */
bool gm_network_has_tree(const char *op);
/* op: a name of comm.h, or "message" from members[0] to members[1]. root: a place, for those that have one. how: not
 * AUTO. Uses of a transfer ascend by link. GM_EINVAL: the network cannot do the op. */
gm_status gm_network_plan(gm_network *w, const char *op, int p, const int *members, int root, gm_algorithm how,
                          gm_transfer *out);
void      gm_transfer_free(gm_transfer *t);

#endif
