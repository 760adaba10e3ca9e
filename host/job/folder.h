/* folder.h - the private folders of a job on this machine: in TMPDIR, else /dev/shm/ganymede-XXXXXX, else in /tmp.
 *
 * Its name is drawn, its mode is 0700, and it goes with the job, however that ends: a sweeper removes it where its
 * maker was killed. In it lie sockets (whose paths have 107 bytes at most, so the folder's is short), what MPI shares,
 * and what `attach` and `top` read (comm/page.h, requests.h). Another one, in /dev/shm whatever TMPDIR says, holds the
 * state that ranks hand over in memory (lua/ganymede/job/elastic.lua). */
#ifndef GM_JOB_FOLDER_H
#define GM_JOB_FOLDER_H

#include <stdbool.h>
#include <stdint.h>
#include "../../kernels/status.h"
#include "sweeper.h"

typedef struct gm_job_folder {
    char       path[96]; /* "": there is none */
    gm_sweeper sweeper;
} gm_job_folder;

/* TMPDIR, if folders of jobs can lie there: its path is short, and we may write there. NULL: they lie elsewhere. */
const char *gm_job_folder_wanted(void);
/* Makes a folder where so many bytes have room. swept: starts a sweeper, which a process that has joined MPI must not
 * do. GM_EIO: also where there is no room. */
gm_status gm_job_folder_make(gm_job_folder *f, bool swept, uint64_t room);
/* The same in /dev/shm. GM_EIO: also where there is none. */
gm_status gm_job_folder_make_in_memory(gm_job_folder *f, bool swept);
void      gm_job_folder_remove(gm_job_folder *f); /* with all that is in it; a zeroed one is allowed */
/* The same where processes of the job may still be ending, and making files, as ranks do that start when their mpirun
 * is killed: its sweeper removes these later. */
void gm_job_folder_leave(gm_job_folder *f);
/* Is it a folder that is ours alone? Folders of other users may have any name. */
bool gm_job_folder_is_own(const char *path);

#endif
