/* files.c - see files.h. */
#define _GNU_SOURCE
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

const char *gm_file_error(int error)
{
    switch (error) {
    case ENOSPC: return "No space left on device (make room there, or write elsewhere)";
    case EDQUOT: return "Disk quota exceeded (delete files of yours there, or write elsewhere)";
    case EROFS: return "Read-only file system (write elsewhere)";
    case EACCES: return "Permission denied (write elsewhere, or ask for the permission)";
    case EFBIG: return "File too large (`ulimit -f` limits the size of files)";
    default: return strerror(error);
    }
}

static gm_status make_folder(const char *path)
{
    struct stat s;
    if (!mkdir(path, 0777)) return GM_OK;
    int error = errno;
    if (error == EEXIST && !stat(path, &s) && S_ISDIR(s.st_mode)) return GM_OK;
    const char *why = error == EEXIST ? "a file has this name" : gm_file_error(error);
    return GM_FAIL(GM_EIO, "cannot make the folder %s: %s", path, why);
}

gm_status gm_make_folders(const char *path)
{
    char part[PATH_MAX];
    if (!*path || strlen(path) >= sizeof part) return GM_FAIL(GM_EINVAL, "'%s' is no path of a folder", path);
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        memcpy(part, path, (size_t)(slash - path));
        part[slash - path] = 0;
        GM_TRY(make_folder(part));
    }
    return make_folder(path);
}

gm_status gm_make_new_folder(const char *path)
{
    if (!mkdir(path, 0777)) return GM_OK;
    return GM_FAIL(errno == EEXIST ? GM_EINVAL : GM_EIO, "cannot make the folder %s: %s", path, gm_file_error(errno));
}

static gm_status write_bytes(int file, const char *path, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t done = write(file, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return GM_FAIL(GM_EIO, "%s: cannot be written: %s", path, gm_file_error(errno));
        bytes += done;
        n -= (size_t)done;
    }
    return GM_OK;
}

/* The entry itself must reach the disk too. Some file systems cannot sync folders; then there is nothing to do. */
static void sync_folder_of(const char *path)
{
    char  folder[PATH_MAX];
    char *slash;
    snprintf(folder, sizeof folder, "%s", path);
    slash = strrchr(folder, '/');
    if (!slash) snprintf(folder, sizeof folder, ".");
    else slash[slash == folder] = 0;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

/* A name beside `path` that nobody can have foreseen: in a folder where all may write, a link could wait there. */
static gm_status name_beside(const char *path, char beside[PATH_MAX])
{
    uint64_t drawn;
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
        return GM_FAIL(GM_EIO, "the system gave no random bytes: %s", strerror(errno));
    if (snprintf(beside, PATH_MAX, "%s.%016llx.tmp", path, (unsigned long long)drawn) >= PATH_MAX)
        return GM_FAIL(GM_EINVAL, "the path %s is too long", path);
    return GM_OK;
}

static gm_status open_beside(const char *path, char beside[PATH_MAX], int *file)
{
    GM_TRY(name_beside(path, beside));
    *file = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return *file < 0 ? GM_FAIL(GM_EIO, "cannot write %s: %s", path, gm_file_error(errno)) : GM_OK;
}

/* /dev/stdout and the like: there is nothing to replace. */
static bool is_no_file(const char *path)
{
    struct stat s;
    return !stat(path, &s) && !S_ISREG(s.st_mode);
}

static gm_status write_direct(const char *path, const char *bytes, size_t n)
{
    int direct = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* of a fifo without a reader: an error, no wait */
    if (direct >= 0) fcntl(direct, F_SETFL, 0);
    if (direct < 0) return GM_FAIL(GM_EIO, "cannot write %s: %s", path, gm_file_error(errno));
    gm_status st = write_bytes(direct, path, bytes, n);
    close(direct);
    return st;
}

gm_status gm_check_writable(const char *path)
{
    char        beside[PATH_MAX];
    int         file;
    struct stat s;
    if (!stat(path, &s) && S_ISDIR(s.st_mode))
        return GM_FAIL(GM_EIO, "cannot write %s: it is a folder; name a file in it", path);
    if (is_no_file(path))
        return access(path, W_OK) ? GM_FAIL(GM_EIO, "cannot write %s: %s", path, gm_file_error(errno)) : GM_OK;
    GM_TRY(open_beside(path, beside, &file));
    close(file);
    unlink(beside);
    return GM_OK;
}

void gm_beside_drop(gm_beside *b)
{
    if (b->beside) {
        close(b->file);
        unlink(b->beside);
    }
    free(b->path);
    free(b->beside);
    *b = (gm_beside){0};
}

gm_status gm_beside_open(const char *path, gm_beside *out)
{
    char beside[PATH_MAX];
    int  file;
    GM_TRY(open_beside(path, beside, &file));
    *out = (gm_beside){.file = file, .path = strdup(path), .beside = strdup(beside)};
    if (out->path && out->beside) return GM_OK;
    if (!out->beside) {
        close(file);
        unlink(beside);
    }
    gm_beside_drop(out);
    return GM_FAIL(GM_ENOMEM, "%s: no memory to write it", path);
}

gm_status gm_beside_write(const gm_beside *b, uint64_t at, const void *bytes, size_t n)
{
    const char *from = bytes;
    while (n > 0) {
        ssize_t done = pwrite(b->file, from, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return GM_FAIL(GM_EIO, "%s: cannot be written: %s", b->path, gm_file_error(errno));
        from += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return GM_OK;
}

gm_status gm_beside_finish(gm_beside *b)
{
    gm_status st = GM_OK;
    if (fsync(b->file)) st = GM_FAIL(GM_EIO, "%s: cannot be written: %s", b->path, gm_file_error(errno));
    if (st == GM_OK && rename(b->beside, b->path))
        st = GM_FAIL(GM_EIO, "%s cannot be put in place: %s", b->path, gm_file_error(errno));
    if (st == GM_OK) {
        sync_folder_of(b->path);
        close(b->file);
        free(b->beside);
        b->beside = NULL; /* there is nothing to unlink any more */
    }
    gm_beside_drop(b);
    return st;
}

gm_status gm_write_whole(const char *path, const void *bytes, size_t n)
{
    gm_beside b;
    if (is_no_file(path)) return write_direct(path, bytes, n);
    GM_TRY(gm_beside_open(path, &b));
    gm_status st = write_bytes(b.file, path, bytes, n);
    if (st == GM_OK) return gm_beside_finish(&b);
    gm_beside_drop(&b);
    return st;
}

gm_status gm_point_link(const char *link, const char *target)
{
    char        beside[PATH_MAX];
    struct stat s;
    if (!lstat(link, &s) && !S_ISLNK(s.st_mode)) return GM_FAIL(GM_EINVAL, "%s exists and is no link", link);
    GM_TRY(name_beside(link, beside));
    if (symlink(target, beside)) return GM_FAIL(GM_EIO, "cannot make the link %s: %s", link, gm_file_error(errno));
    if (!rename(beside, link)) return GM_OK;
    int error = errno;
    unlink(beside);
    return GM_FAIL(GM_EIO, "cannot make the link %s: %s", link, gm_file_error(error));
}

gm_status gm_list_folder(const char *path, char *names, size_t room, size_t *count)
{
    size_t         used = 0;
    gm_status      st = GM_OK;
    struct dirent *entry;
    DIR           *folder = opendir(path);
    *count = 0;
    if (!folder && errno == ENOENT) return GM_OK;
    if (!folder) return GM_FAIL(GM_EIO, "cannot read the folder %s: %s", path, strerror(errno));
    while (st == GM_OK && (entry = readdir(folder))) {
        size_t n = strlen(entry->d_name) + 1;
        if (entry->d_name[0] == '.') continue;
        if (used + n > room) {
            st = GM_FAIL(GM_EINVAL, "the folder %s holds more names than expected", path);
        } else {
            memcpy(names + used, entry->d_name, n);
            used += n;
            ++*count;
        }
    }
    closedir(folder);
    return st;
}

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *place)
{
    (void)about, (void)type, (void)place;
    remove(path);
    return 0;
}

/* What a supervisor or a guard, its ranks and Open MPI make in a job's folder. */
static bool is_of_job(const char *name)
{
    return !strcmp(name, "supervisor") || !strcmp(name, "requests") || !strcmp(name, "control") ||
           !strcmp(name, "checkpoints") || !strncmp(name, "job", 3) || !strncmp(name, "rank-", 5) ||
           !strncmp(name, "guard-", 6) || !strncmp(name, "ompi.", 5) || !strncmp(name, "vader_segment.", 14);
}

/* Is it a folder that gm_job_folder_make makes? Our own, closed to others, of such a name. */
static bool is_job_folder(int fd, const char *path)
{
    struct stat s;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strncmp(name, "ganymede-", 9) || strlen(name) != 15) return false;
    return !fstat(fd, &s) && s.st_uid == geteuid() && !(s.st_mode & 077);
}

void gm_remove_job_folder(const char *path)
{
    char           entry[PATH_MAX];
    struct dirent *e;
    int            fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR           *d = fd >= 0 && is_job_folder(fd, path) ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0) close(fd);
        return;
    }
    while ((e = readdir(d)))
        if (is_of_job(e->d_name) && snprintf(entry, sizeof entry, "%s/%s", path, e->d_name) < (int)sizeof entry)
            gm_remove_tree(entry);
    closedir(d);
    rmdir(path); /* unless somebody else put something there */
}

void gm_remove_tree(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }
