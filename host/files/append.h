/* append.h - a file that grows by whole lines. A line is written entirely or not at all, as far as the system allows.
 *
 * A line goes out in one write, so a process that is killed leaves no half of one. A write that stops halfway (a full
 * disk, a size limit) is taken back. */
#ifndef GM_APPEND_H
#define GM_APPEND_H

#include <stddef.h>
#include "../../kernels/status.h"

/* Opens a plain file at its end; makes it where there is none. A link is not followed. GM_EIO. */
gm_status gm_append_open(const char *path, int *fd);
/* GM_EIO: none of the bytes is there, and it may be tried again. A file that was removed refuses, too. */
gm_status gm_append(int fd, const char *path, const char *bytes, size_t n);

#endif
