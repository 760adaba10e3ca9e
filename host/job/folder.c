/* folder.c - see folder.h. */
#define _GNU_SOURCE
#include "folder.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "../files/files.h"

#define MEMORY "/dev/shm"

static gm_status make(gm_job_folder *f, const char *base, bool swept)
{
    uint64_t drawn;
    char     name[sizeof f->path], last[7] = "";
    *f = (gm_job_folder){0};
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
        return GM_FAIL(GM_EIO, "the system gave no random bytes: %s", strerror(errno));
    for (int i = 0; i < 6; i++, drawn /= 36) last[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[drawn % 36];
    snprintf(name, sizeof name, "%s/ganymede-%s", base, last);
    if (swept) GM_TRY(gm_sweeper_start(&f->sweeper, name));
    if (mkdir(name, 0700)) {
        gm_status st = GM_FAIL(GM_EIO, "cannot make the folder %s: %s", name, strerror(errno));
        gm_sweeper_end(&f->sweeper);
        return st;
    }
    memcpy(f->path, name, sizeof name);
    return GM_OK;
}

const char *gm_job_folder_wanted(void)
{
    const char *given = getenv("TMPDIR");
    return given && *given && strlen(given) < 60 && !access(given, W_OK | X_OK) ? given : NULL;
}

/* A file system without a limit tells no size. */
static bool has_room(const char *path, uint64_t bytes)
{
    struct statvfs s;
    return statvfs(path, &s) || !s.f_blocks || (uint64_t)s.f_bavail * s.f_frsize >= bytes;
}

gm_status gm_job_folder_make(gm_job_folder *f, bool swept, uint64_t room)
{
    const char *wanted = gm_job_folder_wanted();
    const char *base = wanted ? wanted : !access(MEMORY, W_OK) && has_room(MEMORY, room) ? MEMORY : "/tmp";
    if (has_room(base, room)) return make(f, base, swept);
    *f = (gm_job_folder){0};
    return GM_FAIL(GM_EIO,
                   "%s has less than %llu MB left, which a job needs at its start; make room there, or set "
                   "TMPDIR to another folder",
                   base, (unsigned long long)(room >> 20));
}

gm_status gm_job_folder_make_in_memory(gm_job_folder *f, bool swept) { return make(f, MEMORY, swept); }

void gm_job_folder_remove(gm_job_folder *f)
{
    if (f->path[0]) gm_remove_tree(f->path);
    gm_sweeper_end(&f->sweeper);
    f->path[0] = 0;
}

void gm_job_folder_leave(gm_job_folder *f)
{
    if (f->path[0]) gm_remove_tree(f->path);
    gm_sweeper_leave(&f->sweeper);
    f->path[0] = 0;
}

bool gm_job_folder_is_own(const char *path)
{
    struct stat s;
    return !lstat(path, &s) && S_ISDIR(s.st_mode) && s.st_uid == geteuid() && !(s.st_mode & 077);
}
