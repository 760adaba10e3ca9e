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

/* A file that is being written, with a CRC32C of its bytes (Castagnoli's polynomial, as in iSCSI: "123456789" gives
 * e3069283). */
typedef struct gm_writer {
    char    *path;
    int      fd;
    uint64_t written;
    uint32_t crc; /* of all bytes since the last gm_writer_mark */
} gm_writer;
gm_status gm_writer_open(const char *folder, const char *name, gm_writer *w); /* the file must not exist yet */
gm_status gm_writer_write(gm_writer *w, const void *data, size_t bytes);
void      gm_writer_mark(gm_writer *w);   /* begins a new checksum */
gm_status gm_writer_finish(gm_writer *w); /* fsync and close */
void      gm_writer_drop(gm_writer *w);   /* closes and reports nothing; a zeroed or finished one is allowed */

uint32_t gm_crc32c(uint32_t crc, const void *data, size_t bytes); /* start with 0; can be continued */

gm_status gm_files_mkdirs(const char *path); /* makes a folder, and all folders above it */
gm_status gm_files_sync_folder(const char *path);
/* Removes a folder and the plain files in it. A missing folder is not an error. */
gm_status gm_files_remove(const char *path);
/* Gives "folder/name"; the caller frees it. NULL: no memory. */
char *gm_files_join(const char *folder, const char *name);

/* Opens folder/name for reading. It follows no symbolic link, and refuses a name with '/', which could lead out of the
 * folder. *size: the length of the file in bytes. The caller closes *fd. */
gm_status gm_files_open(const char *folder, const char *name, int *fd, uint64_t *size);
/* Reads all of [offset, offset + bytes). GM_ECORRUPT: the file ends earlier. */
gm_status gm_files_read(int fd, const char *name, uint64_t offset, size_t bytes, void *to);

#endif
