/* beside.c - see beside.h. */
#define _GNU_SOURCE
#include "beside.h"

#include <string.h>
#include <unistd.h>

gm_status gm_path_beside(const char *name, char *path, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n <= 0) return GM_FAIL(GM_EIO, "cannot read /proc/self/exe to find what lies beside this program");
    path[n] = 0;
    char *slash = strrchr(path, '/');
    if ((size_t)(slash - path) + strlen(name) + 2 > size)
        return GM_FAIL(GM_EIO, "the path of this program is too long: %s", path);
    strcpy(slash + 1, name);
    return GM_OK;
}
