/* space.h - places in a buffer, taken and given back in any order. Knows offsets alone, no memory.
 *
 * If no gap is large enough, some parts have to leave that lie side by side. The owner of the buffer says for each part
 * when it was used last, or that it has to stay; the parts whose newest use is oldest leave. */
#ifndef GM_SPACE_H
#define GM_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../../kernels/status.h"

#define GM_SPACE_STAYS UINT64_MAX

typedef struct gm_space_part {
    size_t at, bytes;
    void  *owner;
} gm_space_part;

typedef struct gm_space {
    size_t         size;
    int            n, room;
    gm_space_part *parts; /* in order of `at` */
} gm_space;

/* Takes so many bytes in a row, in the smallest gap that has them. *taken false: there is none. GM_ENOMEM: there is no
 * memory for the list of parts. */
gm_status gm_space_take(gm_space *s, size_t bytes, void *owner, bool *taken, size_t *at);
void      gm_space_give_back(gm_space *s, const void *owner);
/* *first and the result: the parts that have to leave so that a gap of so many bytes comes to be; 0: there are none
 * such. used: of an owner, a number that grows with time, or GM_SPACE_STAYS. */
int  gm_space_window(const gm_space *s, size_t bytes, uint64_t (*used)(const void *owner), int *first);
void gm_space_free(gm_space *s); /* the list */

#endif
