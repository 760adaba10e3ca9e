/* threads_transport.h - ranks as threads of one process: what is written against comm.h, tested on any mesh.
 *
 *     static void body(gm_rank *r, void *context) { ... OK(gm_comm_barrier(r->comm, g)); ... }
 *     run_ranks(&mesh, body, NULL);
 *
 * Each rank is connected, has the mesh and a device ("cpu", one thread). Assertions work inside body: one that fails
 * ends the whole program with its message, since cmocka cannot go on from another thread. Messages of more than
 * RENDEZVOUS bytes wait in the sender's buffer until they are received, as in MPI. */
#ifndef GM_THREADS_TRANSPORT_H
#define GM_THREADS_TRANSPORT_H

#include "../../host/comm/comm.h"
#include "../../host/comm/transport.h"
#include "../../host/rank.h"

#define RENDEZVOUS 256

/* Returns when every body has returned. Those that return meet in gm_comm_leave, so all of them must. */
void run_ranks(const gm_mesh *mesh, void (*body)(gm_rank *r, void *context), void *context);
/* A mesh of one axis "data". */
void run_world(int world, void (*body)(gm_rank *r, void *context), void *context);

/* A mesh from up to three axes; sizes of 1 are left out. */
gm_mesh mesh_of(const char *a, int na, const char *b, int nb, const char *c, int nc);

#endif
