/* join.h - makes the transport of this process: alone, pretended (meta), or of the job that started it: over MPI, or
 * over TCP where no MPI is there. */
#ifndef GM_JOIN_H
#define GM_JOIN_H

#include "../../kernels/status.h"
#include "launched.h"
#include "transport.h"

/* The caller closes the transport, or gives it to gm_comm_new. */
gm_status gm_transport_self(gm_transport **out);
gm_status gm_transport_meta(int rank, int world, gm_transport **out);
typedef struct gm_join {
    const char *interface; /* through which machines reach each other; NULL: Open MPI chooses, or the way to rank 0 */
    double      seconds;   /* over TCP: to wait for the others */
    double      silence;   /* over TCP: seconds after which a machine that does not answer counts as gone */
    bool (*stop)(void *);  /* over TCP: whether to give up waiting; NULL: never */
} gm_join;

/* Joins the job of l, which has several ranks. MPI is the module (GM_MPI_MODULE) in the folder of the executable.
 * GM_EINVAL: the interface; GM_ECOMM: what is missing or failed; GM_EHANG, GM_EINTERRUPT: see gm_meet. */
gm_status gm_transport_join(const gm_launched *l, const gm_join *how, gm_transport **out);

#endif
