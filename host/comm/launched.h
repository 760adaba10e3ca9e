/* launched.h - finds out of the environment who started this process as one of several ranks, and how they meet.
 *
 *   mpirun           OMPI_COMM_WORLD_SIZE, or PMI_SIZE outside of a step       the ranks join through MPI
 *   srun             SLURM_STEP_NUM_TASKS and SLURM_PROCID                     through MPI if srun offers PMIx,
 *                                                                              otherwise over TCP
 *   the environment  RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (torchrun)  over TCP
 *
 * The innermost launcher counts: mpirun before torchrun, torchrun before srun. MASTER_ADDR and MASTER_PORT alone say to
 * tasks of srun where rank 0 listens. The trap: batch scripts of Slurm have SLURM_PROCID and SLURM_NTASKS, although
 * nothing was started there; only a step has SLURM_STEP_NUM_TASKS. */
#ifndef GM_LAUNCHED_H
#define GM_LAUNCHED_H

#include <stdbool.h>
#include <stdint.h>
#include "../../kernels/status.h"

typedef struct gm_launched {
    const char *by; /* "mpirun", "srun", "the environment"; "nobody": this process is alone */
    int         world;
    int         rank;  /* -1: only MPI knows */
    int         place; /* among the ranks of this machine, from 0 */
    int         here;  /* ranks on this machine; 0: unknown */
    bool        over_tcp;
    char        address[256]; /* over TCP: where rank 0 listens */
    int         port;
    uint64_t    key; /* of the job; over TCP ranks with another key are refused */
} gm_launched;

/* GM_EINVAL: variables are missing, have no meaning, or contradict each other. */
gm_status gm_launched_find(gm_launched *out);

#endif
