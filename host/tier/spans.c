/* spans.c - see spans.h. */
#include "spans.h"

#include <stdlib.h>
#include "../../kernels/clock.h"

void gm_disk_spans_set(gm_disk_spans *s, bool on)
{
    if (on) s->n = 0, s->lost = 0;
    s->on = on;
}

static bool has_room(gm_disk_spans *s)
{
    if (s->n < s->room) return true;
    size_t        room = s->room ? 2 * s->room : 1024;
    gm_disk_span *list = realloc(s->list, room * sizeof *list);
    if (!list) return false;
    s->list = list;
    s->room = room;
    return true;
}

void gm_disk_spans_add(gm_disk_spans *s, gm_disk_activity what, double begin, uint64_t bytes)
{
    if (!s->on) return;
    if (has_room(s)) s->list[s->n++] = (gm_disk_span){what, begin, gm_now(), bytes};
    else s->lost++;
}

void gm_disk_spans_free(gm_disk_spans *s)
{
    free(s->list);
    *s = (gm_disk_spans){0};
}
