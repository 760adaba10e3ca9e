/* tree.h - which program is this? A checksum of the executable and of its Lua files. */
#ifndef GM_TREE_H
#define GM_TREE_H

#include <stdint.h>
#include "../../kernels/status.h"

/* Of all files below folder whose names end in `ending`: names and bytes, in the order of
 * their names. Continues *sum. GM_EIO. */
gm_status gm_tree_checksum(const char *folder, const char *ending, uint32_t *sum);
/* Of one file; continues *sum. GM_EIO. */
gm_status gm_file_checksum(const char *path, uint32_t *sum);

#endif
