/* beside.h - finds files in the folder of this program, such as modules that it opens when they are needed. */
#ifndef GM_BESIDE_H
#define GM_BESIDE_H

#include <stddef.h>
#include "status.h"

/* Writes the path of the file `name` in the folder of this program into path (size bytes). It does not check whether
 * this file exists. GM_EIO: the system does not tell the folder, or the path is too long. */
gm_status gm_path_beside(const char *name, char *path, size_t size);

#endif
