/* rank.c - see rank.h. */
#include "rank.h"

#include <stdlib.h>
#include <string.h>
#include "../../kernels/arena.h"
#include "../../kernels/philox.h"
#include "../comm/comm.h"
#include "../comm/join.h"
#include "../job/link.h"
#include "../job/signals.h"
#include "../tier/tier.h"

typedef struct gm_site {
    uint64_t path; /* hash; 0: free */
    uint64_t calls;
} gm_site;

gm_status gm_rank_make(gm_rank **out)
{
    gm_rank *r = calloc(1, sizeof *r);
    if (!r) return GM_FAIL(GM_ENOMEM, "no memory for a rank");
    r->world = 1;
    r->mesh = gm_mesh_of_one();
    r->seed = 1024;
    r->path_room = 256;
    r->site_room = 256;
    r->path = calloc(1, r->path_room);
    r->sites = calloc(r->site_room, sizeof *r->sites);
    if (r->path && r->sites) return *out = r, GM_OK;
    gm_rank_end(r);
    return GM_FAIL(GM_ENOMEM, "no memory for a rank");
}

void gm_rank_end(gm_rank *r)
{
    gm_rank_scale_losses(r, NULL);
    gm_rank_rest(r, NULL, false, false, 0);
    gm_comm_free(r->comm, false); /* scratch of operations comes from the device's pool */
    if (r->stored) r->free_stored(r->stored);
    gm_device_free(r->beside);
    gm_device_free(r->other);
    gm_device_free(r->device);
    gm_arena_free(r->arena);
    if (r->plans) r->free_plans(r->plans);
    free(r->path);
    free(r->sites);
    free(r);
}

void gm_rank_rest(gm_rank *r, struct gm_tier *tier, bool gradients, bool activations, size_t least)
{
    if (tier) gm_tier_retain(tier);
    gm_tier_release(r->rests.tier);
    r->rests.tier = tier;
    r->rests.gradients = tier && gradients;
    r->rests.activations = tier && activations;
    r->rests.least = least;
}

/* ---- the world ---- */

static void use_mesh(gm_rank *r, const gm_mesh *mesh)
{
    r->mesh = *mesh;
    if (r->plans) r->free_plans(r->plans);
    r->plans = NULL;
    gm_mesh_coordinates(&r->mesh, r->rank, r->coordinate);
}

static bool stop_is_pending(void *context)
{
    (void)context;
    return gm_signals_pending() != GM_STOP_NONE;
}

/* The comm over a transport (taken, also on failure), all of whose ranks are one axis. */
static gm_status connect_over(gm_rank *r, gm_transport *t)
{
    gm_mesh   mesh = gm_mesh_of_one();
    int       rank = t->rank, world = t->world;
    gm_status st = world > 1 ? gm_mesh_add_axis(&mesh, "data", world) : GM_OK;
    if (st != GM_OK) {
        t->close(t, false);
        return st;
    }
    GM_TRY(gm_comm_new(t, &mesh, &r->comm));
    gm_comm_set_interrupt(r->comm, stop_is_pending, NULL);
    gm_comm_set_note(r->comm, gm_link_note());
    gm_comm_set_place(r->comm, (const char *const *)&r->path);
    r->rank = rank;
    r->world = world;
    use_mesh(r, &mesh);
    return GM_OK;
}

static gm_status check_free(const gm_rank *r)
{
    if (!r->comm) return GM_OK;
    return GM_FAIL(GM_EINVAL, "this rank is connected already (%s, rank %d of %d)", gm_comm_transport(r->comm), r->rank,
                   r->world);
}

gm_status gm_rank_connect(gm_rank *r, const gm_join *how)
{
    gm_transport *t;
    gm_launched   l;
    gm_join       h = *how;
    GM_TRY(check_free(r));
    GM_TRY(gm_launched_find(&l));
    if (l.world == 1) return GM_OK;
    h.stop = stop_is_pending;
    GM_TRY(gm_transport_join(&l, &h, &t));
    return connect_over(r, t);
}

gm_status gm_rank_connect_over(gm_rank *r, gm_transport *t)
{
    gm_status st = check_free(r);
    if (st == GM_OK) return connect_over(r, t);
    t->close(t, false);
    return st;
}

gm_status gm_rank_pretend(gm_rank *r, int rank, int world)
{
    gm_transport *t;
    GM_TRY(check_free(r));
    GM_TRY(gm_transport_meta(rank, world, &t));
    return connect_over(r, t);
}

gm_mesh gm_rank_mesh(const gm_rank *r)
{
    gm_mesh mesh = r->mesh;
    if (gm_mesh_size(&mesh) == r->world) return mesh;
    mesh = gm_mesh_of_one();
    (void)gm_mesh_add_axis(&mesh, "data", r->world);
    return mesh;
}

gm_status gm_rank_set_mesh(gm_rank *r, const gm_mesh *mesh)
{
    if (gm_mesh_size(mesh) != r->world)
        return GM_FAIL(GM_EINVAL, "a mesh of %d ranks for a world of %d", gm_mesh_size(mesh), r->world);
    if (r->stored) GM_TRY(r->stored_mesh_ends(r->stored));
    if (r->comm) GM_TRY(gm_comm_set_mesh(r->comm, mesh));
    use_mesh(r, mesh);
    return GM_OK;
}

gm_status gm_rank_comm(gm_rank *r, gm_comm **out)
{
    if (!r->comm && r->world > 1)
        return GM_FAIL(GM_EINVAL, "the ranks of this job have parted (comm_close); nothing can be sent any more");
    if (!r->comm) {
        gm_transport *t;
        gm_mesh       mesh = r->mesh;
        GM_TRY(gm_transport_self(&t));
        GM_TRY(connect_over(r, t));
        GM_TRY(gm_rank_set_mesh(r, &mesh));
    }
    *out = r->comm;
    return GM_OK;
}

/* ---- the device ---- */

gm_status gm_rank_share_memory(gm_rank *r, bool on, char *said, size_t size)
{
    gm_comm *c;
    GM_TRY(gm_rank_comm(r, &c));
    if (r->stored) GM_TRY(r->stored_arrive(r->stored)); /* nobody else would wait for what ZeRO gathers ahead */
    GM_TRY(gm_comm_share_memory(c, on, &r->arena, said, size));
    r->shares = r->arena && gm_comm_shares_memory(c);
    if (r->device) gm_device_share(r->device, r->shares ? r->arena : NULL);
    return GM_OK;
}

gm_status gm_rank_poll(gm_rank *r) { return r->comm && gm_comm_under_way(r->comm) ? gm_comm_poll(r->comm) : GM_OK; }

/* Messages move when somebody looks: products do, between pieces of their work. What fails is found by who waits. */
static void look_after_messages(void *rank) { (void)gm_rank_poll(rank); }

gm_status gm_rank_open_device(gm_rank *r, const char *backend, int threads)
{
    if (r->device)
        return GM_FAIL(GM_EINVAL, "the device is open already (%s); choose it before the first tensor is made",
                       r->device->backend->name);
    GM_TRY(gm_device_new(backend, threads, &r->device));
    r->threads = threads;
    if (r->shares) gm_device_share(r->device, r->arena);
    if (r->device->threads) gm_threads_set_meanwhile(r->device->threads, look_after_messages, r);
    return GM_OK;
}

bool gm_rank_is_apart(const gm_rank *r)
{
    const gm_backend *b = r->device ? r->device->backend : NULL;
    return b && !b->on_host && (b->has_data || r->apart);
}

gm_status gm_rank_beside(gm_rank *r, gm_device **out)
{
    if (!r->beside) {
        GM_TRY(gm_device_new_beside(r->device, r->threads, &r->beside));
        if (r->beside->threads) gm_threads_set_meanwhile(r->beside->threads, look_after_messages, r);
    }
    *out = r->beside;
    return GM_OK;
}

gm_status gm_rank_device(gm_rank *r, gm_device **out)
{
    if (!r->device) GM_TRY(gm_rank_open_device(r, "cpu", 0));
    *out = r->device;
    return GM_OK;
}

void gm_rank_scale_losses(gm_rank *r, gm_tensor *scale)
{
    if (scale) gm_tensor_retain(scale);
    gm_tensor_release(r->loss_scale);
    r->loss_scale = scale;
}

gm_status gm_rank_set_path(gm_rank *r, const char *path)
{
    size_t need = strlen(path) + 1;
    if (need > r->path_room) {
        char *room = realloc(r->path, 2 * need);
        if (!room) return GM_FAIL(GM_ENOMEM, "no memory for a module path");
        r->path = room;
        r->path_room = 2 * need;
    }
    memcpy(r->path, path, need);
    return GM_OK;
}

gm_status gm_rank_enter_path(gm_rank *r, const char *path, char **before)
{
    char     *kept = strdup(r->path);
    gm_status st = kept ? gm_rank_set_path(r, path) : GM_FAIL(GM_ENOMEM, "no memory for a module path");
    if (st == GM_OK) *before = kept;
    else free(kept);
    return st;
}

void gm_rank_leave_path(gm_rank *r, char *before)
{
    strcpy(r->path, before); /* fits: the room never shrinks */
    free(before);
}

void gm_rank_place(gm_rank *r, const char *op) { gm_pool_set_place(r->device->pool, r->path, op); }

static gm_site *find_site(gm_site *sites, uint32_t room, uint64_t path)
{
    uint32_t i = (uint32_t)path & (room - 1);
    while (sites[i].path && sites[i].path != path) i = (i + 1) & (room - 1);
    return &sites[i];
}

static gm_status grow_sites(gm_rank *r)
{
    uint32_t room = 2 * r->site_room;
    gm_site *sites = calloc(room, sizeof *sites);
    if (!sites) return GM_FAIL(GM_ENOMEM, "no memory for the table of random sites");
    for (uint32_t i = 0; i < r->site_room; i++)
        if (r->sites[i].path) *find_site(sites, room, r->sites[i].path) = r->sites[i];
    free(r->sites);
    r->sites = sites;
    r->site_room = room;
    return GM_OK;
}

gm_status gm_rank_next_stream(gm_rank *r, uint32_t purpose, gm_stream *out)
{
    uint64_t path = gm_hash_text(GM_HASH_START, r->path) | 1; /* never the mark of a free entry */
    if (2 * r->n_sites >= r->site_room) GM_TRY(grow_sites(r));
    gm_site *s = find_site(r->sites, r->site_room, path);
    if (!s->path) {
        *s = (gm_site){.path = path};
        r->n_sites++;
    }
    *out = (gm_stream){.key = gm_stream_key(r->seed, purpose, gm_mix64(path + gm_mix64(s->calls))), .step = -1};
    s->calls++;
    r->drawn.calls++;
    r->drawn.keys += out->key;
    return GM_OK;
}

gm_drawn gm_rank_drawn_since(const gm_rank *r, gm_drawn then)
{
    return (gm_drawn){r->drawn.calls - then.calls, r->drawn.keys - then.keys};
}

void gm_rank_begin_step(gm_rank *r)
{
    memset(r->sites, 0, r->site_room * sizeof *r->sites);
    r->n_sites = 0;
}

gm_status gm_rank_copy_moment(const gm_rank_moment *from, gm_rank_moment *out)
{
    *out = *from;
    out->sites = malloc(from->site_room * sizeof *out->sites);
    if (!out->sites) return GM_FAIL(GM_ENOMEM, "no memory for a table of random sites");
    memcpy(out->sites, from->sites, from->site_room * sizeof *out->sites);
    return GM_OK;
}

gm_status gm_rank_remember(const gm_rank *r, gm_rank_moment *out)
{
    gm_rank_moment now = {r->sites, r->n_sites, r->site_room, r->batch_offset, r->batch_count};
    return gm_rank_copy_moment(&now, out);
}

void gm_rank_exchange(gm_rank *r, gm_rank_moment *m)
{
    gm_rank_moment now = {r->sites, r->n_sites, r->site_room, r->batch_offset, r->batch_count};
    r->sites = m->sites;
    r->n_sites = m->n_sites;
    r->site_room = m->site_room;
    r->batch_offset = m->batch_offset;
    r->batch_count = m->batch_count;
    *m = now;
}

void gm_rank_forget(gm_rank_moment *m)
{
    free(m->sites);
    m->sites = NULL;
}

gm_box gm_rank_batch_box(const gm_rank *r, int ndim, const int64_t *shape)
{
    gm_box box = {0};
    if (!r->batch_offset || !r->batch_count || !ndim || shape[0] % r->batch_count) return box;
    box.ndim = ndim;
    for (int d = 0; d < ndim; d++) box.shape[d] = shape[d];
    box.offset[0] = r->batch_offset * (shape[0] / r->batch_count);
    box.shape[0] = box.offset[0] + shape[0]; /* the first size of a shape does not enter element indices */
    return box;
}
