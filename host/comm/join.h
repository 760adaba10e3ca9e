/* join.h - transports of this process: alone, pretended, or the job that it finds itself in. */
#ifndef GM_JOIN_H
#define GM_JOIN_H

#include "../../kernels/status.h"
#include "transport.h"

/* Each gives a transport to be closed (gm_comm_new takes it). */
gm_status gm_transport_self(gm_transport **out);
gm_status gm_transport_meta(int rank, int world, gm_transport **out);
/* How many ranks the launcher (mpirun, srun) says that it started, this one among them; 1: none did. */
int gm_join_expected(void);
/* Loads the module beside the executable and joins the job. GM_ECOMM says what is missing. */
gm_status gm_transport_mpi(gm_transport **out);

#endif
