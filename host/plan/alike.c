/* alike.c - compares the steps of two ranks: see step_file.h. */
#include <math.h>
#include <string.h>

#include "replay.h"
#include "step_file.h"

static const char *text(const gm_step *s, int32_t number) { return gm_journal_text_of(s->journal, number); }

static bool is_message(const gm_step *s, const gm_event *e)
{
    return !strcmp(text(s, e->name), "send") || !strcmp(text(s, e->name), "receive");
}

/* How far away the other end is; a group that cannot be read has no distances. */
static int distance(const gm_step *s, const gm_event *e)
{
    gm_groups g = {0};
    int       group, base;
    if (gm_groups_find(&g, &s->mesh, text(s, e->group), &group) != GM_OK || group < 0) return e->peer;
    int size = gm_groups_size(&g, &s->mesh, group), place = gm_groups_place(&g, &s->mesh, group, s->rank, &base);
    return place < 0 ? e->peer : (e->peer - place + size) % size;
}

static bool same_begin(const gm_step *a, const gm_event *x, const gm_step *b, const gm_event *y)
{
    if (strcmp(text(a, x->group), text(b, y->group)) != 0 || strcmp(text(a, x->name), text(b, y->name)) != 0 ||
        x->bytes != y->bytes)
        return false;
    if (x->peer == y->peer && a->rank == b->rank) return true;
    return is_message(a, x) ? distance(a, x) == distance(b, y) : x->peer == y->peer;
}

static bool same_event(const gm_step *a, const gm_event *x, const gm_step *b, const gm_event *y)
{
    if (x->kind != y->kind || x->id != y->id) return false;
    if (x->kind == GM_EVENT_WAIT) return true;
    if (x->kind == GM_EVENT_BEGIN) return same_begin(a, x, b, y);
    if (x->kind != GM_EVENT_OP) return x->bytes == y->bytes;
    return !strcmp(text(a, x->name), text(b, y->name)) && !strcmp(text(a, x->dtype), text(b, y->dtype)) &&
           x->size == y->size && x->flops == y->flops && x->products == y->products && x->bytes == y->bytes;
}

/* What lies in memory before the step. Parts of ZeRO differ by some elements where ranks do not divide a parameter. */
static bool same_live(double a, double b) { return fabs(a - b) <= GM_ALIKE_LIVE * (a > b ? a : b); }

/* The next event from i on that counts; n: there is none. When a single number is freed, Lua's collector decides. */
static int64_t next_event(const gm_journal *r, int64_t i)
{
    while (i < r->n && r->events[i].kind == GM_EVENT_FREE && r->events[i].bytes <= sizeof(double)) i++;
    return i;
}

bool gm_step_alike(const gm_step *a, const gm_step *b)
{
    const gm_journal *x = a->journal, *y = b->journal;
    if (!same_live(x->live, y->live)) return false;
    int64_t i = next_event(x, 0), k = next_event(y, 0);
    for (; i < x->n && k < y->n; i = next_event(x, i + 1), k = next_event(y, k + 1))
        if (!same_event(a, &x->events[i], b, &y->events[k])) return false;
    return i == x->n && k == y->n;
}

/* "data.tensor@0+1" has the axes data and tensor. */
static bool names(const char *group, const char *axis)
{
    size_t n = strlen(axis);
    for (const char *at = group; at; at = strpbrk(at, ".")) {
        at += *at == '.';
        if (!strncmp(at, axis, n) && (!at[n] || at[n] == '.' || at[n] == '@')) return true;
    }
    return false;
}

bool gm_step_has_places(const gm_step *s, const char *axis)
{
    for (int64_t i = 0; i < s->journal->n; i++) {
        const gm_event *e = &s->journal->events[i];
        if (e->kind == GM_EVENT_BEGIN && e->peer >= 0 && names(text(s, e->group), axis)) return true;
    }
    return false;
}
