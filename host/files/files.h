/* files.h - the few things a run does to the file system beside its data: folders, whole files, a link. */
#ifndef GM_FILES_H
#define GM_FILES_H

#include <stddef.h>
#include <stdint.h>
#include "../../kernels/status.h"

/* strerror of a write that failed and, where that can be told, what helps. */
const char *gm_file_error(int error);
/* Makes a folder and those above it; one that exists is fine. GM_EIO names the part that failed. */
gm_status gm_make_folders(const char *path);
/* Makes a folder that must not exist yet. GM_EINVAL: it does. */
gm_status gm_make_new_folder(const char *path);
/* Removes a folder with all that is in it, as far as that is possible; links are not followed. */
void gm_remove_tree(const char *path);
/* Removes the folder of a job whose supervisor is gone: one of ours by owner, mode and name, and in it what jobs make.
 * Anything else stays: the path comes from the environment, and may be anything. */
void gm_remove_job_folder(const char *path);
/* The file appears whole or not at all, also after a crash: temporary file, fsync, rename, fsync of the folder. A link
 * of that name is replaced, not followed. What is no plain file (/dev/stdout) is written as it is. */
gm_status gm_write_whole(const char *path, const void *bytes, size_t n);
/* A file that is written piece by piece beside its place, and put there when it is whole. */
typedef struct gm_beside {
    int   file;
    char *path, *beside; /* NULL: there is none */
} gm_beside;
gm_status gm_beside_open(const char *path, gm_beside *out); /* of a plain file; *out need not be dropped on failure */
gm_status gm_beside_write(const gm_beside *b, uint64_t at, const void *bytes, size_t n);
/* fsync, rename, fsync of the folder. Frees what *b holds, also on failure, after which nothing is left. */
gm_status gm_beside_finish(gm_beside *b);
void      gm_beside_drop(gm_beside *b); /* nothing is left; a zeroed one is allowed */
/* Could gm_write_whole do so now? Nothing is left. */
gm_status gm_check_writable(const char *path);
/* Makes `link` a symbolic link to `target`, replacing an older link at once. GM_EINVAL: `link` is no link. */
gm_status gm_point_link(const char *link, const char *target);
/* Names in a folder, each ended by NUL, one after the other; hidden ones left out. A folder that does not exist has
 * none. GM_EINVAL: they do not fit in `room` bytes. */
gm_status gm_list_folder(const char *path, char *names, size_t room, size_t *count);

#endif
