/* beside.h - files that lie beside this program: modules that it opens when they are needed. */
#ifndef GM_BESIDE_H
#define GM_BESIDE_H

#include <stddef.h>
#include "status.h"

/* The path of the file `name` in the folder of this program, into path (size bytes). GM_EIO: it cannot be told, or is
 * too long. Whether there is such a file is not asked. */
gm_status gm_path_beside(const char *name, char *path, size_t size);

#endif
