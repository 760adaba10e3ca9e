/* ring.h - places in a buffer that is used round and round: taken at its head, given back in any order, and free again
 * once the parts before or behind them are. Knows offsets alone, no memory. */
#ifndef GM_RING_H
#define GM_RING_H

#include <stdbool.h>
#include <stddef.h>
#include "../../kernels/status.h"

typedef struct gm_ring_part {
    size_t at, bytes;
    void  *owner; /* NULL: given back */
} gm_ring_part;

typedef struct gm_ring {
    size_t        size;
    int           n, room;
    gm_ring_part *parts; /* oldest first */
} gm_ring;

/* Takes so many bytes in a row. false: they are not free now. GM_ENOMEM: no memory for the list of parts. */
gm_status gm_ring_take(gm_ring *r, size_t bytes, void *owner, bool *taken, size_t *at);
void      gm_ring_give_back(gm_ring *r, const void *owner);
void      gm_ring_free(gm_ring *r); /* the list */

#endif
