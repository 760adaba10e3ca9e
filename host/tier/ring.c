/* ring.c - see ring.h. The oldest part is at the tail, the newest ends at the head. */
#include "ring.h"

#include <stdlib.h>
#include <string.h>

static void drop_free_ends(gm_ring *r)
{
    int first = 0;
    while (r->n && !r->parts[r->n - 1].owner) r->n--;
    while (first < r->n && !r->parts[first].owner) first++;
    if (!first) return;
    r->n -= first;
    memmove(r->parts, r->parts + first, (size_t)r->n * sizeof *r->parts);
}

/* Where so many bytes fit behind the newest part, or from the start again; false: nowhere. */
static bool find(const gm_ring *r, size_t bytes, size_t *at)
{
    if (!r->n) {
        *at = 0;
        return bytes <= r->size;
    }
    size_t tail = r->parts[0].at, newest = r->parts[r->n - 1].at, head = newest + r->parts[r->n - 1].bytes;
    bool   wrapped = newest < tail;
    *at = head;
    if ((wrapped ? tail : r->size) - head >= bytes) return true;
    *at = 0;
    return !wrapped && tail >= bytes;
}

gm_status gm_ring_take(gm_ring *r, size_t bytes, void *owner, bool *taken, size_t *at)
{
    drop_free_ends(r);
    *taken = find(r, bytes, at);
    if (!*taken) return GM_OK;
    if (r->n == r->room) {
        int           room = r->room ? 2 * r->room : 32;
        gm_ring_part *more = realloc(r->parts, (size_t)room * sizeof *more);
        *taken = more != NULL;
        if (!more) return GM_FAIL(GM_ENOMEM, "no memory for the parts of a ring");
        r->parts = more, r->room = room;
    }
    r->parts[r->n++] = (gm_ring_part){*at, bytes, owner};
    return GM_OK;
}

void gm_ring_give_back(gm_ring *r, const void *owner)
{
    for (int i = 0; i < r->n; i++)
        if (r->parts[i].owner == owner) r->parts[i].owner = NULL;
    drop_free_ends(r);
}

void gm_ring_free(gm_ring *r)
{
    free(r->parts);
    *r = (gm_ring){0};
}
