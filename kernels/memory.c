/* memory.c - see memory.h. The header of a block lies apart from its bytes, because the host cannot write to the memory
 * of some devices. Places are a list that only grows; blocks hold indices into it, and a hash table finds an entry by
 * its text. */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "philox.h"
#include "journal.h"

#define MIN_SHIFT 6 /* 64 bytes */
#define CLASSES   (8 * 48)
#define MAX_BYTES ((size_t)1 << 48) /* of one request; the largest class holds more */

typedef struct place {
    uint64_t hash;
    char    *text;
    size_t   live, peak;
    uint64_t blocks;
} place;

struct gm_block {
    void         *data;
    size_t        asked, size; /* size: of its class */
    int           class_;
    uint32_t      place;
    bool          recorded; /* its release is to be, too */
    gm_pool_part *part;     /* that it goes back to */
    gm_block     *next;     /* while idle */
};

struct gm_pool_part {
    gm_block *idle[CLASSES];
    uint64_t  blocks; /* not idle */
    size_t    live, peak, reserved;
    bool      freed; /* with blocks in use: the last of them frees it */
};

struct gm_pool {
    gm_raw_memory   raw;
    void           *context; /* for raw */
    gm_memory_stats stats;
    gm_pool_part    own;
    gm_raw_memory   raw_shared; /* the second source; alloc NULL: there was none yet */
    void           *shared_context;
    bool            shares, wants_shared; /* it serves requests; such as are made now */
    gm_pool_part    shared;               /* its blocks */
    gm_pool_part   *used;                 /* by requests; &own: no part */
    gm_journal     *journal;              /* NULL: none */
    gm_block       *headers;              /* spare headers */
    place          *places;               /* n_places used of slots / 2 */
    uint32_t       *slot;                 /* index + 1 into places, 0: free */
    uint32_t        n_places, slots, current;
};

/* Class of a size, and the size of that class: 64, then eight steps to each power of two. */
static int size_class(size_t bytes, size_t *size)
{
    if (bytes <= (size_t)1 << MIN_SHIFT) {
        *size = (size_t)1 << MIN_SHIFT;
        return 0;
    }
    int    shift = 63 - __builtin_clzll(bytes - 1); /* 2^shift <= bytes - 1 < 2^(shift+1) */
    size_t step = (size_t)1 << (shift - 3);
    size_t k = (bytes - ((size_t)1 << shift) + step - 1) / step; /* 1..8 */
    *size = ((size_t)1 << shift) + k * step;
    return (shift - MIN_SHIFT) * 8 + (int)k;
}

static uint32_t *find_slot(const gm_pool *p, uint64_t hash)
{
    uint32_t i = (uint32_t)hash & (p->slots - 1);
    while (p->slot[i] && p->places[p->slot[i] - 1].hash != hash) i = (i + 1) & (p->slots - 1);
    return &p->slot[i];
}

static bool grow_places(gm_pool *p)
{
    uint32_t  slots = p->slots ? 2 * p->slots : 512;
    uint32_t *slot = calloc(slots, sizeof *slot);
    place    *places = realloc(p->places, slots / 2 * sizeof *places);
    if (places) p->places = places;
    if (!slot || !places) {
        free(slot);
        return false;
    }
    free(p->slot);
    p->slot = slot;
    p->slots = slots;
    for (uint32_t i = 0; i < p->n_places; i++) *find_slot(p, p->places[i].hash) = i + 1;
    return true;
}

void gm_pool_set_place(gm_pool *p, const char *module_path, const char *op)
{
    uint64_t hash = gm_hash_text(gm_hash_text(gm_hash_text(GM_HASH_START, module_path), ": "), op);
    if (p->n_places && p->places[p->current].hash == hash) return;
    uint32_t *slot = find_slot(p, hash);
    if (!*slot) {
        char *text = NULL;
        if ((p->n_places < p->slots / 2 || (grow_places(p) && (slot = find_slot(p, hash)))) &&
            (text = malloc(strlen(module_path) + strlen(op) + 3))) {
            sprintf(text, *module_path ? "%s: %s" : "%s%s", module_path, op);
            p->places[p->n_places++] = (place){.hash = hash, .text = text};
            *slot = p->n_places;
        } else {
            return; /* no memory for a name: the previous place is charged */
        }
    }
    p->current = *slot - 1;
}

const char *gm_pool_place(const gm_pool *p) { return p->places[p->current].text; }

gm_status gm_pool_new(const gm_raw_memory *raw, void *context, gm_pool **out)
{
    gm_pool *p = calloc(1, sizeof *p);
    if (!p || !grow_places(p)) {
        gm_pool_free(p);
        return GM_FAIL(GM_ENOMEM, "no memory for a pool");
    }
    p->raw = *raw;
    p->context = context;
    p->used = &p->own;
    gm_pool_set_place(p, "", "unnamed");
    *out = p;
    return GM_OK;
}

static void give_back(gm_pool *p, const gm_block *b)
{
    if (b->part == &p->shared) p->raw_shared.free(p->shared_context, b->data, b->size);
    else p->raw.free(p->context, b->data, b->size);
}

static void trim(gm_pool *p, gm_pool_part *part)
{
    for (int c = 0; c < CLASSES; c++)
        while (part->idle[c]) {
            gm_block *b = part->idle[c];
            part->idle[c] = b->next;
            give_back(p, b);
            p->stats.reserved -= b->size;
            part->reserved -= b->size;
            b->next = p->headers;
            p->headers = b;
        }
}

void gm_pool_trim(gm_pool *p)
{
    trim(p, &p->own);
    trim(p, &p->shared);
}

void gm_pool_lend(gm_pool *p, const gm_raw_memory *raw, void *context)
{
    p->shares = raw != NULL;
    if (!raw) return;
    p->raw_shared = *raw;
    p->shared_context = context;
}

bool gm_pool_want_shared(gm_pool *p, bool wanted)
{
    bool before = p->wants_shared;
    p->wants_shared = wanted;
    return before;
}

void gm_pool_free(gm_pool *p)
{
    if (!p) return;
    gm_pool_trim(p);
    while (p->headers) {
        gm_block *b = p->headers;
        p->headers = b->next;
        free(b);
    }
    for (uint32_t i = 0; i < p->n_places; i++) free(p->places[i].text);
    free(p->places);
    free(p->slot);
    free(p);
}

/* "12.3 MiB", for messages; buf has room for 24. */
static const char *human(size_t bytes, char *buf)
{
    static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double                   v = (double)bytes;
    int                      u = 0;
    for (; v >= 1024 && u < 4; u++) v /= 1024;
    snprintf(buf, 24, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
    return buf;
}

/* refusal: the words of the system (may be gm_last_error); NULL: it was not asked, the limit of the pool is reached. */
static gm_status over_limit(const gm_pool *p, size_t bytes, const char *refusal)
{
    gm_holder h[5];
    char      list[640] = "", limit[200], a[24], b[24];
    int       n = gm_pool_holders(p, h, 5);
    size_t    used = 0;
    for (int i = 0; i < n && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s %s in %llu", i ? "; " : "", h[i].place,
                                 human(h[i].live, a), (unsigned long long)h[i].blocks);
    if (refusal) snprintf(limit, sizeof limit, "that of the system: %s", refusal);
    else human(p->stats.limit, limit);
    return GM_FAIL(GM_ENOMEM,
                   "out of memory: wanted %s (%zu bytes) for '%s', %s in use, limit %s; %s%s; try a smaller batch%s",
                   human(bytes, a), bytes, p->places[p->current].text, human(p->stats.live, b), limit,
                   n ? "largest holders: " : "nothing is held yet", list, refusal ? "" : " or a higher --limit-memory");
}

/* From its part's source; a block that no memory to share is left for becomes one of the pool's own. */
static gm_status take_bytes(gm_pool *p, gm_block *b)
{
    if (b->part == &p->shared) {
        gm_status st = p->raw_shared.alloc(p->shared_context, b->size, &b->data);
        if (st != GM_ENOMEM) return st;
        b->part = &p->own;
    }
    return p->raw.alloc(p->context, b->size, &b->data);
}

static gm_status take_from_system(gm_pool *p, gm_block *b)
{
    gm_memory_stats *s = &p->stats;
    bool             may_trim = b->part == &p->own || b->part == &p->shared;
    if (s->limit && s->reserved + b->size > s->limit && may_trim) gm_pool_trim(p);
    if (s->limit && s->reserved + b->size > s->limit) return over_limit(p, b->asked, NULL);
    gm_status st = take_bytes(p, b);
    if (st == GM_ENOMEM && may_trim) {
        gm_pool_trim(p);
        st = take_bytes(p, b);
    }
    if (st == GM_ENOMEM) return over_limit(p, b->asked, gm_last_error());
    if (st != GM_OK) return st;
    s->reserved += b->size;
    b->part->reserved += b->size;
    s->system_allocations++;
    return GM_OK;
}

static gm_pool_part *part_for(gm_pool *p, size_t bytes)
{
    bool shared = p->shares && p->wants_shared && p->used == &p->own && bytes >= GM_SHARED_LEAST;
    return shared ? &p->shared : p->used;
}

static gm_status take(gm_pool *p, size_t bytes, void **data, gm_block **out)
{
    size_t size;
    if (bytes > MAX_BYTES) return over_limit(p, bytes, "no memory is that large");
    int           class_ = size_class(bytes, &size);
    gm_pool_part *part = part_for(p, bytes);
    gm_block     *b = part->idle[class_];
    if (b) {
        part->idle[class_] = b->next;
        b->asked = bytes;
    } else {
        b = p->headers;
        if (b) p->headers = b->next;
        else if (!(b = malloc(sizeof *b))) return GM_FAIL(GM_ENOMEM, "no memory for a block header");
        *b = (gm_block){.asked = bytes, .size = size, .class_ = class_, .part = part};
        gm_status st = take_from_system(p, b);
        if (st != GM_OK) {
            b->next = p->headers;
            p->headers = b;
            return st;
        }
        part = b->part;
    }
    b->place = p->current;
    place *at = &p->places[b->place];
    at->blocks++;
    at->live += bytes;
    if (at->live > at->peak) at->peak = at->live;
    part->blocks++;
    part->live += bytes;
    if (part->live > part->peak) part->peak = part->live;
    p->stats.allocations++;
    p->stats.live += bytes;
    if (p->stats.live > p->stats.peak) p->stats.peak = p->stats.live;
    *data = b->data;
    *out = b;
    return GM_OK;
}

gm_status gm_pool_alloc(gm_pool *p, size_t bytes, void **data, gm_block **out)
{
    GM_TRY(take(p, bytes, data, out));
    (*out)->recorded = gm_journal_memory(p->journal, GM_EVENT_ALLOC, (double)bytes);
    return GM_OK;
}

gm_status gm_pool_alloc_scratch(gm_pool *p, size_t bytes, void **data, gm_block **out)
{
    GM_TRY(take(p, bytes, data, out));
    (*out)->recorded = false;
    if (bytes > p->stats.scratch_peak) p->stats.scratch_peak = bytes;
    return GM_OK;
}

static void put_idle(gm_pool_part *part, gm_block *b)
{
    b->next = part->idle[b->class_];
    part->idle[b->class_] = b;
}

/* A block of a part that is gone becomes the pool's own. */
static void adopt(gm_pool *p, gm_block *b)
{
    b->part->reserved -= b->size;
    b->part = &p->own;
    p->own.reserved += b->size;
    put_idle(&p->own, b);
}

void gm_pool_release(gm_pool *p, gm_block *b)
{
    place *at = &p->places[b->place];
    at->blocks--;
    at->live -= b->asked;
    p->stats.live -= b->asked;
    gm_pool_part *part = b->part;
    part->blocks--;
    part->live -= b->asked;
    if (b->recorded) (void)gm_journal_memory(p->journal, GM_EVENT_FREE, (double)b->asked);
    if (part->freed) adopt(p, b);
    else put_idle(part, b);
    if (part->freed && !part->blocks) free(part);
}

/* ---- parts ---- */

gm_status gm_pool_part_new(gm_pool *p, gm_pool_part **out)
{
    (void)p;
    *out = calloc(1, sizeof **out);
    return *out ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a part of a pool");
}

void gm_pool_set_journal(gm_pool *p, gm_journal *journal) { p->journal = journal; }

void gm_pool_use(gm_pool *p, gm_pool_part *part) { p->used = part ? part : &p->own; }

void gm_pool_part_free(gm_pool *p, gm_pool_part *part)
{
    if (!part) return;
    if (p->used == part) p->used = &p->own;
    for (int c = 0; c < CLASSES; c++)
        while (part->idle[c]) {
            gm_block *b = part->idle[c];
            part->idle[c] = b->next;
            adopt(p, b);
        }
    part->freed = true;
    if (!part->blocks) free(part);
}

size_t gm_pool_part_reserved(const gm_pool_part *part) { return part->reserved; }
bool   gm_pool_part_has(const gm_pool_part *part, const gm_block *b) { return b->part == part; }

void gm_pool_part_ran(gm_pool *p, const gm_pool_part *part)
{
    size_t most = p->stats.live - part->live + part->peak;
    if (most > p->stats.peak) p->stats.peak = most;
}

void gm_pool_set_limit(gm_pool *p, size_t bytes) { p->stats.limit = bytes; }

void gm_pool_reset_peak(gm_pool *p)
{
    p->stats.peak = p->stats.live;
    p->stats.scratch_peak = 0;
    for (uint32_t i = 0; i < p->n_places; i++) p->places[i].peak = p->places[i].live;
}

gm_memory_stats gm_pool_stats(const gm_pool *p) { return p->stats; }

/* The n places with the largest keys, largest first; those with key 0 are left out. */
static int largest(const gm_pool *p, bool by_peak, gm_holder *out, int n)
{
    int found = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        const place *at = &p->places[i];
        size_t       key = by_peak ? at->peak : at->live;
        if (!key) continue;
        int k = found < n ? found++ : n;
        for (; k > 0 && (by_peak ? out[k - 1].peak : out[k - 1].live) < key; k--)
            if (k < n) out[k] = out[k - 1];
        if (k < n) out[k] = (gm_holder){at->text, at->live, at->peak, at->blocks};
    }
    return found;
}

int gm_pool_holders(const gm_pool *p, gm_holder *out, int n) { return largest(p, false, out, n); }
int gm_pool_peaks(const gm_pool *p, gm_holder *out, int n) { return largest(p, true, out, n); }
