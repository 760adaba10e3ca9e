/* files.c - see files.h. */
#define _GNU_SOURCE
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gm_status make_folder(const char *path)
{
    struct stat s;
    if (!mkdir(path, 0777)) return GM_OK;
    int error = errno;
    if (error == EEXIST && !stat(path, &s) && S_ISDIR(s.st_mode)) return GM_OK;
    return GM_FAIL(GM_EIO, "cannot make the folder %s: %s", path, strerror(error));
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
    return GM_FAIL(errno == EEXIST ? GM_EINVAL : GM_EIO, "cannot make the folder %s: %s", path, strerror(errno));
}

static gm_status write_all(int file, const char *path, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t done = write(file, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return GM_FAIL(GM_EIO, "%s: cannot be written: %s", path, strerror(errno));
        bytes += done;
        n -= (size_t)done;
    }
    return fsync(file) ? GM_FAIL(GM_EIO, "%s: cannot be written: %s", path, strerror(errno)) : GM_OK;
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

gm_status gm_write_whole(const char *path, const void *bytes, size_t n)
{
    char        beside[PATH_MAX];
    gm_status   st;
    struct stat s;
    if (snprintf(beside, sizeof beside, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof beside)
        return GM_FAIL(GM_EINVAL, "the path %s is too long", path);
    if (!stat(path, &s) && !S_ISREG(s.st_mode)) { /* /dev/stdout and the like: there is nothing to replace */
        int direct = open(path, O_WRONLY | O_CLOEXEC);
        if (direct < 0) return GM_FAIL(GM_EIO, "cannot write %s: %s", path, strerror(errno));
        st = write(direct, bytes, n) == (ssize_t)n ? GM_OK : GM_FAIL(GM_EIO, "%s: %s", path, strerror(errno));
        close(direct);
        return st;
    }
    int file = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) return GM_FAIL(GM_EIO, "cannot write %s: %s", path, strerror(errno));
    st = write_all(file, path, bytes, n);
    if (close(file) && st == GM_OK) st = GM_FAIL(GM_EIO, "%s: cannot be written: %s", path, strerror(errno));
    if (st == GM_OK && rename(beside, path))
        st = GM_FAIL(GM_EIO, "%s cannot be put in place: %s", path, strerror(errno));
    if (st != GM_OK) unlink(beside);
    else sync_folder_of(path);
    return st;
}

gm_status gm_point_link(const char *link, const char *target)
{
    char        beside[PATH_MAX];
    struct stat s;
    if (!lstat(link, &s) && !S_ISLNK(s.st_mode)) return GM_FAIL(GM_EINVAL, "%s exists and is no link", link);
    if (snprintf(beside, sizeof beside, "%s.%ld.tmp", link, (long)getpid()) >= (int)sizeof beside)
        return GM_FAIL(GM_EINVAL, "the path %s is too long", link);
    unlink(beside);
    if (symlink(target, beside)) return GM_FAIL(GM_EIO, "cannot make the link %s: %s", link, strerror(errno));
    if (!rename(beside, link)) return GM_OK;
    int error = errno;
    unlink(beside);
    return GM_FAIL(GM_EIO, "cannot make the link %s: %s", link, strerror(error));
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

void gm_remove_tree(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }
