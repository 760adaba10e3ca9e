/* stored.c - see stored.h. */
#include "stored.h"

#include <stdlib.h>
#include <string.h>
#include "../autograd/padding.h"
#include "../autograd/tape.h"
#include "../tier/order.h"
#include "parts.h"

#define PATH "parameters" /* in place of a module path, in accounts: a gather ahead belongs to no module that runs */

typedef struct unit {
    gm_home           home; /* of the block's storage; first */
    struct gm_stored *set;
    gm_parts          parts;
    gm_tensor         block; /* a header without a reference to its storage, which owns this unit */
    gm_tensor        *part;  /* what rests; counted */
    enum { ABSENT, UNDER_WAY, ARRIVED, PRESENT } state; /* ARRIVED: gathered beside the block, not unpacked */
    gm_pending *pending;                                /* UNDER_WAY */
    gm_tensor  *all;                                    /* UNDER_WAY, ARRIVED: the parts of all owners; counted */
    unsigned    version; /* PRESENT: of the storage when it had the numbers of the parts */
    uint64_t    used;    /* the number of the last use */
    int         place;   /* among the units */
    int64_t     bytes;   /* of the block */
    bool        gone;    /* its parameter was freed: see forget */
    bool        moving;  /* the block is being read or written by this file, which is no use of it */
} unit;

struct gm_stored {
    unit   **units; /* NULL: has gone */
    int      n, room;
    int      first; /* of this mesh: those before it belong to others */
    uint64_t uses;
    int64_t  keep, ahead;        /* as given */
    int64_t  largest;            /* bytes of the largest block of this mesh */
    int64_t  present, under_way; /* bytes of blocks */
    gm_order order;              /* in which blocks were needed, by place */
};

static int64_t keep_of(const struct gm_stored *s) { return s->keep < 0 ? 2 * s->largest : s->keep; }
static int64_t ahead_of(const struct gm_stored *s) { return s->ahead < 0 ? s->largest : s->ahead; }

/* ---- one block comes and goes ---- */

/* The tensor in which the parts of all owners arrive: the block itself where that is what they are. */
static gm_status place_of_all(unit *u, const gm_group *g, gm_tensor **out)
{
    int64_t n = gm_parts_numel(&u->parts) * gm_group_size(g);
    if (!gm_parts_are_block(&u->parts, g)) return gm_tensor_new(u->block.storage->device, u->block.dtype, 1, &n, out);
    GM_TRY(gm_storage_occupy(u->block.storage));
    return gm_parts_flatten(&u->block, out);
}

static gm_status begin_now(unit *u)
{
    gm_comm   *comm;
    gm_group  *g;
    gm_tensor *mine = NULL;
    gm_status  st;
    GM_TRY(gm_parts_group(&u->parts, &comm, &g));
    gm_rank_place(u->parts.rank, "parameter");
    GM_TRY(place_of_all(u, g, &u->all));
    GM_TRY_OR(gm_parts_flatten(u->part, &mine), st, done);
    unsigned version = u->block.storage->version;
    st = gm_comm_all_gather(comm, g, mine, 0, u->all, &u->pending);
    u->block.storage->version = version; /* what comes is what was there */
done:
    gm_tensor_release(mine);
    if (st != GM_OK) {
        gm_tensor_release(u->all);
        u->all = NULL;
        gm_storage_vacate(u->block.storage);
        return st;
    }
    u->state = UNDER_WAY;
    u->set->under_way += u->bytes;
    return GM_OK;
}

/* Starts to gather the block. */
static gm_status begin(unit *u)
{
    char *path;
    GM_TRY(gm_rank_enter_path(u->parts.rank, PATH, &path));
    u->moving = true;
    gm_status st = begin_now(u);
    u->moving = false;
    gm_rank_leave_path(u->parts.rank, path);
    return st;
}

static gm_status unpack(unit *u)
{
    gm_attrs  zero = gm_attrs_default();
    gm_status st = GM_OK;
    gm_comm  *comm;
    gm_group *g;
    if (u->all->storage == u->block.storage) return GM_OK;
    GM_TRY(gm_parts_group(&u->parts, &comm, &g));
    gm_rank_place(u->parts.rank, "parameter");
    GM_TRY(gm_storage_occupy(u->block.storage));
    u->moving = true;
    if (u->parts.len * gm_group_size(g) != u->parts.n) /* parts end before the block does */
        st = gm_run_one(u->block.storage->device, GM_OP_fill, &zero, NULL, &u->block);
    if (st == GM_OK) st = gm_parts_copy(&u->parts, g, &u->block, u->all, gm_parts_numel(&u->parts), 0, false);
    u->moving = false;
    return st;
}

/* The block has the numbers of the parts. What they arrived in goes last: where that is the block itself, it may be all
 * that still kept a storage whose parameter was freed (forget). */
static void is_there(unit *u)
{
    gm_tensor *all = u->all;
    u->all = NULL;
    u->state = PRESENT;
    u->version = u->block.storage->version;
    gm_tensor_release(all);
}

/* Waits for what is under way. */
static gm_status arrive(unit *u)
{
    if (u->state != UNDER_WAY) return GM_OK;
    gm_status st = u->gone ? GM_OK : gm_comm_finish(u->parts.rank->comm, &u->pending);
    u->set->under_way -= u->bytes;
    u->set->present += u->bytes;
    u->state = ARRIVED;
    if (st == GM_OK && u->all && u->all->storage == u->block.storage) is_there(u);
    return st;
}

/* Waits for the block. A failure for want of memory leaves it as it is, so that a second call goes on. */
static gm_status finish(unit *u)
{
    GM_TRY(arrive(u));
    if (u->state == PRESENT) return GM_OK;
    GM_TRY(unpack(u));
    is_there(u);
    return GM_OK;
}

/* What was written into the block becomes what rests. */
static gm_status write_back(unit *u)
{
    gm_storage *s = u->block.storage;
    if (u->state != PRESENT || u->version == s->version) return GM_OK;
    u->moving = true;
    gm_status st = gm_parts_copy_own(&u->parts, &u->block, u->part, 0, true);
    u->moving = false;
    if (st == GM_OK) u->version = s->version;
    return st;
}

static void free_unit(unit *u)
{
    u->set->units[u->place] = NULL;
    free(u);
}

/* The block goes; what is under way is waited for, because every owner takes part in it. As in is_there, what was to
 * arrive goes last. */
static gm_status leave(unit *u)
{
    gm_status  st = GM_OK;
    gm_tensor *all = u->all;
    if (u->state == ABSENT) return GM_OK;
    if (u->gone) {
        u->set->present -= u->bytes;
        free_unit(u);
        return GM_OK;
    }
    if (u->state == UNDER_WAY) {
        st = gm_comm_finish(u->parts.rank->comm, &u->pending);
        u->set->under_way -= u->bytes;
    } else {
        st = write_back(u);
        u->set->present -= u->bytes;
    }
    u->all = NULL;
    u->state = ABSENT;
    gm_storage_vacate(u->block.storage);
    gm_tensor_release(all);
    return st;
}

/* ---- which blocks stay, and which come next ---- */

static bool may_leave(const unit *u)
{
    return u && (u->state == PRESENT || u->state == ARRIVED) && (u->gone || !u->block.storage->opens);
}

/* Blocks leave, the least recently used first, until `more` bytes may come beside those that stay. */
static gm_status make_room(struct gm_stored *s, int64_t more)
{
    while (s->present && s->present + more > keep_of(s)) {
        unit *oldest = NULL;
        for (int i = 0; i < s->n; i++)
            if (may_leave(s->units[i]) && (!oldest || s->units[i]->used < oldest->used)) oldest = s->units[i];
        if (!oldest) return GM_OK;
        GM_TRY(leave(oldest));
    }
    return GM_OK;
}

/* Gathers ahead what comes next, while there is room. */
static gm_status look_ahead(struct gm_stored *s)
{
    for (int k = 0, place; s->ahead && (place = gm_order_next(&s->order, k)) >= 0; k++) {
        unit *u = s->units[place];
        if (!u || u->state != ABSENT) continue;
        if (s->under_way && s->under_way + u->bytes > ahead_of(s)) return GM_OK;
        GM_TRY(begin(u));
    }
    return GM_OK;
}

static gm_status open_block(gm_home *home)
{
    unit             *u = (unit *)home;
    struct gm_stored *s = u->set;
    if (u->moving) return GM_OK;
    u->used = ++s->uses;
    if (u->state == PRESENT) return GM_OK;
    if (u->state != ARRIVED) {
        gm_order_note(&s->order, u->place, 4 * (s->n - s->first) + 16); /* several passes: those of an evaluation */
        GM_TRY(make_room(s, u->bytes));
    }
    if (u->state == ABSENT) GM_TRY(begin(u));
    GM_TRY(finish(u));
    return look_ahead(s);
}

static void close_block(gm_home *home, bool changed) /* versions tell what has changed */
{
    (void)home;
    (void)changed;
}

/* ---- updates ---- */

static gm_status settle(gm_storage *s) { return write_back((unit *)s->home); }

static gm_status arrive_all(struct gm_stored *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->units[i]) GM_TRY(arrive(s->units[i]));
    return GM_OK;
}

static gm_status discard(gm_storage *s)
{
    unit *u = (unit *)s->home;
    if (s->opens && u->state == PRESENT)
        return GM_FAIL(GM_EINVAL, "a parameter is updated while its numbers are held, by gm.gathered or by a transfer "
                                  "that is under way; end that first");
    if (u->set->order.now.n) GM_TRY(arrive_all(u->set)); /* a step has ended */
    gm_order_end(&u->set->order);
    u->version = s->version; /* what was in the block is old, and goes without being written back */
    return leave(u);
}

/* The storage is being freed, because its parameter was, by a collector, which does so at another time on each rank;
 * one into which something arrives is freed when that is there. All ranks must let the same blocks leave, so this one
 * counts as if it were there until it would have left. */
static void forget(gm_home *home)
{
    unit *u = (unit *)home;
    if (u->state == UNDER_WAY && u->parts.rank->comm) gm_comm_drop(u->parts.rank->comm, u->pending);
    gm_tensor_release(u->all);
    gm_tensor_release(u->part);
    u->gone = true;
    if (u->state == ABSENT) free_unit(u);
}

/* Another mesh: what is under way belongs to groups of the old one, and in the new one ranks share other parameters.
 * Each may know something else of what came next, how many there were and how large, so that counts no more. Blocks of
 * the old mesh leave before all others. */
static gm_status mesh_ends(struct gm_stored *s)
{
    GM_TRY(arrive_all(s));
    gm_order_free(&s->order);
    s->first = s->n;
    s->largest = 0;
    return GM_OK;
}

/* ---- making ---- */

/* What has arrived and was not used goes, and with it storages that nothing else kept. */
static void free_set(struct gm_stored *s)
{
    for (int i = 0; i < s->n; i++) {
        unit *u = s->units[i];
        if (!u) continue;
        if (u->gone) {
            free(u);
            continue;
        }
        gm_tensor *all = u->all;
        u->all = NULL;
        u->state = ABSENT;
        gm_tensor_release(all);
    }
    free(s->units);
    gm_order_free(&s->order);
    free(s);
}

/* The rank's set, made on first use; NULL: no memory. */
static struct gm_stored *set_of(gm_rank *r)
{
    if (!r->stored && (r->stored = calloc(1, sizeof *r->stored))) {
        r->stored->keep = r->stored->ahead = -1;
        r->free_stored = free_set;
        r->stored_settle = settle;
        r->stored_discard = discard;
        r->stored_arrive = arrive_all;
        r->stored_mesh_ends = mesh_ends;
    }
    return r->stored;
}

static gm_status add_unit(struct gm_stored *s, unit *u)
{
    if (s->n == s->room) {
        int    room = s->room ? 2 * s->room : 64;
        unit **more = realloc(s->units, (size_t)room * sizeof *more);
        if (!more) return GM_FAIL(GM_ENOMEM, "no memory for a list of %d stored parameters", room);
        s->units = more;
        s->room = room;
    }
    u->set = s;
    u->place = s->n;
    s->units[s->n++] = u;
    if (u->bytes > s->largest) s->largest = u->bytes;
    return GM_OK;
}

/* The part of this rank, with zeros behind its rows. */
static gm_status take_part(unit *u)
{
    gm_attrs   zero = gm_attrs_default();
    gm_device *dev = u->block.storage->device;
    gm_rank_place(u->parts.rank, "parameter");
    GM_TRY(gm_tensor_new(dev, u->block.dtype, u->parts.ndim, u->parts.part, &u->part));
    GM_TRY(gm_run_one(dev, GM_OP_fill, &zero, NULL, u->part));
    return gm_parts_copy_own(&u->parts, &u->block, u->part, 0, true);
}

static gm_status store(gm_value *leaf, const gm_parts *parts)
{
    struct gm_stored *s = set_of(leaf->rank);
    gm_parameter     *p;
    gm_status         st;
    if (!s) return GM_FAIL(GM_ENOMEM, "no memory for stored parameters");
    GM_TRY(gm_value_parameter(leaf, &p));
    unit *u = calloc(1, sizeof *u);
    if (!u) return GM_FAIL(GM_ENOMEM, "no memory for a stored parameter");
    u->home = (gm_home){open_block, close_block, forget};
    u->parts = *parts;
    u->block = *leaf->local;
    u->bytes = (int64_t)u->block.storage->bytes;
    GM_TRY_OR(take_part(u), st, fail);
    GM_TRY_OR(add_unit(s, u), st, fail);
    p->stored = u->part;
    p->owned = parts->owned;
    gm_tensor_retain(u->part);
    leaf->local->storage->home = &u->home;
    gm_storage_vacate(leaf->local->storage);
    return GM_OK;
fail:
    gm_tensor_release(u->part);
    free(u);
    return st;
}

gm_status gm_parameter_store(gm_value *leaf, uint32_t owners, int64_t least)
{
    gm_parts         parts;
    const gm_tensor *t = leaf->local;
    if (leaf->node)
        return GM_FAIL(GM_EINVAL, "store: this tensor was computed by '%s'; only parameters rest in parts",
                       gm_node_name(leaf->node));
    if (leaf->param && leaf->param->stored) return GM_OK;
    gm_parts_find(leaf, owners, &parts);
    if (!parts.owners || gm_tensor_numel(t) < least || !gm_tensor_numel(t)) return GM_OK;
    if (t->offset || !gm_tensor_is_contiguous(t) ||
        t->storage->bytes != (size_t)gm_tensor_numel(t) * gm_dtype_size(t->dtype))
        return GM_FAIL(GM_EINVAL, "store: the parameter is a view of a larger tensor, which cannot rest in parts");
    GM_TRY(gm_padding_renew(leaf));
    return store(leaf, &parts);
}

gm_status gm_stored_limits(gm_rank *r, int64_t keep, int64_t ahead)
{
    struct gm_stored *s = set_of(r);
    if (!s) return GM_FAIL(GM_ENOMEM, "no memory for stored parameters");
    s->keep = keep;
    s->ahead = ahead;
    return GM_OK;
}

gm_status gm_parameter_rest(gm_value *leaf, gm_tier *tier, size_t least)
{
    gm_tensor *t = leaf->param && leaf->param->stored ? leaf->param->stored : leaf->local;
    if (leaf->node)
        return GM_FAIL(GM_EINVAL, "offload: this tensor was computed by '%s'; only parameters rest in a tier",
                       gm_node_name(leaf->node));
    if (gm_tier_holds(t->storage) || t->storage->bytes < least || !t->storage->bytes) return GM_OK;
    if (t->offset || t->storage->bytes != (size_t)gm_tensor_numel(t) * gm_dtype_size(t->dtype))
        return GM_FAIL(GM_EINVAL, "offload: the parameter is a view of a larger tensor, which cannot rest in a tier");
    return gm_tier_take(tier, t->storage);
}
