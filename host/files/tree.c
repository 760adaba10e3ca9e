/* tree.c - see tree.h. */
#define _GNU_SOURCE
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

gm_status gm_file_checksum(const char *path, uint32_t *sum)
{
    unsigned char bytes[65536];
    size_t        n;
    FILE         *f = fopen(path, "rbe");
    if (!f) return GM_FAIL(GM_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    while ((n = fread(bytes, 1, sizeof bytes, f)) > 0) *sum = (uint32_t)crc32_z(*sum, bytes, n);
    gm_status st = ferror(f) ? GM_FAIL(GM_EIO, "%s: cannot be read: %s", path, strerror(errno)) : GM_OK;
    fclose(f);
    return st;
}

/* By bytes, whatever the language is that the user has set. */
static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static bool ends_in(const char *name, const char *ending)
{
    size_t n = strlen(name), e = strlen(ending);
    return n >= e && !strcmp(name + n - e, ending);
}

static gm_status add_entry(const char *path, const char *name, const char *ending, uint32_t *sum)
{
    struct stat s;
    if (stat(path, &s)) return GM_FAIL(GM_EIO, "%s: cannot be read: %s", path, strerror(errno));
    if (S_ISDIR(s.st_mode)) return gm_tree_checksum(path, ending, sum);
    if (!S_ISREG(s.st_mode) || !ends_in(name, ending)) return GM_OK;
    *sum = (uint32_t)crc32_z(*sum, (const unsigned char *)name, strlen(name));
    return gm_file_checksum(path, sum);
}

gm_status gm_tree_checksum(const char *folder, const char *ending, uint32_t *sum)
{
    struct dirent **entries;
    char            path[PATH_MAX];
    gm_status       st = GM_OK;
    int             n = scandir(folder, &entries, NULL, by_name);
    if (n < 0) return GM_FAIL(GM_EIO, "%s: cannot be opened: %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (st == GM_OK && name[0] != '.') {
            if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
                st = GM_FAIL(GM_EIO, "%s: the path is too long", folder);
            else st = add_entry(path, name, ending, sum);
        }
        free(entries[i]);
    }
    free(entries);
    return st;
}
