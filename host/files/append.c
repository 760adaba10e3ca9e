/* append.c - see append.h. */
#define _GNU_SOURCE
#include "append.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"

gm_status gm_append_open(const char *path, int *fd)
{
    struct stat s;
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*fd < 0 && errno == ELOOP) return GM_FAIL(GM_EIO, "%s is a link, which is not followed", path);
    if (*fd < 0) return GM_FAIL(GM_EIO, "%s: cannot be opened: %s", path, gm_file_error(errno));
    if (!fstat(*fd, &s) && S_ISREG(s.st_mode)) return GM_OK;
    close(*fd);
    *fd = -1;
    return GM_FAIL(GM_EIO, "%s is not a plain file", path);
}

/* Whether somebody has removed the open file: what is written into it then is lost, and the system says nothing. */
static bool is_removed(int fd)
{
    struct stat s;
    return !fstat(fd, &s) && s.st_nlink == 0;
}

gm_status gm_append(int fd, const char *path, const char *bytes, size_t n)
{
    if (is_removed(fd))
        return GM_FAIL(GM_EIO, "%s: cannot be written: somebody has removed it, and what it had is lost", path);
    size_t  done = 0;
    off_t   before = lseek(fd, 0, SEEK_END);
    ssize_t now = 0;
    while (done < n && ((now = write(fd, bytes + done, n - done)) >= 0 || errno == EINTR))
        if (now > 0) done += (size_t)now;
    if (done == n) return GM_OK;
    int error = errno;
    if (done && before >= 0 && ftruncate(fd, before))
        return GM_FAIL(GM_EIO, "%s: cannot be written: %s; half a line stays", path, gm_file_error(error));
    return GM_FAIL(GM_EIO, "%s: cannot be written: %s", path, gm_file_error(error));
}
