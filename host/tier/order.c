/* order.c - see order.h. */
#include "order.h"

#include <stdlib.h>

static void add(gm_order_list *l, int place, int most)
{
    if (l->n >= most) return;
    if (l->n == l->room) {
        int  room = l->room ? 2 * l->room : 64;
        int *more = realloc(l->place, (size_t)room * sizeof *more);
        if (!more) return;
        l->place = more;
        l->room = room;
    }
    l->place[l->n++] = place;
}

/* Where the order of the step before goes on behind this place: at its next occurrence, or else at its first. */
static void follow(gm_order *o, int place)
{
    for (int k = 0; k < o->last.n; k++) {
        int i = (o->at + k) % o->last.n;
        if (o->last.place[i] != place) continue;
        o->at = i + 1;
        return;
    }
    o->at = o->last.n;
}

void gm_order_note(gm_order *o, int place, int most)
{
    add(&o->now, place, most);
    follow(o, place);
}

int gm_order_next(const gm_order *o, int k) { return o->at + k < o->last.n ? o->last.place[o->at + k] : -1; }

void gm_order_end(gm_order *o)
{
    gm_order_list used = o->last;
    if (!o->now.n) return;
    o->last = o->now;
    o->now = used;
    o->now.n = o->at = 0;
}

void gm_order_free(gm_order *o)
{
    free(o->last.place);
    free(o->now.place);
    *o = (gm_order){.at = 0};
}
