/* tree.h - checksums of files and folders, which identify this program: its executable and its Lua files. */
#ifndef GM_TREE_H
#define GM_TREE_H

#include <stdint.h>
#include "../../kernels/status.h"

/* Continues the checksum *sum with the names and bytes of all files below folder whose names end in `ending`, in order
 * of their names. GM_EIO. */
gm_status gm_tree_checksum(const char *folder, const char *ending, uint32_t *sum);
/* Continues the checksum *sum with the bytes of one file. GM_EIO. */
gm_status gm_file_checksum(const char *path, uint32_t *sum);

#endif
