/* keeper.h - the parent of a rank's process: it knows how the rank ends, whatever happens to it.
 *
 * mpirun starts N processes of this program with the supervisor's address in their environment. Each forks before it
 * does anything else. The child goes on as the rank, whose output goes straight to the supervisor. The parent, its
 * keeper, reports the rank's end (exit status, signal) and stops, passes signals on, kills the rank when told or when
 * the supervisor is gone, and exits when told. So mpirun sees no process die before the supervisor allows it. */
#ifndef GM_KEEPER_H
#define GM_KEEPER_H

#include <stdbool.h>
#include "../../kernels/status.h"

/* The environment variable that holds the supervisor's address. */
#define GM_SUPERVISOR "GANYMEDE_SUPERVISOR"

/* Forks a process that a supervisor started into keeper and rank. Call it before any thread is made. It returns in the
 * keeper with *kept = true when the keeper's work is done; the keeper then ends with status 0, because mpirun need not
 * know how the rank ended. In the rank, and in a process that nobody supervises, *kept is false. GM_ECOMM: the
 * supervisor is gone, or the environment variable makes no sense. */
gm_status gm_keeper_split(bool *kept);

#endif
