/* meet.h - brings the ranks of a job together over TCP: a connection between every two of them.
 *
 * Rank 0 listens at an address that all know. The others connect to it, and learn from it where every rank listens for
 * the ranks above it. Nothing listens any more when the ranks have met. Whoever connects must say first what job and
 * which rank it is; all others are turned away, and harm nothing. The trap: the key says that a rank belongs to the
 * job, not that nobody reads along; the network of a cluster is trusted. */
#ifndef GM_MEET_H
#define GM_MEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../../kernels/status.h"

typedef struct gm_meeting {
    int         rank, world;
    const char *address; /* of rank 0: a name or a number */
    int         port;
    uint64_t    key;
    const char *interface; /* that this rank uses, such as "eth0"; NULL: the one that leads to rank 0 */
    double      seconds;   /* to wait for the others */
    bool (*stop)(void *);  /* whether to give up at once; NULL: never */
} gm_meeting;

/* fds: room for `world` sockets, which the caller closes; -1 at the place of this rank. They do not block, and fail
 * when a machine does not answer for about `silence` seconds. through: "eth0 (10.0.0.1)", of this rank.
 * GM_EINVAL: there is no such interface or address; GM_EHANG: ranks did not come in time; GM_EINTERRUPT: stop() said
 * so; GM_ECOMM: what failed. */
gm_status gm_meet(const gm_meeting *m, double silence, int *fds, char *through, size_t n);

#endif
