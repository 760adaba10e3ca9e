/* steps.c - see steps.h. */
#define _GNU_SOURCE
#include "steps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../files/files.h"
#include "files.h"
#include "index.h"

char *gm_steps_path(const char *folder, int64_t step, const char *ending)
{
    char *path = NULL;
    return asprintf(&path, "%s/step-%08lld%s", folder, (long long)step, ending) < 0 ? NULL : path;
}

/* The step in "step-<8 or more digits><ending>", or -1. */
static int64_t step_of(const char *name, const char *ending)
{
    size_t digits;
    if (strncmp(name, "step-", 5)) return -1;
    digits = strspn(name + 5, "0123456789");
    if (digits < 8 || digits > 16 || strcmp(name + 5 + digits, ending)) return -1;
    return strtoll(name + 5, NULL, 10);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Steps of the entries of a folder that end so. */
static gm_status list_steps(const char *folder, const char *ending, int64_t **steps, int *n)
{
    size_t room = 0;
    *steps = NULL, *n = 0;
    DIR *d = opendir(folder);
    if (!d) return errno == ENOENT ? GM_OK : GM_FAIL(GM_EIO, "%s: cannot be opened: %s", folder, strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        int64_t step = step_of(e->d_name, ending);
        if (step < 0) continue;
        if ((size_t)*n == room) {
            int64_t *more = realloc(*steps, (room = room * 2 + 16) * sizeof **steps);
            if (!more) {
                closedir(d);
                free(*steps);
                return GM_FAIL(GM_ENOMEM, "%s: no memory to list it", folder);
            }
            *steps = more;
        }
        (*steps)[(*n)++] = step;
    }
    closedir(d);
    if (*n) qsort(*steps, (size_t)*n, sizeof **steps, ascending);
    return GM_OK;
}

gm_status gm_steps_list(const char *folder, int64_t **steps, int *n) { return list_steps(folder, "", steps, n); }

/* Removes what interrupted saves and removals left. */
static gm_status clear_leftovers(const char *folder)
{
    int64_t *steps;
    int      n;
    GM_TRY(list_steps(folder, ".tmp", &steps, &n));
    gm_status st = GM_OK;
    for (int i = 0; st == GM_OK && i < n; i++) {
        char *path = gm_steps_path(folder, steps[i], ".tmp");
        st = path ? gm_files_remove(path) : GM_FAIL(GM_ENOMEM, "%s: no memory for a name", folder);
        free(path);
    }
    free(steps);
    return st;
}

/* Out of sight first, so that a removal that stops halfway is no damaged checkpoint. */
static gm_status remove_step(const char *folder, int64_t step)
{
    char     *path = gm_steps_path(folder, step, ""), *away = gm_steps_path(folder, step, ".tmp");
    gm_status st = GM_OK;
    if (!path || !away) st = GM_FAIL(GM_ENOMEM, "%s: no memory for a name", folder);
    else if (rename(path, away)) st = GM_FAIL(GM_EIO, "%s: cannot be removed: %s", path, strerror(errno));
    else st = gm_files_remove(away);
    free(path);
    free(away);
    return st;
}

/* A folder without an index holds no checkpoint: it must not count as one that stays in place of a whole one. */
static bool has_index(const char *folder, int64_t step)
{
    char *path = gm_steps_path(folder, step, "/" GM_INDEX_NAME);
    bool  there = !path || !access(path, F_OK);
    free(path);
    return there;
}

gm_status gm_steps_prune(const char *folder, int keep_last, int64_t saved, int64_t spared)
{
    int64_t  *steps;
    int       n, left = 0;
    gm_status st = gm_steps_list(folder, &steps, &n);
    if (st != GM_OK) return st;
    for (int i = 0; i < n; i++) left += (steps[i] != spared || spared == saved) && has_index(folder, steps[i]);
    for (int i = 0; st == GM_OK && i < n && left > keep_last; i++) {
        if (steps[i] == saved || steps[i] == spared) continue;
        left -= has_index(folder, steps[i]);
        st = remove_step(folder, steps[i]);
    }
    free(steps);
    return st;
}

/* What looks left over may be what another process is writing. */
static gm_status lock_folder(const char *folder, int *lock)
{
    *lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return GM_FAIL(GM_EIO, "%s: cannot be opened: %s", folder, gm_file_error(errno));
    if (!flock(*lock, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK) return GM_OK; /* some file systems have no locks */
    return GM_FAIL(GM_EIO, "%s: another process is writing a checkpoint there; give each run a folder of its own",
                   folder);
}

gm_status gm_steps_prepare(const char *folder, const char *beside, int *lock)
{
    GM_TRY(gm_files_mkdirs(folder));
    GM_TRY(lock_folder(folder, lock));
    GM_TRY(clear_leftovers(folder));
    if (mkdir(beside, 0777)) return GM_FAIL(GM_EIO, "%s: cannot be made: %s", beside, gm_file_error(errno));
    return GM_OK;
}

gm_status gm_steps_publish(const char *folder, const char *beside, const char *target)
{
    GM_TRY(gm_files_sync_folder(beside));
    if (rename(beside, target)) {
        if (errno != ENOTEMPTY && errno != EEXIST)
            return GM_FAIL(GM_EIO, "%s: cannot be renamed: %s", beside, gm_file_error(errno));
        if (renameat2(AT_FDCWD, beside, AT_FDCWD, target, RENAME_EXCHANGE))
            return GM_FAIL(GM_EIO, "%s: exists, and cannot be exchanged with the new one: %s; remove it", target,
                           gm_file_error(errno));
    }
    return gm_files_sync_folder(folder);
}
