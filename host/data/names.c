/* names.c - see names.h. */
#include "names.h"

#include <stdlib.h>
#include <string.h>

gm_status gm_names_add(gm_names *l, const char *text, size_t length)
{
    if (l->used + length + 1 > l->room) {
        size_t room = 2 * l->room + length + 4096;
        char  *more = realloc(l->text, room);
        if (!more) return GM_FAIL(GM_ENOMEM, "no memory for %zu bytes of names", room);
        l->text = more, l->room = room;
    }
    if (l->n == l->n_room) {
        int64_t room = 2 * l->n_room + 256;
        size_t *more = realloc(l->at, (size_t)room * sizeof *more);
        if (!more) return GM_FAIL(GM_ENOMEM, "no memory for %lld names", (long long)room);
        l->at = more, l->n_room = room;
    }
    l->at[l->n++] = l->used;
    memcpy(l->text + l->used, text, length);
    l->text[l->used + length] = 0;
    l->used += length + 1;
    return GM_OK;
}

const char *gm_names_get(const gm_names *l, int64_t i) { return l->text + l->at[i]; }

static int by_bytes(const void *a, const void *b, void *text)
{
    return strcmp((char *)text + *(const size_t *)a, (char *)text + *(const size_t *)b);
}

void gm_names_sort(gm_names *l, int64_t first)
{
    if (l->n - first > 1) qsort_r(l->at + first, (size_t)(l->n - first), sizeof *l->at, by_bytes, l->text);
}

void gm_names_free(gm_names *l)
{
    free(l->text);
    free(l->at);
    *l = (gm_names){0};
}
