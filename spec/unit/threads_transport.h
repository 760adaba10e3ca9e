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
#include "../../host/rank/rank.h"
#include "unit.h"

/* cmocka keeps the messages of assertions for the end of the test, which a thread does not reach: say them at once. */
#undef assert_true
#undef assert_int_equal
#define assert_true(c)                                                         \
    do {                                                                       \
        if (!(c)) fail_msg("%s:%d: %s does not hold", __FILE__, __LINE__, #c); \
    } while (0)
#define assert_int_equal(a, b)                                                                       \
    do {                                                                                             \
        long long a_ = (long long)(a), b_ = (long long)(b);                                          \
        if (a_ != b_) fail_msg("%s:%d: %s is %lld, %s is %lld", __FILE__, __LINE__, #a, a_, #b, b_); \
    } while (0)

#define RENDEZVOUS 256

/* Returns when every body has returned. Those that return meet in gm_comm_leave, so all of them must. */
void run_ranks(const gm_mesh *mesh, void (*body)(gm_rank *r, void *context), void *context);
/* A mesh of one axis "data". */
void run_world(int world, void (*body)(gm_rank *r, void *context), void *context);

/* A mesh from up to three axes; sizes of 1 are left out. */
gm_mesh mesh_of(const char *a, int na, const char *b, int nb, const char *c, int nc);

#endif
