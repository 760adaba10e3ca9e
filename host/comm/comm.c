/* comm.c - life of a comm, its groups, settings, accounts. See comm.h and state.h. */
#include "machines.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../../kernels/clock.h"
#include "../../kernels/philox.h"

#define SPINS  64         /* turns that only look */
#define SHARED (1u << 31) /* a mark in *turns: somebody else runs on this core */

/* Ranks often share cores. A yield that took long has let others run: such a core is left to them by sleeping from then
 * on, since ranks that yield to each other in turns spend more of it on switching than on work. A core of one's own
 * is yielded, and after some milliseconds left as well. A rank sleeps for a part of the time that it has waited for: to
 * wake and look costs as much as a small op, and a long wait may end a little later. */
static double nap_of(double since, unsigned *turns)
{
    const double least = 50e-6, most = 1000e-6;
    unsigned     turn = (*turns)++;
    if ((turn & ~SHARED) < SPINS) return 0;
    double now = gm_now(), quiet = now - since;
    if (quiet < 0.002 && !(turn & SHARED)) {
        sched_yield();
        if (gm_now() - now > 5e-6) *turns |= SHARED; /* a yield to nobody takes a tenth of that */
        return 0;
    }
    double nap = quiet / (turn & SHARED ? 2 : 16);
    return nap < least ? least : nap > most ? most : nap;
}

void gm_comm_pause(double since, unsigned *turns)
{
    double nap = nap_of(since, turns);
    if (nap > 0) nanosleep(&(struct timespec){0, (long)(1e9 * nap)}, NULL);
}

/* Does something of this rank move without a message of another one? A device's work: nobody wakes a rank for it. */
static bool waits_for_device(const gm_comm *c)
{
    if (c->linked) return true;
    for (const gm_pending *p = c->under_way; p; p = p->next)
        if (p->coming) return true;
    return false;
}

/* A transport that wakes who rests makes naps needless: a rank whose core is shared rests at once. */
bool gm_comm_rest(gm_comm *c, double since, unsigned *turns)
{
    const double   longest = 0.02; /* a stop may come through another thread */
    const unsigned few = 4;
    gm_transport  *t = c->transport;
    if (t->rest && t->crowded && *turns == few) *turns = SHARED | SPINS;
    double nap = nap_of(since, turns);
    if (nap <= 0) return false;
    if (!t->rest) nanosleep(&(struct timespec){0, (long)(1e9 * nap)}, NULL);
    else t->rest(t, waits_for_device(c) ? nap : longest);
    return true;
}

#define STOPPED 1.0 /* seconds: who waits looks at the clock after 20 ms at most, unless it is stopped */

double gm_comm_quiet(gm_comm *c, double since)
{
    double now = gm_now(), looked = since > c->looked ? since : c->looked;
    if (now - looked > STOPPED) c->woke = now;
    c->looked = now;
    return now - (since > c->woke ? since : c->woke);
}

/* ---- life ---- */

gm_status gm_comm_new(gm_transport *transport, const gm_mesh *mesh, gm_comm **out)
{
    size_t   world = (size_t)transport->world;
    gm_comm *c = calloc(1, sizeof *c);
    if (c) {
        c->sent = calloc(world, sizeof *c->sent);
        c->taken = calloc(world, sizeof *c->taken);
        c->member = calloc(world, sizeof *c->member);
        c->flight = calloc(1, sizeof *c->flight);
        c->transport = transport;
    }
    if (!c || !c->sent || !c->taken || !c->member || !c->flight) {
        if (c) gm_comm_free(c, false);
        else transport->close(transport, false);
        return GM_FAIL(GM_ENOMEM, "no memory for a comm of %zu ranks", world);
    }
    c->rank = transport->rank;
    c->world = transport->world;
    c->timeout = 600;
    gm_status st = gm_comm_set_mesh(c, mesh);
    if (st != GM_OK) {
        gm_comm_free(c, false);
        return st;
    }
    *out = c;
    return GM_OK;
}

static void free_group(gm_group *g)
{
    free(g->name);
    free(g->member);
    free(g->to);
    free(g->from);
    gm_machines_free(g->machines);
    free(g);
}

void gm_comm_free(gm_comm *c, bool orderly)
{
    if (!c) return;
    if (c->linked) gm_lanes_close(c, orderly);
    gm_recorded_forget_comm(c);
    for (gm_pending *p = c->under_way, *next; p; p = next) {
        next = p->next;
        gm_pending_give_up(p);
    }
    if (!orderly) gm_notice_pass_on(c);
    c->transport->close(c->transport, orderly);
    for (gm_pending *p = c->under_way, *next; p; p = next) {
        next = p->next;
        gm_pending_free(p);
    }
    c->under_way = NULL;
    gm_comm_use_host(c);
    gm_host_copy_free(c);
    gm_pending_free_ended(c);
    for (gm_group *g = c->groups, *next; g; g = next) {
        next = g->next;
        free_group(g);
    }
    for (gm_check *k = c->checks, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    free(c->machine);
    free(c->reads);
    free(c->sent);
    free(c->taken);
    free(c->member);
    free(c->flight);
    gm_trace_free(c->trace);
    free(c);
}

gm_status gm_comm_set_mesh(gm_comm *c, const gm_mesh *mesh)
{
    if (gm_mesh_size(mesh) != c->world)
        return GM_FAIL(GM_EINVAL, "a mesh of %d ranks for a world of %d; the sizes of its axes must multiply to %d",
                       gm_mesh_size(mesh), c->world, c->world);
    if (c->n_under_way)
        return GM_FAIL(GM_EINVAL, "the mesh cannot change while %d operations are under way; wait for them first",
                       c->n_under_way);
    for (gm_group *g = c->groups; g; g = g->next) g->retired |= g->axes != ~0u;
    c->mesh = *mesh;
    return GM_OK;
}

int         gm_comm_rank(const gm_comm *c) { return c->rank; }
int         gm_comm_world(const gm_comm *c) { return c->world; }
bool        gm_comm_has_data(const gm_comm *c) { return c->transport->has_data; }
const char *gm_comm_transport(const gm_comm *c) { return c->transport->name; }

double gm_comm_yielded(const gm_comm *c) { return c->transport->yielded; }
void   gm_comm_set_timeout(gm_comm *c, double seconds) { c->timeout = seconds; }
double gm_comm_timeout(const gm_comm *c) { return c->timeout; }
void   gm_comm_set_checked(gm_comm *c, bool on) { c->checked = on; }
void   gm_comm_set_alone(gm_comm *c, bool on) { c->alone = on; }
void   gm_comm_set_phase(gm_comm *c, gm_phase phase)
{
    c->phase = phase;
    if (c->page) c->page->phase = phase;
}
gm_phase gm_comm_get_phase(const gm_comm *c) { return c->phase; }
void     gm_comm_set_place(gm_comm *c, const char *const *path) { c->place = path; }
void     gm_comm_set_note(gm_comm *c, gm_note *note) { c->note = note; }
void     gm_comm_set_page(gm_comm *c, gm_page *page) { c->page = page; }

const char *gm_comm_place(const gm_comm *c) { return c->place && *c->place ? *c->place : ""; }

void gm_comm_set_interrupt(gm_comm *c, bool (*asked)(void *context), void *context)
{
    c->asked = asked;
    c->asked_context = context;
}

/* ---- what waits ask for ---- */

gm_status gm_comm_transport_failed(gm_comm *c)
{
    return GM_FAIL(GM_ECOMM, "%s failed: %s", c->transport->name, c->transport->error);
}

gm_status gm_comm_check_failed(gm_comm *c)
{
    if (c->broken) return gm_comm_transport_failed(c);
    if (c->end_status != GM_OK) return gm_fail_again(c->end_status, c->end_error);
    if (!c->failed && !c->failed_section)
        return c->lane_status == GM_OK ? GM_OK : gm_fail_again(c->lane_status, c->lane_error);
    return GM_FAIL(GM_EPEER, "rank %d has failed: %s", c->failure.rank, c->failure.text);
}

gm_status gm_comm_check_interrupt(gm_comm *c)
{
    if (!c->asked || !c->asked(c->asked_context)) return GM_OK;
    return GM_FAIL(GM_EINTERRUPT, "interrupted while waiting for other ranks");
}

/* ---- groups ---- */

static gm_group *new_group(gm_comm *c, const char *name, int n, const int *ranks)
{
    gm_group *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->comm = c;
    g->size = n;
    g->name = strdup(name);
    g->member = calloc((size_t)n, sizeof *g->member);
    g->to = calloc((size_t)n, sizeof *g->to);
    g->from = calloc((size_t)n, sizeof *g->from);
    if (!g->name || !g->member || !g->to || !g->from) {
        free_group(g);
        return NULL;
    }
    memcpy(g->member, ranks, (size_t)n * sizeof *ranks);
    g->id = gm_hash_text(GM_HASH_START, name);
    for (int i = 0; i < n; i++) {
        if (ranks[i] == c->rank) g->rank = i;
        g->id = gm_mix64(g->id ^ (uint64_t)(ranks[i] + 1));
    }
    g->next = c->groups;
    c->groups = g;
    return g;
}

static gm_group *same_group(gm_comm *c, const char *name, int n, const int *ranks)
{
    for (gm_group *g = c->groups; g; g = g->next)
        if (!strcmp(g->name, name) && g->size == n && !memcmp(g->member, ranks, (size_t)n * sizeof *ranks)) return g;
    return NULL;
}

gm_group *gm_comm_find_group(gm_comm *c, uint64_t id)
{
    gm_group *g = c->groups;
    while (g && g->id != id) g = g->next;
    return g;
}

gm_status gm_comm_group(gm_comm *c, uint32_t axes, gm_group **out)
{
    char name[GM_MAX_AXES * 17 + 1];
    if (c->mesh.n_axes < 32 && axes >> c->mesh.n_axes)
        return GM_FAIL(GM_EINVAL, "there is no group of axes %#x: the mesh has only %d axes", axes, c->mesh.n_axes);
    for (gm_group *g = c->groups; g; g = g->next)
        if (!g->retired && g->axes == axes) {
            *out = g;
            return GM_OK;
        }
    int *ranks = calloc((size_t)c->world, sizeof *ranks);
    if (!ranks) return GM_FAIL(GM_ENOMEM, "no memory for a group");
    int n = gm_mesh_members(&c->mesh, axes, c->rank, ranks);
    gm_mesh_describe(&c->mesh, axes, name, sizeof name);
    if (!*name) strcpy(name, "self");
    gm_group *g = same_group(c, name, n, ranks); /* of an earlier mesh: its history goes on */
    if (!g) g = new_group(c, name, n, ranks);
    free(ranks);
    if (!g) return GM_FAIL(GM_ENOMEM, "no memory for group %s", name);
    g->axes = axes;
    g->retired = false;
    *out = g;
    return GM_OK;
}

gm_status gm_comm_group_of(gm_comm *c, const char *name, int n, const int *ranks, gm_group **out)
{
    bool mine = false;
    if (n < 1) return GM_FAIL(GM_EINVAL, "group %s has no ranks", name);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= c->world)
            return GM_FAIL(GM_EINVAL, "group %s: there is no rank %d in a world of %d", name, ranks[i], c->world);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i]) return GM_FAIL(GM_EINVAL, "group %s: rank %d comes twice", name, ranks[i]);
        mine |= ranks[i] == c->rank;
    }
    if (!mine) return GM_FAIL(GM_EINVAL, "group %s: rank %d, which makes it, is not among its ranks", name, c->rank);
    gm_group *g = same_group(c, name, n, ranks);
    if (!g) {
        g = new_group(c, name, n, ranks);
        if (!g) return GM_FAIL(GM_ENOMEM, "no memory for group %s", name);
        g->axes = ~0u;
    }
    *out = g;
    return GM_OK;
}

gm_status gm_comm_everybody(gm_comm *c, gm_group **out)
{
    int *ranks = calloc((size_t)c->world, sizeof *ranks);
    if (!ranks) return GM_FAIL(GM_ENOMEM, "no memory for a group");
    for (int i = 0; i < c->world; i++) ranks[i] = i;
    gm_status st = gm_comm_group_of(c, "world", c->world, ranks, out);
    free(ranks);
    return st;
}

int         gm_group_size(const gm_group *g) { return g->size; }
int         gm_group_rank(const gm_group *g) { return g->rank; }
int         gm_group_member(const gm_group *g, int i) { return g->member[i]; }
const char *gm_group_name(const gm_group *g) { return g->name; }

/* ---- accounts ---- */

static void add_entry(gm_traffic *entries, int max, int *n, const gm_traffic *add)
{
    for (int i = 0; i < *n && i < max; i++) {
        gm_traffic *e = &entries[i];
        if (strcmp(e->group, add->group) || e->op != add->op || e->phase != add->phase) continue;
        e->calls += add->calls; /* groups of one name: of two meshes, or made with other ranks */
        e->bytes += add->bytes;
        e->copied += add->copied;
        e->seconds += add->seconds;
        e->exposed += add->exposed;
        return;
    }
    if (*n < max) entries[*n] = *add;
    ++*n;
}

int gm_comm_traffic(const gm_comm *c, gm_traffic *entries, int max)
{
    int n = 0;
    for (const gm_group *g = c->groups; g; g = g->next)
        for (int call = 0; call < GM_CALL_COUNT; call++)
            for (int phase = 0; phase < GM_PHASE_COUNT; phase++) {
                const gm_account *a = &g->account[call][phase];
                if (!a->calls) continue;
                add_entry(entries, max, &n,
                          &(gm_traffic){g->name, gm_call_name(call), (gm_phase)phase, a->calls, a->bytes, a->copied,
                                        a->seconds, a->exposed});
            }
    return n;
}

void gm_comm_reset_traffic(gm_comm *c)
{
    for (gm_group *g = c->groups; g; g = g->next) memset(g->account, 0, sizeof g->account);
}

/* ---- checks ---- */

gm_status gm_call_check_group(gm_comm *c, const gm_group *g, const char *op)
{
    if (c->alone && g->size > 1)
        return GM_FAIL(
            GM_EINVAL,
            "%s of group %s (%d ranks): only this rank runs this, and the others would never come; run it on "
            "all ranks",
            op, g->name, g->size);
    return gm_comm_check_failed(c);
}

gm_status gm_call_check_tensor(const gm_comm *c, const gm_group *g, const char *op, const char *name,
                               const gm_tensor *t)
{
    char        text[200];
    const char *fault = NULL; /* the text is made only for a fault: this is on the way of every call */
    if (!t) return GM_FAIL(GM_EINVAL, "%s of group %s: %sis missing on this rank", op, g->name, name);
    if (!gm_tensor_is_contiguous(t)) fault = "is not contiguous; use :contiguous()";
    else if (c->transport->has_data && gm_tensor_numel(t) && !gm_tensor_has_data(t))
        fault = "has no bytes; this job moves data";
    if (fault)
        return GM_FAIL(GM_EINVAL, "%s of group %s: %s%s %s", op, g->name, name,
                       gm_tensor_describe(t, text, sizeof text), fault);
    return GM_OK;
}
