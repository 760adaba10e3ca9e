/* process.h - starts, watches and ends a program that runs beside this one (mpirun) and does not outlive it.
 *
 * The program reads nothing and has a process group of its own, so that Ctrl-C on the terminal does not reach it. It
 * gets SIGTERM when this process dies. Its output is kept and not shown. */
#ifndef GM_PROCESS_H
#define GM_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>
#include "../../kernels/status.h"
#include "lines.h"

typedef struct gm_process {
    pid_t    pid;  /* 0: gone */
    gm_lines said; /* to be pumped by its owner; said.from -1: closed */
} gm_process;

/* argv and environment ("NAME=value", added to ours) end with NULL. It inherits the file `kept`. A program that
 * cannot be run is one that ends, having said so. GM_EIO: no process could be made. */
gm_status gm_process_start(gm_process *p, char *const *argv, char *const *environment, int kept);
/* True once: it has ended, with that status (as waitpid gives it). */
bool gm_process_ended(gm_process *p, int *status);
/* Waits for the end of a process that is dying: others see its files closed before its parent can wait for it. */
void gm_process_wait_if_dying(const gm_process *p);
void gm_process_signal(const gm_process *p, int signal_number); /* nothing when it is gone */
/* SIGTERM, and SIGKILL after so many seconds; waits for its end. */
void gm_process_end(gm_process *p, double grace);

#endif
