/* files.c - see files.h. */
#define _GNU_SOURCE
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <isa-l/crc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../files/files.h"

uint32_t gm_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    crc = ~crc;
    while (bytes) {
        int n = bytes < 1 << 30 ? (int)bytes : 1 << 30; /* the library counts in int */
        crc = crc32_iscsi((unsigned char *)(uintptr_t)p, n, crc);
        p += n, bytes -= (size_t)n;
    }
    return ~crc;
}

char *gm_files_join(const char *folder, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

static gm_status failed(const char *path, const char *what)
{
    return GM_FAIL(GM_EIO, "%s: %s: %s", path, what, gm_file_error(errno));
}

/* ---- writing ---- */

gm_status gm_writer_open(const char *folder, const char *name, gm_writer *w)
{
    *w = (gm_writer){.fd = -1, .path = gm_files_join(folder, name)};
    if (!w->path) return GM_FAIL(GM_ENOMEM, "no memory for a file name");
    w->fd = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return w->fd < 0 ? failed(w->path, "cannot be made") : GM_OK;
}

gm_status gm_writer_write(gm_writer *w, const void *data, size_t bytes)
{
    const char *p = data;
    w->crc = gm_crc32c(w->crc, data, bytes);
    while (bytes) {
        ssize_t n = write(w->fd, p, bytes < 1u << 30 ? bytes : 1u << 30);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(w->path, "cannot be written");
        p += n, bytes -= (size_t)n, w->written += (uint64_t)n;
    }
    return GM_OK;
}

void gm_writer_mark(gm_writer *w) { w->crc = 0; }

gm_status gm_writer_finish(gm_writer *w)
{
    if (fsync(w->fd)) return failed(w->path, "cannot be brought to disk");
    int fd = w->fd;
    w->fd = -1;
    if (close(fd)) return failed(w->path, "cannot be closed");
    return GM_OK;
}

void gm_writer_drop(gm_writer *w)
{
    if (w->path && w->fd >= 0) close(w->fd);
    free(w->path);
    *w = (gm_writer){.fd = -1};
}

/* ---- folders ---- */

gm_status gm_files_mkdirs(const char *path)
{
    char *p = strdup(path);
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for a file name");
    gm_status st = GM_OK;
    for (char *s = p + 1; st == GM_OK; s++) {
        if (*s && *s != '/') continue;
        char end = *s;
        *s = 0;
        if (mkdir(p, 0777) && errno != EEXIST) st = failed(p, "cannot be made");
        *s = end;
        if (!end) break;
    }
    struct stat info;
    if (st == GM_OK && (stat(path, &info) || !S_ISDIR(info.st_mode))) {
        errno = ENOTDIR;
        st = failed(path, "cannot hold checkpoints");
    }
    free(p);
    return st;
}

gm_status gm_files_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return failed(path, "cannot be opened");
    gm_status st = fsync(fd) ? failed(path, "cannot be brought to disk") : GM_OK;
    close(fd);
    return st;
}

gm_status gm_files_remove(const char *path)
{
    int  fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        gm_status st = errno == ENOENT ? GM_OK : failed(path, "cannot be opened");
        if (fd >= 0) close(fd);
        return st;
    }
    gm_status      st = GM_OK;
    struct dirent *e;
    while (st == GM_OK && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && unlinkat(dirfd(d), e->d_name, 0) && errno != ENOENT)
            st = failed(path, "cannot be emptied");
    closedir(d);
    if (st == GM_OK && rmdir(path) && errno != ENOENT) st = failed(path, "cannot be removed");
    return st;
}

/* ---- reading ---- */

gm_status gm_files_open(const char *folder, const char *name, int *fd, uint64_t *size)
{
    struct stat info;
    if (!*name || strchr(name, '/') || name[0] == '.')
        return GM_FAIL(GM_ECORRUPT, "%s: names the file '%s'; a checkpoint's files lie in its own folder", folder,
                       name);
    char *path = gm_files_join(folder, name);
    if (!path) return GM_FAIL(GM_ENOMEM, "no memory for a file name");
    gm_status st = GM_OK;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (*fd < 0 && errno == ENOENT) st = GM_FAIL(GM_ECORRUPT, "%s: is missing", path);
    else if (*fd < 0) st = failed(path, "cannot be opened");
    else if (fstat(*fd, &info) || !S_ISREG(info.st_mode)) {
        close(*fd);
        *fd = -1;
        st = GM_FAIL(GM_ECORRUPT, "%s: is not a regular file", path);
    } else *size = (uint64_t)info.st_size;
    free(path);
    return st;
}

gm_status gm_files_read(int fd, const char *name, uint64_t offset, size_t bytes, void *to)
{
    char *p = to;
    while (bytes) {
        ssize_t n = pread(fd, p, bytes < 1u << 30 ? bytes : 1u << 30, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed(name, "cannot be read");
        if (!n)
            return GM_FAIL(GM_ECORRUPT, "%s: ends at byte %llu, %zu bytes too early", name, (unsigned long long)offset,
                           bytes);
        p += n, offset += (uint64_t)n, bytes -= (size_t)n;
    }
    return GM_OK;
}
