/* moments.c - the queue of events of a simulation: a binary heap with one order. See replay.h. */
#include <stdlib.h>

#include "replay.h"

static bool before(const gm_moment *a, const gm_moment *b)
{
    if (a->time != b->time) return a->time < b->time;
    if (a->kind != b->kind) return a->kind < b->kind;
    if (a->at != b->at) return a->at < b->at;
    return a->stamp < b->stamp;
}

void gm_moments_add(gm_moments *q, gm_moment m)
{
    if (q->n == q->room) {
        size_t     room = q->room ? 2 * q->room : 256;
        gm_moment *more = realloc(q->heap, room * sizeof *more);
        q->failed |= !more;
        if (!more) return;
        q->heap = more;
        q->room = room;
    }
    size_t at = q->n++;
    for (; at && before(&m, &q->heap[(at - 1) / 2]); at = (at - 1) / 2) q->heap[at] = q->heap[(at - 1) / 2];
    q->heap[at] = m;
}

bool gm_moments_take(gm_moments *q, gm_moment *out)
{
    if (!q->n) return false;
    *out = q->heap[0];
    gm_moment last = q->heap[--q->n];
    size_t    at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= q->n) break;
        if (child + 1 < q->n && before(&q->heap[child + 1], &q->heap[child])) child++;
        if (!before(&q->heap[child], &last)) break;
        q->heap[at] = q->heap[child];
        at = child;
    }
    q->heap[at] = last;
    return true;
}
