/* flight.c - the flight recorder: the last calls of this rank on its groups, from which it answers other ranks. */
#include "state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/philox.h"

static const char *const call_names[] = {
#define GM_COLLECTIVE(name) #name,
    GM_COLLECTIVES(GM_COLLECTIVE)
#undef GM_COLLECTIVE
};
static const char *const reduction_names[] = {"sum", "mean", "max", "min"};
static const char *const phase_names[] = {"other",  "initialize", "forward",   "backward",
                                          "update", "evaluate",   "checkpoint"};

const char *gm_phase_name(gm_phase phase) { return phase_names[phase]; }
const char *gm_call_name(int call) { return call_names[call]; }

uint64_t gm_flight_add(gm_flight *f, const gm_call_record *record, const char *group, double now)
{
    f->entry[f->n % GM_FLIGHT_RING] = (gm_flight_entry){*record, group, now, 0};
    return f->n++;
}

void gm_flight_end(gm_flight *f, uint64_t at, double now)
{
    if (f->n - at <= GM_FLIGHT_RING) f->entry[at % GM_FLIGHT_RING].ended = now;
}

const gm_call_record *gm_flight_find(const gm_flight *f, uint64_t group, uint64_t epoch, uint64_t number)
{
    for (uint64_t i = f->n; i > 0 && f->n - i < GM_FLIGHT_RING; i--) {
        const gm_call_record *r = &f->entry[(i - 1) % GM_FLIGHT_RING].record;
        if (r->group == group && r->epoch == epoch && r->number == number) return r;
    }
    return NULL;
}

/* Small numbers, from -1 on, in 8 bits each. */
static uint64_t packed(int a, int b, int c, int d)
{
    return (uint64_t)(uint8_t)a << 24 | (uint64_t)(uint8_t)b << 16 | (uint64_t)(uint8_t)c << 8 | (uint8_t)d;
}

uint64_t gm_record_fingerprint(const gm_call_record *r)
{
    int      call = r->call == GM_CALL_receive ? GM_CALL_send : r->call;
    uint64_t h = gm_mix64(GM_HASH_START ^ packed(call, r->dtype, r->reduction, r->ndim) << 32 ^ (uint32_t)r->root);
    h = gm_mix64(h ^ packed(0, 0, r->dim, r->join));
    for (int d = 0; d < r->ndim; d++) h = gm_mix64(h ^ (uint64_t)r->shape[d]);
    return h;
}

char *gm_record_describe(const gm_call_record *r, const char *group, char *buf, size_t size)
{
    char   shape[160] = "", root[32] = "", dims[48] = "", where[32 + GM_PLACE_ROOM] = "";
    size_t n = 0;
    if (r->dtype >= 0) {
        n = (size_t)snprintf(shape, sizeof shape, " %s ", gm_dtype_name((gm_dtype)r->dtype));
        gm_shape_describe(r->ndim, r->shape, shape + n, sizeof shape - n);
    }
    if (r->join >= 0) snprintf(dims, sizeof dims, " split %d join %d", r->dim + 1, r->join + 1);
    else if (r->dim >= 0) snprintf(dims, sizeof dims, " along dimension %d", r->dim + 1);
    if (r->root >= 0) snprintf(root, sizeof root, " root %d", r->root);
    if (r->place[0]) snprintf(where, sizeof where, ", at %s", r->place);
    snprintf(buf, size, "%s%s%s%s%s%s (call %" PRIu64 "%s%s)%s", call_names[r->call], shape,
             r->reduction >= 0 ? " " : "", r->reduction >= 0 ? reduction_names[r->reduction] : "", dims, root,
             r->number + 1, group ? " of " : "", group ? group : "", where);
    return buf;
}

char *gm_comm_flight(const gm_comm *c, int lines)
{
    enum { LINE = 640 };
    const gm_flight *f = c->flight;
    uint64_t         held = f->n < GM_FLIGHT_RING ? f->n : GM_FLIGHT_RING;
    uint64_t         take = lines > 0 && (uint64_t)lines < held ? (uint64_t)lines : lines > 0 ? held : 0;
    char            *text = malloc(take * LINE + 1), call[480];
    size_t           n = 0;
    if (!text) return NULL;
    text[0] = 0;
    for (uint64_t i = f->n - take; i < f->n; i++) {
        const gm_flight_entry *e = &f->entry[i % GM_FLIGHT_RING];
        gm_record_describe(&e->record, e->group, call, sizeof call);
        if (e->ended > 0)
            n += (size_t)snprintf(text + n, LINE, "%.6f %s: %.6f s\n", e->started, call, e->ended - e->started);
        else
            n += (size_t)snprintf(text + n, LINE, "%.6f %s: %s\n", e->started, call,
                                  e->ended < 0 ? "given up" : "under way");
    }
    return text;
}
