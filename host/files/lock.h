/* lock.h - a lock file: one process at a time holds it, at most as long as it lives.
 *
 * The system releases the lock when the process ends, however it ends. The file stays and names the last owner. */
#ifndef GM_LOCK_H
#define GM_LOCK_H

#include <stdbool.h>
#include "../../kernels/status.h"

typedef struct gm_lock {
    int  fd;   /* close it to let go */
    bool held; /* false: this file system has no locks */
} gm_lock;

/* Locks the file at path, which is made where there is none, and writes `about` into it. A process that has just been
 * killed may need a moment to end: waits so many seconds. GM_EINVAL: another process has it; the message is what that
 * one wrote. GM_EIO. */
gm_status gm_lock_take(const char *path, const char *about, double seconds, gm_lock *out);

#endif
