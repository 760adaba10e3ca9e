/* comm_tcp.h - joins ranks that no MPI has joined (launched.h), over TCP. */
#ifndef GM_COMM_TCP_H
#define GM_COMM_TCP_H

#include "launched.h"
#include "meet.h"
#include "transport.h"

/* The caller closes the transport, or gives it to gm_comm_new. Its name says through which interface it goes. Errors:
 * see gm_meet. */
gm_status gm_transport_tcp(const gm_meeting *m, double silence, gm_transport **out);

#endif
