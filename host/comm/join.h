/* join.h - makes the transport of this process: alone, pretended (meta), or over the MPI job that started it. */
#ifndef GM_JOIN_H
#define GM_JOIN_H

#include "../../kernels/status.h"
#include "transport.h"

/* The caller closes the transport, or gives it to gm_comm_new. */
gm_status gm_transport_self(gm_transport **out);
gm_status gm_transport_meta(int rank, int world, gm_transport **out);
/* The number of ranks that the launcher (mpirun, srun) says it started, with this one; 1: there is no launcher. */
int gm_join_expected(void);
/* Loads the module (GM_MPI_MODULE) from the folder of the executable and joins the job. GM_ECOMM: what is missing. */
gm_status gm_transport_mpi(gm_transport **out);

#endif
