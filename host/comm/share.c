/* share.c - finds out which ranks are on one machine and share memory (comm.h, gm_comm_share_memory).
 *
 * Every rank says which machine it runs on. Ranks of one machine open each other's windows, and tell all whom they
 * reached: two ranks share memory when both have reached each other. So all ranks know who failed, and why. */
#define _GNU_SOURCE
#include "state.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include "../../kernels/arena.h"
#include "../../kernels/philox.h"
#include "comm_windows.h"
#include "lines.h"
#include "machines.h"

#define WHY_ROOM 240

enum { NOT, SHARES, READS }; /* how a rank reaches another one: READS its own memory, too */

typedef struct offer {              /* of one rank; sent as it is */
    uint64_t  machine, key, key_at; /* key_at: where the key lies in the memory of this process */
    cpu_set_t cores;
    int32_t   pid, fd;       /* fd -1: it has no window */
    int32_t   file;          /* of its arena; -1: none */
    uint64_t  base, size;    /* the arena's range */
    char      why[WHY_ROOM]; /* it has none */
} offer;

typedef struct sharing {
    gm_comm        *c;
    gm_group       *world;
    offer           mine, *all;
    char           *reached; /* by rank, of this rank: NOT, ...; and then why it did not reach one */
    int            *rank;    /* of this machine, by place */
    int            *pid;     /* the same: of those whose memory is read; 0: of the others */
    gm_window     **window;
    gm_reach       *reach; /* the same: ranges of the others' arenas */
    gm_window_ranks here;
    int             fd; /* of this rank's window; -1: none */
    gm_arena      **arena;
} sharing;

/* ---- what a rank has ---- */

/* A machine from its start on, however it is called, and a network on it: what has a network of its own counts as a
 * machine of its own, as it does for MPI and TCP. 0 if it does not say. */
static uint64_t machine(void)
{
    char  id[64] = "", network[64] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    bool  got = f && fgets(id, sizeof id, f);
    if (f) fclose(f);
    got = got && readlink("/proc/self/ns/net", network, sizeof network - 1) > 0;
    return got ? gm_hash_text(gm_hash_text(GM_HASH_START, id), network) : 0;
}

/* GANYMEDE_SHARED_MEMORY: "none"; "rings": this rank reads what others put into their rings, not their memory;
 * "direct": its messages are read where they lie, and not copied into its arena. */
static bool is_wished(const char *what)
{
    const char *wish = getenv("GANYMEDE_SHARED_MEMORY");
    return wish && !strcmp(wish, what);
}

/* What failed, for a user: without the place in the source; and what follows of it. */
static void take_why(char *why, const char *then)
{
    char  text[WHY_ROOM];
    char *place;
    snprintf(text, sizeof text, "%s", gm_last_error());
    place = strrchr(text, '[');
    if (place && place > text && place[-1] == ' ') place[-1] = 0;
    snprintf(why, WHY_ROOM, "%.130s; %.100s", text, then);
}

static void no_window(const sharing *s, char *why)
{
    char then[100];
    snprintf(then, sizeof then, "it talks through %.64s", s->c->transport->name);
    take_why(why, then);
}

static void no_arena(char *why) { take_why(why, "its messages are copied by the system"); }

/* All offers, as far as they are known. */
static gm_status tell_offers(sharing *s)
{
    size_t *sizes = calloc((size_t)s->c->world, sizeof *sizes);
    if (!sizes) return GM_FAIL(GM_ENOMEM, "no memory to ask %d ranks for their machines", s->c->world);
    free(s->all);
    s->all = NULL;
    gm_status st = gm_comm_exchange(s->c, s->world, &s->mine, sizeof s->mine, (char **)&s->all, sizes);
    free(sizes);
    return st;
}

/* The cores of all ranks of this machine together. They may be bound to some each. */
static int cores_here(const sharing *s)
{
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int i = 0; i < s->here.shape.n; i++) CPU_OR(&all, &all, &s->all[s->rank[i]].cores);
    return CPU_COUNT(&all);
}

/* Rings are small enough that all of them stay in the last cache, and large enough that few waits are needed. */
static size_t ring_bytes(int here)
{
    size_t most = (size_t)128 << 10, least = (size_t)32 << 10, all = (size_t)1 << 20;
    while (most > least && most * (size_t)here > all) most /= 2;
    return most;
}

static gm_status find_here(sharing *s)
{
    const gm_comm *c = s->c;
    int            n = 0;
    s->rank = calloc((size_t)c->world, sizeof *s->rank);
    s->pid = calloc((size_t)c->world, sizeof *s->pid);
    s->window = calloc((size_t)c->world, sizeof *s->window);
    s->reach = calloc((size_t)c->world, sizeof *s->reach);
    s->reached = calloc((size_t)c->world + WHY_ROOM, 1);
    if (!s->rank || !s->pid || !s->window || !s->reach || !s->reached)
        return GM_FAIL(GM_ENOMEM, "no memory for the ranks of this machine");
    for (int r = 0; r < c->world; r++) {
        if (s->all[r].machine != s->mine.machine || !s->mine.machine) continue;
        if (r == c->rank) s->here.place = n;
        s->rank[n++] = r;
    }
    s->here.rank = s->rank;
    s->here.pid = s->pid;
    s->here.window = s->window;
    s->here.reach = s->reach;
    s->here.shape = (gm_window_shape){n, ring_bytes(n), 4096};
    s->here.cores = cores_here(s);
    return GM_OK;
}

/* A number of each machine: its first rank. A rank that does not say where it is counts as alone. */
static gm_status tell_machines(const sharing *s)
{
    int *machine = malloc((size_t)s->c->world * sizeof *machine);
    if (!machine) return GM_FAIL(GM_ENOMEM, "no memory for the machines of %d ranks", s->c->world);
    for (int r = 0; r < s->c->world; r++) {
        machine[r] = 0;
        while (machine[r] < r && (!s->all[r].machine || s->all[machine[r]].machine != s->all[r].machine)) machine[r]++;
    }
    gm_status st = gm_comm_know_machines(s->c, machine);
    free(machine);
    return st;
}

/* Do all ranks of this machine read each other's memory? all: what every rank reached, a row each. */
static bool read_each_other(const sharing *s, const char *all)
{
    size_t row = (size_t)s->c->world + WHY_ROOM;
    for (int i = 0; i < s->here.shape.n; i++)
        for (int k = 0; k < s->here.shape.n; k++)
            if (i != k && all[row * (size_t)s->rank[i] + (size_t)s->rank[k]] != READS) return false;
    return true;
}

static gm_status tell_readers(const sharing *s, const char *all)
{
    return read_each_other(s, all) ? gm_comm_know_readers(s->c, s->rank, s->here.shape.n) : GM_OK;
}

/* Without an arena messages are copied by the system, as those of other memory are. */
static void offer_arena(sharing *s)
{
    if (s->fd < 0 || is_wished("rings")) return;
    if (!*s->arena && gm_arena_new(s->arena) != GM_OK) {
        no_arena(s->mine.why);
        return;
    }
    s->mine.file = gm_arena_file(*s->arena);
    s->mine.base = (uintptr_t)gm_arena_base(*s->arena);
    s->mine.size = gm_arena_size(*s->arena);
}

static void make_own(sharing *s)
{
    gm_window **own = &s->window[s->here.place];
    if (is_wished("none") || s->here.shape.n < 2) return; /* nobody need be told */
    if (gm_window_make(&s->here.shape, s->mine.key, own, &s->fd) != GM_OK) no_window(s, s->mine.why);
    s->mine.fd = s->fd;
    s->mine.pid = (int32_t)getpid();
    offer_arena(s);
}

static void open_others(sharing *s)
{
    char *why = s->reached + s->c->world;
    for (int i = 0; i < s->here.shape.n && s->fd >= 0; i++) {
        const offer *o = &s->all[s->rank[i]];
        if (i == s->here.place || o->fd < 0) continue;
        gm_status st = gm_window_open(&s->here.shape, o->key, o->pid, o->fd, &s->window[i]);
        if (st != GM_OK) no_window(s, why);
        s->reached[s->rank[i]] = st == GM_OK ? SHARES : NOT;
        if (is_wished("rings")) continue;
        s->pid[i] = gm_reads_memory(o->pid, o->key_at, o->key) ? o->pid : 0; /* it waits for what we say next */
        if (st == GM_OK && s->pid[i]) s->reached[s->rank[i]] = READS;
        if (st == GM_OK && o->file >= 0 && gm_reach_open(o->pid, o->file, o->base, o->size, &s->reach[i]) != GM_OK)
            no_arena(why);
    }
}

/* ---- who shares with whom ---- */

/* Closes windows that only one side can use. all: what every rank reached, a row each. True: some are left. */
static bool agree(sharing *s, const char *all)
{
    size_t row = (size_t)s->c->world + WHY_ROOM;
    bool   any = false;
    for (int i = 0; i < s->here.shape.n; i++) {
        if (i == s->here.place) continue;
        if (all[row * (size_t)s->rank[i] + (size_t)s->c->rank] == NOT) {
            gm_window_close(s->window[i]);
            s->window[i] = NULL;
            gm_reach_close(&s->reach[i]);
        }
        any |= s->window[i] != NULL;
    }
    return any;
}

/* Do messages go through the arena that are only read? Also where the system forbids to read them where they lie: it
 * does so for all alike, as a rule, and what others may do is not known here. */
static bool copies_messages(const sharing *s)
{
    bool any = gm_lines_slow();
    for (int i = 0; i < s->here.shape.n; i++) any |= i != s->here.place && s->window[i] && !s->pid[i];
    return any;
}

/* The first rank that wanted to share memory and could not, and why; "" if there is none. The same on all ranks. */
static void explain(const sharing *s, const char *all, char *said, size_t size)
{
    size_t row = (size_t)s->c->world + WHY_ROOM;
    for (int r = 0; r < s->c->world && !*said; r++) {
        const char *why = s->all[r].why[0] ? s->all[r].why : all + row * (size_t)r + (size_t)s->c->world;
        if (*why) snprintf(said, size, "rank %d: %.*s", r, WHY_ROOM, why);
    }
}

static gm_status share(sharing *s, char *said, size_t size)
{
    char     *all = NULL;
    size_t   *sizes = NULL;
    gm_status st;
    s->mine = (offer){.machine = machine(), .key_at = (uintptr_t)&s->mine.key, .fd = -1, .file = -1};
    if (sched_getaffinity(0, sizeof s->mine.cores, &s->mine.cores)) CPU_ZERO(&s->mine.cores);
    if (getrandom(&s->mine.key, sizeof s->mine.key, 0) != sizeof s->mine.key) s->mine.machine = 0;
    GM_TRY(tell_offers(s));
    GM_TRY(find_here(s));
    make_own(s);
    GM_TRY(tell_offers(s));
    open_others(s);
    sizes = calloc((size_t)s->c->world, sizeof *sizes);
    if (!sizes) return GM_FAIL(GM_ENOMEM, "no memory to ask %d ranks what they share", s->c->world);
    st = gm_comm_exchange(s->c, s->world, s->reached, (size_t)s->c->world + WHY_ROOM, &all, sizes);
    free(sizes);
    GM_TRY(st);
    explain(s, all, said, size);
    GM_TRY_OR(tell_machines(s), st, done);
    GM_TRY_OR(tell_readers(s, all), st, done);
    s->here.arena = s->mine.file >= 0 && !is_wished("direct") ? *s->arena : NULL;
    s->here.copies = copies_messages(s);
    if (agree(s, all)) st = gm_transport_windows(s->c->transport, &s->here, &s->c->transport);
done:
    free(all);
    return st;
}

static void end_sharing(gm_comm *c)
{
    (void)gm_comm_know_machines(c, NULL);   /* which needs no memory, */
    (void)gm_comm_know_readers(c, NULL, 0); /* and neither does this */
    if (c->shares) c->transport = gm_transport_windows_end(c->transport);
    c->shares = false;
}

static void free_sharing(sharing *s)
{
    if (s->fd >= 0) close(s->fd);
    for (int i = 0; s->window && s->reach && !s->c->shares && i < s->here.shape.n; i++) {
        gm_window_close(s->window[i]);
        gm_reach_close(&s->reach[i]);
    }
    free(s->all);
    free(s->reached);
    free(s->rank);
    free(s->pid);
    free(s->window);
    free(s->reach);
}

static gm_status begin_sharing(gm_comm *c, gm_group *world, gm_arena **arena, char *said, size_t size)
{
    sharing             s = {.c = c, .world = world, .fd = -1, .arena = arena};
    const gm_transport *before = c->transport;
    gm_status           st = share(&s, said, size);
    c->shares = c->transport != before;
    free_sharing(&s);
    return gm_comm_once(st);
}

bool gm_comm_shares_memory(const gm_comm *c) { return c->shares; }

gm_status gm_comm_share_memory(gm_comm *c, bool on, gm_arena **arena, char *said, size_t size)
{
    gm_group  *world;
    gm_account before[GM_CALL_COUNT][GM_PHASE_COUNT]; /* what is exchanged here is in no account */
    gm_status  st = GM_OK;
    said[0] = 0;
    if (c->world == 1 || !c->transport->has_data) return GM_OK;
    if (c->n_under_way)
        return GM_FAIL(GM_EINVAL, "the transport cannot change while %d operations are under way; wait for them first",
                       c->n_under_way);
    GM_TRY(gm_comm_everybody(c, &world));
    memcpy(before, world->account, sizeof before);
    if (on && !c->may_share) st = begin_sharing(c, world, arena, said, size);
    if (!on && c->may_share) st = gm_comm_barrier(c, world); /* nothing is on its way any more */
    if (!on && st == GM_OK) end_sharing(c);
    if (st == GM_OK) c->may_share = on;
    memcpy(world->account, before, sizeof before);
    return st;
}
