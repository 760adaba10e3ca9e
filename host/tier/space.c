/* space.c - see space.h. */
#include "space.h"

#include <stdlib.h>
#include <string.h>

static size_t end_of(const gm_space *s, int i) { return i < 0 ? 0 : s->parts[i].at + s->parts[i].bytes; }
static size_t begin_of(const gm_space *s, int i) { return i == s->n ? s->size : s->parts[i].at; }

/* The part behind the smallest gap that has so many bytes; -1: there is none. */
static int find_gap(const gm_space *s, size_t bytes)
{
    size_t best = SIZE_MAX;
    int    found = -1;
    for (int i = 0; i <= s->n; i++) {
        size_t gap = begin_of(s, i) - end_of(s, i - 1);
        if (gap < bytes || gap >= best) continue;
        best = gap;
        found = i;
    }
    return found;
}

gm_status gm_space_take(gm_space *s, size_t bytes, void *owner, bool *taken, size_t *at)
{
    int i = find_gap(s, bytes);
    *taken = i >= 0;
    if (!*taken) return GM_OK;
    if (s->n == s->room) {
        int            room = s->room ? 2 * s->room : 32;
        gm_space_part *more = realloc(s->parts, (size_t)room * sizeof *more);
        *taken = more != NULL;
        if (!more) return GM_FAIL(GM_ENOMEM, "no memory for the parts of a buffer");
        s->parts = more, s->room = room;
    }
    *at = end_of(s, i - 1);
    memmove(s->parts + i + 1, s->parts + i, (size_t)(s->n - i) * sizeof *s->parts);
    s->parts[i] = (gm_space_part){*at, bytes, owner};
    s->n++;
    return GM_OK;
}

void gm_space_give_back(gm_space *s, const void *owner)
{
    for (int i = 0; i < s->n; i++) {
        if (s->parts[i].owner != owner) continue;
        s->n--;
        memmove(s->parts + i, s->parts + i + 1, (size_t)(s->n - i) * sizeof *s->parts);
        return;
    }
}

int gm_space_window(const gm_space *s, size_t bytes, uint64_t (*used)(const void *owner), int *first)
{
    uint64_t best = GM_SPACE_STAYS;
    int      n = 0;
    for (int i = 0; i < s->n; i++) {
        uint64_t newest = 0;
        for (int k = i; k < s->n; k++) {
            uint64_t u = used(s->parts[k].owner);
            if (u > newest) newest = u;
            if (newest >= best) break;
            if (begin_of(s, k + 1) - end_of(s, i - 1) < bytes) continue;
            best = newest;
            *first = i;
            n = k - i + 1;
            break;
        }
    }
    return n;
}

void gm_space_free(gm_space *s)
{
    free(s->parts);
    *s = (gm_space){0};
}
