/* carry.c - where the bytes of a tier's objects rest, and how they get there: a file, the host's tier below a GPU, or
 * nowhere on meta. The accounts of a tier. See object.h. */
#include "../../kernels/journal.h"
#include "object.h"

uint64_t gm_tier_pages(uint64_t bytes)
{
    return bytes ? (bytes + GM_DISK_ALIGN - 1) / GM_DISK_ALIGN * GM_DISK_ALIGN : GM_DISK_ALIGN;
}

uint64_t gm_tier_room(gm_tier_kind kind, uint64_t bytes)
{
    if (kind == GM_TIER_HOST) return bytes;
    return gm_tier_pages(bytes);
}

gm_status gm_tier_check_limit(const gm_tier *t, uint64_t bytes)
{
    if (!t->stats.limit || bytes <= t->stats.limit - t->stats.placed) return GM_OK;
    char more[32], limit[32], taken[32];
    return GM_FAIL(GM_ENOMEM, "offload: %s more would pass the limit of %s, of which %s are taken",
                   gm_disk_amount(bytes, more), gm_disk_amount(t->stats.limit, limit),
                   gm_disk_amount(t->stats.placed, taken));
}

gm_status gm_tier_prepare(gm_tier *t, uint64_t bytes)
{
    GM_TRY(gm_tier_check_limit(t, bytes));
    if (t->below) return gm_tier_prepare(t->below, bytes);
    return t->disk ? gm_disk_prepare(t->disk, bytes) : GM_OK;
}

gm_tier_stats gm_tier_stats_of(const gm_tier *t)
{
    gm_tier_stats s = t->stats;
    if (t->below && s.kind == GM_TIER_DISK) {
        gm_tier_stats below = gm_tier_stats_of(t->below);
        s.read = below.read, s.written = below.written, s.waited = below.waited;
    }
    if (t->disk) {
        gm_disk_stats d = gm_disk_stats_of(t->disk);
        s.read = d.read, s.written = d.written, s.waited = d.waited;
    }
    return s;
}

gm_disk_spans *gm_tier_spans(gm_tier *t)
{
    if (t->below) return gm_tier_spans(t->below);
    return t->disk ? gm_disk_spans_of(t->disk) : NULL;
}

/* ---- the bytes of an object ---- */

/* The record of a step says when bytes begin to move. Through the host to a disk counts as the disk alone. */
static void record(gm_object *o, bool write)
{
    static const char *const names[2][2] = {{"host_read", "host_write"}, {"disk_read", "disk_write"}};
    const gm_tier           *t = o->tier;
    gm_journal              *r = t->device->journal;
    gm_event                *e = r && gm_tier_has_ring(t) ? gm_journal_add(r, GM_EVENT_BEGIN) : NULL;
    bool                     disk = t->stats.kind == GM_TIER_DISK;
    o->recorded = 0;
    if (!e) return;
    e->id = o->recorded = ++r->ids;
    e->name = gm_journal_text(r, names[disk][write]);
    e->group = gm_journal_text(r, disk ? "@disk" : "@host");
    e->bytes = (double)o->storage->bytes;
}

/* From here on the rank needs them. */
static void record_wait(gm_object *o)
{
    gm_journal *r = o->tier->device->journal;
    gm_event   *e = r && o->recorded && o->recorded <= r->ids ? gm_journal_add(r, GM_EVENT_WAIT) : NULL;
    if (e) e->id = o->recorded;
    o->recorded = 0;
}

gm_status gm_object_read(gm_object *o)
{
    gm_tier *t = o->tier;
    record(o, false);
    if (t->below) {
        t->stats.read += o->storage->bytes;
        return gm_passages_read(t->ways, o->below->storage, o->memory, o->storage->bytes, &o->way);
    }
    return t->disk ? gm_disk_read(t->disk, o->at, o->memory, o->room, &o->transfer) : GM_OK;
}

gm_status gm_object_write(gm_object *o)
{
    gm_tier *t = o->tier;
    record(o, true);
    if (t->below) {
        t->stats.written += o->storage->bytes;
        return gm_passages_write(t->ways, o->below->storage, o->memory, o->storage->bytes, &o->way);
    }
    return t->disk ? gm_disk_write(t->disk, o->at, o->memory, o->room, &o->transfer) : GM_OK;
}

gm_status gm_object_settle(gm_object *o)
{
    gm_status st = GM_OK;
    record_wait(o);
    if (o->way) st = gm_passages_settle(o->tier->ways, o->way);
    if (o->transfer) st = gm_disk_wait(o->tier->disk, o->transfer);
    o->transfer = NULL;
    o->way = NULL;
    return st;
}
