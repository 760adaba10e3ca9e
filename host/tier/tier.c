/* tier.c - see tier.h. What rests in a tier is an `object`, the home of its storage. */
#include "tier.h"

#include <stdlib.h>
#include <string.h>
#include "ring.h"

typedef enum state {
    RESTING, /* in the tier alone */
    COMING,  /* being read into the ring */
    HERE,    /* in the ring, open */
    GOING    /* in the ring, being written */
} state;

typedef struct object {
    gm_home           home; /* the first, so that a home is its object */
    gm_tier          *tier;
    gm_storage       *storage;
    uint64_t          at, room; /* in the file */
    char             *memory;   /* in the ring; NULL on meta */
    state             state;
    int               opens;
    bool              changed;
    gm_disk_transfer *transfer; /* COMING, GOING */
} object;

struct gm_tier {
    int           refs; /* the owner's, and one for each object */
    gm_device    *device;
    gm_disk      *disk;  /* NULL: of the host, or on meta */
    gm_block     *block; /* of the ring */
    char         *memory;
    gm_ring       ring;
    gm_tier_stats stats;
};

static bool is_disk(const gm_tier *t) { return t->stats.kind == GM_TIER_DISK; }

/* ---- a tier ---- */

static void note(void *context, const char *text) { gm_device_note(context, text); }

static gm_status take_ring(gm_tier *t, size_t bytes)
{
    void *data;
    t->ring.size = bytes / GM_DISK_ALIGN * GM_DISK_ALIGN;
    gm_pool_set_place(t->device->pool, "", "offload ring");
    GM_TRY(gm_pool_alloc(t->device->pool, t->ring.size + GM_DISK_ALIGN, &data, &t->block));
    t->stats.ring = t->ring.size;
    if (data) t->memory = (char *)(((uintptr_t)data + GM_DISK_ALIGN - 1) / GM_DISK_ALIGN * GM_DISK_ALIGN);
    return GM_OK;
}

gm_status gm_tier_new(gm_device *dev, const gm_tier_settings *settings, gm_tier **out)
{
    gm_disk_settings disk = settings->disk;
    if (dev->backend->has_data && !dev->backend->on_host)
        return GM_FAIL(GM_EINVAL, "offload: the memory of the device %s is not the host's; offload works on the CPU",
                       dev->backend->name);
    gm_tier *t = calloc(1, sizeof *t);
    if (!t) return GM_FAIL(GM_ENOMEM, "no memory for a tier");
    t->refs = 1;
    t->device = dev;
    t->stats.kind = settings->kind;
    t->stats.limit = settings->limit;
    if (!disk.say) disk.say = note, disk.say_context = dev;
    gm_status st = GM_OK;
    if (is_disk(t)) st = take_ring(t, settings->ring);
    if (is_disk(t) && st == GM_OK && dev->backend->has_data) st = gm_disk_open(&disk, &t->disk);
    if (st == GM_OK) *out = t;
    else gm_tier_release(t);
    return st;
}

void gm_tier_release(gm_tier *t)
{
    if (!t || --t->refs) return;
    gm_disk_close(t->disk);
    gm_ring_free(&t->ring);
    if (t->block) gm_pool_release(t->device->pool, t->block);
    free(t);
}

uint64_t gm_tier_room(gm_tier_kind kind, uint64_t bytes)
{
    if (kind == GM_TIER_HOST) return bytes;
    return bytes ? (bytes + GM_DISK_ALIGN - 1) / GM_DISK_ALIGN * GM_DISK_ALIGN : GM_DISK_ALIGN;
}

static gm_status check_limit(const gm_tier *t, uint64_t bytes)
{
    if (!t->stats.limit || bytes <= t->stats.limit - t->stats.placed) return GM_OK;
    return GM_FAIL(GM_ENOMEM, "offload: %.1f MiB more would pass the limit of %.1f MiB, of which %.1f are taken",
                   (double)bytes / 1048576, (double)t->stats.limit / 1048576, (double)t->stats.placed / 1048576);
}

gm_status gm_tier_prepare(gm_tier *t, uint64_t bytes)
{
    GM_TRY(check_limit(t, bytes));
    return t->disk ? gm_disk_prepare(t->disk, bytes) : GM_OK;
}

gm_tier_stats gm_tier_stats_of(const gm_tier *t)
{
    gm_tier_stats s = t->stats;
    if (t->disk) {
        gm_disk_stats d = gm_disk_stats_of(t->disk);
        s.read = d.read, s.written = d.written, s.waited = d.waited;
    }
    return s;
}

/* ---- bytes that come and go ---- */

static void leave_ring(object *o)
{
    gm_ring_give_back(&o->tier->ring, o);
    o->tier->stats.resident -= o->room;
    o->memory = NULL;
    o->state = RESTING;
}

/* Ends the transfer that is under way. A read that nobody opened, and a write, leave the ring unless `keep`. */
static gm_status settle(object *o, bool keep)
{
    gm_status st = o->transfer ? gm_disk_wait(o->tier->disk, o->transfer) : GM_OK;
    o->transfer = NULL;
    if (st == GM_OK && keep) o->state = HERE;
    else leave_ring(o);
    return st;
}

/* Lets what is written leave the ring, without waiting. */
static gm_status sweep(gm_tier *t)
{
    for (int i = 0; i < t->ring.n;) {
        object *o = t->ring.parts[i].owner;
        int     n = t->ring.n;
        if (o && o->state == GOING && (!o->transfer || gm_disk_is_done(t->disk, o->transfer))) GM_TRY(settle(o, false));
        if (n == t->ring.n) i++;
        else i = 0; /* parts have moved */
    }
    return GM_OK;
}

/* What can leave the ring: the oldest that is being written, else the newest that was fetched ahead. NULL: all are
 * open. */
static object *victim(const gm_tier *t)
{
    object *ahead = NULL;
    for (int i = 0; i < t->ring.n; i++) {
        object *o = t->ring.parts[i].owner;
        if (o && o->state == GOING) return o;
        if (o && o->state == COMING) ahead = o;
    }
    return ahead;
}

static gm_status place(object *o, bool wait, bool *placed)
{
    gm_tier *t = o->tier;
    size_t   at;
    for (;;) {
        GM_TRY(sweep(t));
        GM_TRY(gm_ring_take(&t->ring, o->room, o, placed, &at));
        if (*placed || !wait) break;
        object *other = victim(t);
        if (!other)
            return GM_FAIL(GM_ENOMEM,
                           "offload: %.1f MiB do not fit into the ring of %.1f MiB beside what is in use; give "
                           "offload.ring more",
                           (double)o->room / 1048576, (double)t->ring.size / 1048576);
        GM_TRY(settle(other, false));
    }
    if (!*placed) return GM_OK;
    t->stats.resident += o->room;
    if (t->stats.resident > t->stats.resident_peak) t->stats.resident_peak = t->stats.resident;
    o->memory = t->memory ? t->memory + at : NULL;
    return GM_OK;
}

static gm_status begin(object *o, bool wait)
{
    bool placed;
    GM_TRY(place(o, wait, &placed));
    if (!placed) return GM_OK;
    o->state = COMING;
    o->tier->stats.fetched++;
    gm_status st = o->tier->disk ? gm_disk_read(o->tier->disk, o->at, o->memory, o->room, &o->transfer) : GM_OK;
    if (st != GM_OK) leave_ring(o);
    return st;
}

static gm_status open_object(gm_home *home)
{
    object *o = (object *)home;
    if (!is_disk(o->tier) || o->opens) {
        o->opens++;
        return GM_OK;
    }
    if (o->state == GOING) o->tier->stats.kept++;
    if (o->state == RESTING) GM_TRY(begin(o, true));
    GM_TRY(settle(o, true));
    o->storage->data = o->memory;
    o->changed = false;
    o->opens = 1;
    return GM_OK;
}

static void close_object(gm_home *home, bool changed)
{
    object *o = (object *)home;
    o->changed |= changed;
    if (--o->opens || !is_disk(o->tier)) return;
    o->storage->data = NULL;
    if (!o->changed) {
        leave_ring(o);
        return;
    }
    o->state = GOING;
    o->tier->stats.stored++;
    if (!o->tier->disk) return;
    if (gm_disk_write(o->tier->disk, o->at, o->memory, o->room, &o->transfer) == GM_OK) return;
    leave_ring(o); /* the disk is broken, and says so to whoever opens one of its objects next */
}

static void gone(gm_home *home)
{
    object  *o = (object *)home;
    gm_tier *t = o->tier;
    if (o->state != RESTING) (void)settle(o, false);
    if (t->disk) gm_disk_give_back(t->disk, o->at, o->room);
    t->stats.objects--;
    t->stats.placed -= o->room;
    free(o);
    gm_tier_release(t);
}

/* ---- taking bytes in ---- */

/* Out of the pool's block, through the ring, on their way to the disk. */
static gm_status move_in(object *o)
{
    bool        placed;
    gm_storage *s = o->storage;
    GM_TRY(place(o, true, &placed));
    if (o->memory) memcpy(o->memory, s->data, s->bytes);
    if (o->memory) memset(o->memory + s->bytes, 0, o->room - s->bytes);
    gm_pool_release(s->device->pool, s->block);
    s->block = NULL;
    o->state = HERE;
    o->opens = 1;
    close_object(&o->home, true);
    return GM_OK;
}

gm_status gm_tier_take(gm_tier *t, gm_storage *s)
{
    if (s->home) return GM_FAIL(GM_EINVAL, "offload: these bytes rest elsewhere already");
    uint64_t room = gm_tier_room(t->stats.kind, s->bytes);
    GM_TRY(check_limit(t, room));
    object *o = calloc(1, sizeof *o);
    if (!o) return GM_FAIL(GM_ENOMEM, "no memory for what is offloaded");
    *o = (object){.home = {open_object, close_object, gone}, .tier = t, .storage = s, .room = room};
    gm_status st = t->disk ? gm_disk_reserve(t->disk, room, &o->at) : GM_OK;
    if (st == GM_OK && is_disk(t)) {
        st = move_in(o);
        if (st != GM_OK && t->disk) gm_disk_give_back(t->disk, o->at, room);
    }
    if (st != GM_OK) {
        free(o);
        return st;
    }
    s->home = &o->home;
    t->refs++;
    t->stats.objects++;
    t->stats.placed += room;
    if (t->stats.placed > t->stats.placed_peak) t->stats.placed_peak = t->stats.placed;
    return GM_OK;
}

gm_status gm_tier_begin(gm_tier *t, gm_storage *s)
{
    object *o = (object *)s->home;
    if (!o || o->tier != t || !is_disk(t) || o->state != RESTING) return GM_OK;
    return begin(o, false);
}

gm_status gm_tier_settle(gm_tier *t)
{
    for (;;) {
        object *o = NULL;
        for (int i = 0; i < t->ring.n && !o; i++) {
            object *at = t->ring.parts[i].owner;
            if (at && at->state == GOING) o = at;
        }
        if (!o) return GM_OK;
        GM_TRY(settle(o, false));
    }
}
