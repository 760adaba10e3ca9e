/* files.h - writes files that survive a crash: a file is written whole and synced, or the call fails.
 *
 * Every failure is GM_EIO and names the file and the system's reason; a file size limit (ulimit -f) is one of them,
 * since the program ignores SIGXFSZ. */
#ifndef GM_CHECKPOINT_FILES_H
#define GM_CHECKPOINT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../../kernels/status.h"

/* A file being written through a CRC32C (Castagnoli, as iSCSI: "123456789" gives e3069283). */
typedef struct gm_writer {
    char    *path;
    int      fd;
    uint64_t written;
    uint32_t crc; /* of all since the last gm_writer_mark */
} gm_writer;
gm_status gm_writer_open(const char *folder, const char *name, gm_writer *w); /* must not exist yet */
gm_status gm_writer_write(gm_writer *w, const void *data, size_t bytes);
void      gm_writer_mark(gm_writer *w);   /* a new checksum begins */
gm_status gm_writer_finish(gm_writer *w); /* fsync and close */
void      gm_writer_drop(gm_writer *w);   /* close without a word; a zeroed or finished one is allowed */

uint32_t gm_crc32c(uint32_t crc, const void *data, size_t bytes); /* start with 0; can be continued */

gm_status gm_files_mkdirs(const char *path); /* with all folders above it */
gm_status gm_files_sync_folder(const char *path);
/* Removes a folder and the plain files in it; what is not there is no error. */
gm_status gm_files_remove(const char *path);
/* "folder/name", to be freed; NULL: no memory. */
char *gm_files_join(const char *folder, const char *name);

/* Opens folder/name for reading, never through a link, and never outside: name holds no '/'. *size is its length. */
gm_status gm_files_open(const char *folder, const char *name, int *fd, uint64_t *size);
/* All of [offset, offset + bytes); GM_ECORRUPT when the file ends earlier. */
gm_status gm_files_read(int fd, const char *name, uint64_t offset, size_t bytes, void *to);

#endif
