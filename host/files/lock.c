/* lock.c - see lock.h. */
#define _GNU_SOURCE
#include "lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "files.h"

static int try_for(int fd, double seconds)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    for (double waited = 0;; waited += 0.005) {
        if (!flock(fd, LOCK_EX | LOCK_NB)) return 0;
        if (errno != EWOULDBLOCK || waited >= seconds) return errno;
        nanosleep(&pause, NULL);
    }
}

static gm_status tell_holder(int fd)
{
    char    about[512];
    ssize_t n = pread(fd, about, sizeof about - 1, 0);
    about[n > 0 ? n : 0] = 0;
    return gm_fail_again(GM_EINVAL, n > 0 ? about : "another process");
}

static gm_status lock_open_file(const char *path, const char *about, double seconds, gm_lock *out)
{
    struct stat s;
    if (fstat(out->fd, &s) || !S_ISREG(s.st_mode)) return GM_FAIL(GM_EIO, "%s is not a plain file", path);
    int error = try_for(out->fd, seconds);
    if (error == EWOULDBLOCK) return tell_holder(out->fd);
    out->held = !error;
    if (ftruncate(out->fd, 0) || pwrite(out->fd, about, strlen(about), 0) != (ssize_t)strlen(about))
        return GM_FAIL(GM_EIO, "%s: cannot be written: %s", path, gm_file_error(errno));
    return GM_OK;
}

gm_status gm_lock_take(const char *path, const char *about, double seconds, gm_lock *out)
{
    *out = (gm_lock){.fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666)};
    if (out->fd < 0) return GM_FAIL(GM_EIO, "%s: cannot be opened: %s", path, gm_file_error(errno));
    gm_status st = lock_open_file(path, about, seconds, out);
    if (st == GM_OK) return GM_OK;
    close(out->fd);
    out->fd = -1;
    return st;
}
