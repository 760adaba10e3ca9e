/* names.h - a list of texts that grows: paths of files, names of members. */
#ifndef GM_NAMES_H
#define GM_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include "../../kernels/status.h"

typedef struct gm_names {
    char   *text; /* all of them, each ended by NUL */
    size_t  used, room;
    size_t *at; /* where each begins: [n] */
    int64_t n, n_room;
} gm_names; /* zeroed: empty */

gm_status   gm_names_add(gm_names *l, const char *text, size_t length); /* GM_ENOMEM */
const char *gm_names_get(const gm_names *l, int64_t i);                 /* valid until the next is added */
/* Sorts those from number `first` on by their bytes. */
void gm_names_sort(gm_names *l, int64_t first);
void gm_names_free(gm_names *l);

#endif
