/* journal.c - see journal.h. */
#include "journal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "clock.h"

static double clock_now(gm_journal_clock clock)
{
    return gm_clock(clock == GM_JOURNAL_THREAD ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

gm_status gm_journal_new(gm_journal_clock clock, gm_journal **out)
{
    gm_journal *r = calloc(1, sizeof *r);
    if (!r) return GM_FAIL(GM_ENOMEM, "no memory for the record of a step");
    r->clock = clock;
    r->start = clock == GM_JOURNAL_NONE ? 0 : clock_now(clock);
    *out = r;
    return GM_OK;
}

void gm_journal_free(gm_journal *r)
{
    if (!r) return;
    for (int32_t i = 0; i < r->n_texts; i++) free(r->texts[i]);
    free(r->texts);
    free(r->slots);
    free(r->events);
    free(r);
}

/* ---- texts ---- */

static uint64_t hash_of(const char *text)
{
    uint64_t h = 1469598103934665603u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h;
}

/* The place of a text in the hash table, which has twice as many places as there is room for texts. */
static int32_t *find_slot(const gm_journal *r, const char *text)
{
    uint64_t mask = 2 * (uint64_t)r->texts_room - 1, i = hash_of(text) & mask;
    while (r->slots[i] && strcmp(r->texts[r->slots[i] - 1], text) != 0) i = (i + 1) & mask;
    return &r->slots[i];
}

static bool grow_texts(gm_journal *r)
{
    int32_t  room = r->texts_room ? 2 * r->texts_room : 64;
    int32_t *slots = calloc(2 * (size_t)room, sizeof *slots);
    char   **texts = slots ? realloc(r->texts, (size_t)room * sizeof *texts) : NULL;
    if (!texts) {
        free(slots);
        r->failed = true;
        return false;
    }
    free(r->slots);
    r->slots = slots;
    r->texts = texts;
    r->texts_room = room;
    for (int32_t i = 0; i < r->n_texts; i++) *find_slot(r, r->texts[i]) = i + 1;
    return true;
}

int32_t gm_journal_text(gm_journal *r, const char *text)
{
    if (!text) return -1;
    if (r->n_texts == r->texts_room && !grow_texts(r)) return -1;
    int32_t *slot = find_slot(r, text);
    if (*slot) return *slot - 1;
    char *own = strdup(text);
    if (!own) {
        r->failed = true;
        return -1;
    }
    r->texts[r->n_texts++] = own;
    return (*slot = r->n_texts) - 1;
}

const char *gm_journal_text_of(const gm_journal *r, int32_t number)
{
    return number >= 0 && number < r->n_texts ? r->texts[number] : "";
}

/* ---- events ---- */

gm_event *gm_journal_add(gm_journal *r, gm_event_kind kind)
{
    if (r->n == r->room) {
        int64_t   room = r->room ? 2 * r->room : 1024;
        gm_event *events = realloc(r->events, (size_t)room * sizeof *events);
        r->failed |= !events;
        if (!events) return NULL;
        r->events = events;
        r->room = room;
    }
    gm_event *e = &r->events[r->n++];
    *e = (gm_event){.kind = kind,
                    .name = -1,
                    .about = -1,
                    .dtype = -1,
                    .path = -1,
                    .phase = -1,
                    .group = -1,
                    .peer = -1,
                    .seconds = r->clock == GM_JOURNAL_NONE ? 0 : clock_now(r->clock) - r->start};
    return e;
}

void gm_journal_took(gm_journal *r, int64_t at)
{
    if (r->clock == GM_JOURNAL_NONE || r->failed || at < 0) return;
    r->events[at].took = clock_now(r->clock) - r->start - r->events[at].seconds;
}

bool gm_journal_memory(gm_journal *r, gm_event_kind kind, double bytes)
{
    gm_event *e = r && !r->inside ? gm_journal_add(r, kind) : NULL;
    if (e) e->bytes = bytes;
    return e != NULL;
}
