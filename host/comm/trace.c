/* trace.c - accounts of what each module sends, by (module path, group, op, phase), and the list of calls. See comm.h.
 *
 * `ganymede check` traces a step; an ordinary run has no trace. Entries are a list, with a hash table of their indices.
 * The trap: an operation that began before the trace has no entry in it. gm_comm_trace refuses a new trace while
 * operations are under way, because they hold indices into the old one. */
#include "state.h"

#include <stdlib.h>
#include <string.h>
#include "../../kernels/philox.h"

typedef struct entry {
    uint64_t        hash;
    char           *path;
    const gm_group *group;
    int             call;
    gm_phase        phase;
    uint64_t        calls, bytes;
} entry;

typedef struct traced_call {
    const gm_group *group;
    gm_call_record  record;
} traced_call;

struct gm_trace {
    entry       *entries; /* room of them */
    int         *slot;    /* 2 room of them: place in entries + 1, 0: free */
    int          n, room; /* room is a power of two */
    traced_call *calls;
    int          n_calls, calls_room;
};

void gm_trace_free(gm_trace *t)
{
    if (!t) return;
    for (int i = 0; i < t->n; i++) free(t->entries[i].path);
    free(t->entries);
    free(t->slot);
    free(t->calls);
    free(t);
}

static int *find_slot(const gm_trace *t, uint64_t hash)
{
    uint64_t mask = 2 * (uint64_t)t->room - 1, i = hash & mask;
    while (t->slot[i] && t->entries[t->slot[i] - 1].hash != hash) i = (i + 1) & mask;
    return &t->slot[i];
}

/* Not GM_ENOMEM: the operation has begun, and must not be tried again. */
static gm_status grow(gm_trace *t)
{
    int    room = t->room ? 2 * t->room : 256;
    int   *slot = calloc(2 * (size_t)room, sizeof *slot);
    entry *entries = slot ? realloc(t->entries, (size_t)room * sizeof *entries) : NULL;
    if (entries) t->entries = entries;
    else free(slot);
    if (!entries) return GM_FAIL(GM_ECOMM, "no memory for a trace of %d entries", room);
    free(t->slot);
    t->slot = slot;
    t->room = room;
    for (int i = 0; i < t->n; i++) *find_slot(t, t->entries[i].hash) = i + 1;
    return GM_OK;
}

static gm_status list_call(gm_trace *t, const gm_group *g, const gm_call_record *record)
{
    if (t->n_calls == t->calls_room) {
        int          room = t->calls_room ? 2 * t->calls_room : 256;
        traced_call *calls = realloc(t->calls, (size_t)room * sizeof *calls);
        if (!calls) return GM_FAIL(GM_ECOMM, "no memory for a trace of %d calls", room);
        t->calls = calls;
        t->calls_room = room;
    }
    t->calls[t->n_calls++] = (traced_call){g, *record};
    return GM_OK;
}

gm_status gm_trace_call(gm_trace *t, const char *path, const gm_group *g, const gm_call_record *record, gm_phase phase,
                        int *at)
{
    uint64_t kind = (uint64_t)record->call * GM_PHASE_COUNT + (uint64_t)phase;
    uint64_t hash = gm_mix64(gm_hash_text(GM_HASH_START, path) ^ gm_mix64(g->id ^ gm_mix64(kind)));
    GM_TRY(list_call(t, g, record));
    if (t->n == t->room) GM_TRY(grow(t));
    int *slot = find_slot(t, hash);
    if (!*slot) {
        char *own = strdup(path);
        if (!own) return GM_FAIL(GM_ECOMM, "no memory for a path in a trace");
        t->entries[t->n++] = (entry){.hash = hash, .path = own, .group = g, .call = record->call, .phase = phase};
        *slot = t->n;
    }
    *at = *slot - 1;
    t->entries[*at].calls++;
    return GM_OK;
}

void gm_trace_sent(gm_trace *t, int at, size_t bytes)
{
    if (at >= 0) t->entries[at].bytes += bytes;
}

/* Those that the device is left with have counted all that they send. */
static bool is_counting(const gm_comm *c)
{
    for (const gm_pending *p = c->under_way; p; p = p->next)
        if (!p->handed_over) return true;
    return false;
}

gm_status gm_comm_trace(gm_comm *c, bool on)
{
    if (is_counting(c))
        return GM_FAIL(GM_EINVAL, "a trace cannot begin or end while operations are under way; wait for them");
    gm_trace_free(c->trace);
    c->trace = NULL;
    if (!on) return GM_OK;
    c->trace = calloc(1, sizeof *c->trace);
    return c->trace ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a trace");
}

int gm_comm_traced(const gm_comm *c, gm_traced *entries, int max)
{
    int n = c->trace ? c->trace->n : 0;
    for (int i = 0; i < n && i < max; i++) {
        const entry *e = &c->trace->entries[i];
        entries[i] = (gm_traced){e->path, e->group->name, gm_call_name(e->call), e->phase, e->calls, e->bytes};
    }
    return n;
}

int gm_comm_traced_calls(const gm_comm *c) { return c->trace ? c->trace->n_calls : 0; }

void gm_comm_traced_call(const gm_comm *c, int i, gm_traced_call *call)
{
    const traced_call *at = &c->trace->calls[i];
    call->group = at->group->name;
    call->group_id = at->group->id;
    call->fingerprint = gm_record_fingerprint(&at->record);
    gm_record_describe(&at->record, at->group->name, call->text, sizeof call->text);
}
