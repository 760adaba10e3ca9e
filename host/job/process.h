/* process.h - starts, watches and ends a program that runs beside this one (mpirun, the runs of a sweep) and does not
 * outlive it.
 *
 * The program reads nothing and has a process group of its own, so that Ctrl-C on the terminal does not reach it. It
 * gets SIGTERM when this process dies. Its output is kept and not shown, or goes into a file. */
#ifndef GM_PROCESS_H
#define GM_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>
#include "../../kernels/status.h"
#include "lines.h"

typedef struct gm_process {
    pid_t    pid;  /* 0: gone */
    gm_lines said; /* its output, which the owner pumps; said.from -1: closed */
} gm_process;

/* Starts a program. argv and environment ("NAME=value", added to that of this process) end with NULL. The program
 * inherits the descriptor `kept`. If the program cannot be run, the new process prints the reason and ends. GM_EIO: no
 * process could be made. */
gm_status gm_process_start(gm_process *p, char *const *argv, char *const *environment, int kept);
/* Starts a program whose output, and messages, go to the descriptor `output`; -1: where those of this process go.
 * GM_EIO: no process could be made. */
gm_status gm_process_start_into(gm_process *p, char *const *argv, int output);
/* Returns true once, when the process has ended; *status is as waitpid gives it. */
bool gm_process_ended(gm_process *p, int *status);
/* Waits for the end of a process that is dying. Its files are already closed while its parent cannot wait for it yet.
 */
void gm_process_wait_if_dying(const gm_process *p);
void gm_process_signal(const gm_process *p, int signal_number); /* does nothing if the process is gone */
/* Sends SIGTERM, and SIGKILL after `grace` seconds; waits for the end of the process. */
void gm_process_end(gm_process *p, double grace);

#endif
