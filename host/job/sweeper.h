/* sweeper.h - a helper process that removes this process's folder if this process was killed and could not do so, or
 * if others still make files in it. */
#ifndef GM_SWEEPER_H
#define GM_SWEEPER_H

#include "../../kernels/status.h"

typedef struct gm_sweeper {
    int process; /* 0: none */
    int alive;   /* our end of a pipe; the sweeper waits until this and all inherited copies of it are closed */
} gm_sweeper;

/* Starts a sweeper. Called before the folder is made, so that somebody can remove it at any moment. GM_EIO. */
gm_status gm_sweeper_start(gm_sweeper *s, const char *folder);
void      gm_sweeper_end(gm_sweeper *s); /* called when there is nothing left to remove; a zeroed one is allowed */
/* Called where processes that know the folder (it is in their environment) may still be ending: the sweeper removes
 * what they make until they are gone, 20 seconds at most, and then ends. A zeroed one is allowed. */
void gm_sweeper_leave(gm_sweeper *s);

#endif
