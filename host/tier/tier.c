/* tier.c - see tier.h. What rests in a tier is an `object`, the home of its storage (object.h). */
#include "tier.h"

#include <stdlib.h>
#include <string.h>
#include "object.h"

typedef gm_object object;

static bool has_ring(const gm_tier *t) { return gm_tier_has_ring(t); }

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

static gm_status open_below(gm_tier *t, const gm_tier_settings *settings)
{
    gm_tier_settings below = *settings;
    below.beside = NULL;
    GM_TRY(gm_tier_new(settings->beside, &below, &t->below));
    return gm_passages_new(t->device, settings->kind == GM_TIER_DISK ? settings->ring / 2 : 0, &t->ways);
}

gm_status gm_tier_new(gm_device *dev, const gm_tier_settings *settings, gm_tier **out)
{
    gm_disk_settings disk = settings->disk;
    if (dev->backend->has_data && !dev->backend->on_host && !settings->beside)
        return GM_FAIL(GM_EINVAL,
                       "offload: the memory of the device %s is not the host's: a tier of it needs one below",
                       dev->backend->name);
    gm_tier *t = calloc(1, sizeof *t);
    if (!t) return GM_FAIL(GM_ENOMEM, "no memory for a tier");
    t->refs = 1;
    t->device = dev;
    t->stats.kind = settings->kind;
    t->stats.limit = settings->limit;
    if (!disk.say) disk.say = note, disk.say_context = dev;
    gm_status st = settings->beside ? open_below(t, settings) : GM_OK;
    if (st == GM_OK && has_ring(t)) st = take_ring(t, settings->ring);
    if (st == GM_OK && has_ring(t) && !t->below && dev->backend->has_data) st = gm_disk_open(&disk, &t->disk);
    if (st == GM_OK) *out = t;
    else gm_tier_release(t);
    return st;
}

void gm_tier_retain(gm_tier *t) { t->refs++; }

void gm_tier_release(gm_tier *t)
{
    if (!t || --t->refs) return;
    gm_passages_free(t->ways);
    gm_tier_release(t->below);
    gm_disk_close(t->disk);
    gm_space_free(&t->ring);
    gm_order_free(&t->order);
    free(t->objects);
    if (t->block) gm_pool_release(t->device->pool, t->block);
    free(t);
}

/* ---- bytes that come and go ---- */

static void leave_ring(object *o)
{
    gm_space_give_back(&o->tier->ring, o);
    o->tier->stats.resident -= o->room;
    o->memory = NULL;
    o->state = RESTING;
}

/* Ends the transfer that is under way; bytes that could not come leave the ring. */
static gm_status settle(object *o)
{
    gm_status st = gm_object_settle(o);
    if (o->state == COMING) o->tier->coming -= o->room;
    if (st == GM_OK || o->opens) o->state = HERE;
    else leave_ring(o);
    return st;
}

static gm_status evict(object *o)
{
    GM_TRY(settle(o));
    leave_ring(o);
    return GM_OK;
}

/* When an object was used, for bytes that are needed now. What is open stays; what was fetched ahead leaves last. */
static uint64_t used_by(const void *owner)
{
    const object *o = owner;
    if (o->opens) return GM_SPACE_STAYS;
    return o->state == COMING ? GM_SPACE_STAYS - 1 : o->used;
}

/* The same for bytes that are fetched ahead: nothing is waited for. */
static uint64_t used_at_ease(const void *owner)
{
    const object *o = owner;
    if (o->opens || o->state == COMING) return GM_SPACE_STAYS;
    return !o->transfer || gm_disk_is_done(o->tier->disk, o->transfer) ? o->used : GM_SPACE_STAYS;
}

/* Makes a gap in the ring. *made false: what is there has to stay. */
static gm_status make_gap(gm_tier *t, size_t bytes, bool wait, bool *made)
{
    int first, n = gm_space_window(&t->ring, bytes, wait ? used_by : used_at_ease, &first);
    *made = n > 0;
    for (; n > 0; n--) GM_TRY(evict(t->ring.parts[first].owner)); /* the next one moves to its index */
    return GM_OK;
}

static gm_status place(object *o, bool wait, bool *placed)
{
    gm_tier *t = o->tier;
    bool     made;
    size_t   at;
    GM_TRY(gm_space_take(&t->ring, o->room, o, placed, &at));
    if (!*placed) {
        GM_TRY(make_gap(t, o->room, wait, &made));
        if (made) GM_TRY(gm_space_take(&t->ring, o->room, o, placed, &at));
    }
    char amount[32], size[32];
    if (!*placed && wait)
        return GM_FAIL(GM_ENOMEM,
                       "offload: %s do not fit into the ring of %s beside what is in use; give offload.ring more",
                       gm_disk_amount(o->room, amount), gm_disk_amount(t->ring.size, size));
    if (!*placed) return GM_OK;
    t->stats.resident += o->room;
    if (t->stats.resident > t->stats.resident_peak) t->stats.resident_peak = t->stats.resident;
    o->memory = t->memory ? t->memory + at : NULL;
    o->state = HERE;
    o->used = ++t->clock;
    return GM_OK;
}

static gm_status begin(object *o, bool wait, bool *placed)
{
    gm_tier *t = o->tier;
    GM_TRY(place(o, wait, placed));
    if (!*placed || o->blank) return GM_OK;
    gm_status st = gm_object_read(o);
    if (st != GM_OK) {
        (void)gm_object_settle(o);
        leave_ring(o);
        return st;
    }
    o->state = COMING;
    t->coming += o->room;
    t->stats.fetched++;
    return GM_OK;
}

/* Fetches x ahead, if it is away and there is room for it; *more: whether others may follow. */
static gm_status fetch(object *x, uint64_t *span, bool *more)
{
    gm_tier *t = x->tier;
    bool     placed;
    *span += x->room;
    *more = *span <= t->ring.size / 2;
    if (!*more || x->state != RESTING || x->blank) return GM_OK;
    *more = !t->coming || t->coming + x->room <= t->ring.size / 4;
    if (!*more) return GM_OK;
    GM_TRY(begin(x, false, &placed));
    *more = placed;
    return GM_OK;
}

/* o is needed: what came behind it in the step before comes ahead, or what lies below it on the stack. */
static gm_status look_ahead(object *o, bool was_away)
{
    gm_tier *t = o->tier;
    uint64_t span = o->room;
    bool     more = true;
    if (o->place < 0) {
        for (object *x = was_away ? o->under : NULL; x && more; x = x->under) GM_TRY(fetch(x, &span, &more));
        return GM_OK;
    }
    gm_order_note(&t->order, o->place, 8 * t->n_objects + 64);
    for (int k = 0, place; more && (place = gm_order_next(&t->order, k)) >= 0; k++)
        if (t->objects[place]) GM_TRY(fetch(t->objects[place], &span, &more));
    return GM_OK;
}

static gm_status open_object(gm_home *home)
{
    object *o = (object *)home;
    bool    placed, was_away = o->state == RESTING || o->state == COMING;
    if (!has_ring(o->tier) || o->opens) {
        o->opens++;
        return GM_OK;
    }
    if (!was_away) o->tier->stats.kept++;
    if (o->tier->ways) GM_TRY(gm_passages_pump(o->tier->ways));
    if (o->state == RESTING) GM_TRY(begin(o, true, &placed));
    if (o->state == COMING) GM_TRY(settle(o));
    o->storage->data = o->memory;
    o->changed = false;
    o->opens = 1; /* before others come, which must not take its place */
    o->used = ++o->tier->clock;
    gm_status st = look_ahead(o, was_away);
    if (st == GM_OK) return GM_OK;
    o->opens = 0;
    o->storage->data = NULL;
    return st;
}

static void close_object(gm_home *home, bool changed)
{
    object  *o = (object *)home;
    gm_tier *t = o->tier;
    o->changed |= changed;
    if (--o->opens || !has_ring(t)) return;
    o->storage->data = NULL;
    if (!o->changed) return;
    if (settle(o) != GM_OK) return; /* the disk is broken, and says so to whoever opens one of its objects next */
    o->blank = false;
    t->stats.stored++;
    if (gm_object_write(o) == GM_OK) o->state = GOING;
    else (void)gm_object_settle(o), leave_ring(o);
}

static void leave_stack(object *o)
{
    if (o->place >= 0) {
        o->tier->objects[o->place] = NULL;
        return;
    }
    if (o->under) o->under->over = o->over;
    if (o->over) o->over->under = o->under;
    else o->tier->top = o->under;
}

static void gone(gm_home *home)
{
    object  *o = (object *)home;
    gm_tier *t = o->tier;
    if (o->state != RESTING) (void)evict(o);
    leave_stack(o);
    if (t->disk) gm_disk_give_back(t->disk, o->at, o->room);
    gm_tensor_release(o->below);
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
    if (o->blank) return GM_OK;
    GM_TRY(place(o, true, &placed));
    if (o->memory) GM_TRY(gm_device_copy(o->tier->device, o->memory, s->data, s->bytes));
    if (o->memory && !o->tier->below) memset(o->memory + s->bytes, 0, o->room - s->bytes);
    gm_storage_vacate(s);
    o->opens = 1;
    close_object(&o->home, true);
    return GM_OK;
}

/* A place in the list of objects. */
static gm_status find_place(gm_tier *t, int *place)
{
    for (*place = 0; *place < t->n_objects && t->objects[*place]; (*place)++) continue;
    if (*place < t->n_objects) return GM_OK;
    object **more = realloc(t->objects, (size_t)(t->n_objects + 1) * sizeof *more);
    if (!more) return GM_FAIL(GM_ENOMEM, "no memory for what is offloaded");
    t->objects = more;
    t->objects[t->n_objects++] = NULL;
    return GM_OK;
}

static void join_stack(object *o)
{
    o->place = -1;
    o->under = o->tier->top;
    if (o->under) o->under->over = o;
    o->tier->top = o;
}

static void count(object *o)
{
    gm_tier *t = o->tier;
    o->storage->home = &o->home;
    if (o->place >= 0) t->objects[o->place] = o;
    else join_stack(o);
    t->refs++;
    t->stats.objects++;
    t->stats.placed += o->room;
    if (t->stats.placed > t->stats.placed_peak) t->stats.placed_peak = t->stats.placed;
}

/* Space for what will rest. */
static gm_status reserve(object *o)
{
    gm_tier *t = o->tier;
    int64_t  bytes = (int64_t)o->storage->bytes;
    if (t->disk) return gm_disk_reserve(t->disk, o->room, &o->at);
    return t->below ? gm_tier_new_tensor(t->below, t->below->device, GM_U8, 1, &bytes, &o->below) : GM_OK;
}

static gm_status take(gm_tier *t, gm_storage *s, int place)
{
    if (s->home) return GM_FAIL(GM_EINVAL, "offload: these bytes rest elsewhere already");
    if (s->opens) return GM_FAIL(GM_EINVAL, "offload: these bytes are in use");
    uint64_t room = has_ring(t) ? gm_tier_pages(s->bytes) : s->bytes;
    GM_TRY(gm_tier_check_limit(t, room));
    if (!has_ring(t)) GM_TRY(gm_storage_occupy(s)); /* the bytes stay where they are */
    object *o = calloc(1, sizeof *o);
    if (!o) return GM_FAIL(GM_ENOMEM, "no memory for what is offloaded");
    *o = (object){.home = {open_object, close_object, gone}, .tier = t, .storage = s, .room = room, .place = place};
    o->blank = !s->block;
    gm_status st = reserve(o);
    if (st == GM_OK && has_ring(t)) {
        st = move_in(o);
        if (st != GM_OK && t->disk) gm_disk_give_back(t->disk, o->at, room);
    }
    if (st == GM_OK) return count(o), GM_OK;
    gm_tensor_release(o->below);
    free(o);
    return st;
}

gm_status gm_tier_take(gm_tier *t, gm_storage *s)
{
    int at;
    GM_TRY(find_place(t, &at));
    return take(t, s, at);
}

gm_status gm_tier_new_tensor(gm_tier *t, gm_device *dev, gm_dtype dtype, int ndim, const int64_t *shape,
                             gm_tensor **out)
{
    GM_TRY(gm_tensor_new_absent(dev, dtype, ndim, shape, out));
    gm_status st = gm_tier_take(t, (*out)->storage);
    if (st == GM_OK) return GM_OK;
    gm_tensor_release(*out);
    *out = NULL;
    return st;
}

gm_status gm_tier_push(gm_tier *t, gm_storage *s) { return take(t, s, -1); }

/* The object of a storage that rests in a disk's tier, or NULL. */
static object *object_of(const gm_storage *s)
{
    if (!s->home || s->home->open != open_object) return NULL;
    object *o = (object *)s->home;
    return has_ring(o->tier) ? o : NULL;
}

gm_device *gm_tier_device(const gm_tier *t) { return t->device; }

bool gm_tier_holds(const gm_storage *s) { return object_of(s) != NULL; }

uint64_t gm_tier_unit(const gm_tier *t) { return t && has_ring(t) ? t->ring.size / 4 : UINT64_MAX; }

uint64_t gm_tier_needs(const gm_storage *s)
{
    const object *o = object_of(s);
    return o ? o->room : 0;
}

gm_status gm_tier_begin(gm_storage *s)
{
    object *o = object_of(s);
    bool    placed;
    return o && o->state == RESTING && !o->blank ? begin(o, false, &placed) : GM_OK;
}

void gm_tier_discard(gm_storage *s)
{
    object *o = object_of(s);
    if (!o || o->opens) return;
    if (o->state != RESTING) (void)evict(o); /* a disk that has failed says so to whoever opens what rests there */
    o->blank = true;
}

bool gm_tier_is_here(const gm_storage *s)
{
    const object *o = object_of(s);
    if (!o || o->state == HERE || o->state == GOING) return true;
    return o->state == COMING && (!o->transfer || gm_disk_is_done(o->tier->disk, o->transfer));
}

void gm_tier_end_step(gm_tier *t) { gm_order_end(&t->order); }

gm_status gm_tier_settle(gm_tier *t)
{
    for (int i = 0; i < t->ring.n; i++) {
        object *o = t->ring.parts[i].owner;
        if (o && o->state == GOING) GM_TRY(settle(o));
    }
    if (t->ways) GM_TRY(gm_passages_drain(t->ways));
    return t->below ? gm_tier_settle(t->below) : GM_OK;
}
