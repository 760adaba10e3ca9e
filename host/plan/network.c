/* network.c - see network.h. Links of a level are numbered from first[level]: out and in of each port, then up and down
 * of each leaf; one for each unit of a shared level; two for each rank and dimension of a torus. */
#include "network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct gm_network {
    const gm_machine *machine;
    int               world, n_links;
    int               first[GM_MACHINE_LEVELS], leaves[GM_MACHINE_LEVELS]; /* leaves: the first link of a leaf */
    int               disks, hosts; /* the first link of a node's disk and of a rank's host: reads, then writes */
    double           *bandwidth;
    double           *share;              /* of a plan under construction, by link; 0 between plans */
    int              *touched, n_touched; /* the links whose share may not be 0 */
};

static int divided(int a, int b) { return (a + b - 1) / b; }

/* ---- links ---- */

static gm_status add_links(gm_network *w, int n, double bandwidth)
{
    double *more = realloc(w->bandwidth, (size_t)(w->n_links + n + 1) * sizeof *more);
    if (!more) return GM_FAIL(GM_ENOMEM, "no memory for the links of a network");
    w->bandwidth = more;
    for (int i = 0; i < n; i++) w->bandwidth[w->n_links++] = bandwidth;
    return GM_OK;
}

static gm_status add_level(gm_network *w, int at)
{
    const gm_level *l = &w->machine->level[at];
    w->first[at] = w->n_links;
    if (l->kind == GM_LEVEL_SHARED) return add_links(w, l->ranks ? divided(w->world, l->ranks) : 1, l->bandwidth);
    if (l->kind == GM_LEVEL_TORUS) return add_links(w, 2 * l->n_dims * w->world, l->bandwidth);
    GM_TRY(add_links(w, 2 * divided(w->world, l->ranks_per_port), l->bandwidth));
    w->leaves[at] = w->n_links;
    if (!l->leaf) return GM_OK;
    double ports = (double)l->leaf / l->ranks_per_port;
    return add_links(w, 2 * divided(w->world, l->leaf), l->bandwidth * ports / l->oversubscription);
}

/* Links to disks and hosts: two for each, of which reads take the first. */
static gm_status add_below(gm_network *w)
{
    const gm_machine *m = w->machine;
    int               nodes = divided(w->world, m->ranks_per_node > 0 ? m->ranks_per_node : 1);
    w->disks = w->n_links;
    GM_TRY(add_links(w, 2 * nodes, m->below.disk_write));
    for (int i = 0; i < nodes; i++) w->bandwidth[w->disks + 2 * i] = m->below.disk_read;
    w->hosts = w->n_links;
    return add_links(w, 2 * w->world, m->below.host);
}

gm_status gm_network_new(const gm_machine *m, int world, gm_network **out)
{
    gm_network *w = calloc(1, sizeof *w);
    gm_status   st = GM_OK;
    if (!w) return GM_FAIL(GM_ENOMEM, "no memory for a network");
    w->machine = m;
    w->world = world;
    for (int i = 0; i < m->n_levels && st == GM_OK; i++) st = add_level(w, i);
    if (st == GM_OK) st = add_below(w);
    w->share = calloc((size_t)w->n_links + 1, sizeof *w->share);
    w->touched = malloc(((size_t)w->n_links + 1) * sizeof *w->touched);
    if (st == GM_OK && (!w->share || !w->touched)) st = GM_FAIL(GM_ENOMEM, "no memory for the links of a network");
    if (st != GM_OK) gm_network_free(w);
    else *out = w;
    return st;
}

void gm_network_free(gm_network *w)
{
    if (!w) return;
    free(w->bandwidth);
    free(w->share);
    free(w->touched);
    free(w);
}

int    gm_network_links(const gm_network *w) { return w->n_links; }
double gm_network_bandwidth(const gm_network *w, int link) { return w->bandwidth[link]; }

/* ---- transfers under construction: bytes by link, and the latency of the slowest message of a round ---- */

typedef struct plan {
    gm_network *w;
    double      slowest_message;
    double      around;   /* the latency of a ring, all its messages in a row; 0: there is none */
    int         messages; /* that a member sends in a round */
    bool        apart;    /* a message had no level */
} plan;

static void load(plan *p, int link, double n)
{
    gm_network *w = p->w;
    if (w->share[link] == 0 && n > 0) w->touched[w->n_touched++] = link;
    w->share[link] += n;
}

static int same_unit(const gm_level *l, int a, int b) { return !l->ranks || a / l->ranks == b / l->ranks; }

/* One way along a dimension of a torus, the shorter one. Returns the hops. */
static int walk(plan *p, int at, int *from, int to, int dim, int stride, double n)
{
    const gm_level *l = &p->w->machine->level[at];
    int             size = l->dims[dim], here = *from / stride % size, there = to / stride % size, hops = 0;
    int             forward = (there - here + size) % size, up = forward <= size - forward;
    while (here != there) {
        load(p, p->w->first[at] + 2 * (*from * l->n_dims + dim) + !up, n);
        int next = (here + (up ? 1 : size - 1)) % size;
        *from += (next - here) * stride;
        here = next;
        hops++;
    }
    return hops;
}

static double torus(plan *p, int at, int from, int to, double n)
{
    const gm_level *l = &p->w->machine->level[at];
    int             hops = 0, stride = 1;
    for (int d = l->n_dims - 1; d >= 0; d--) {
        hops += walk(p, at, &from, to, d, stride, n);
        stride *= l->dims[d];
    }
    return hops * l->latency;
}

static double through_switch(plan *p, int at, int from, int to, double n)
{
    const gm_level *l = &p->w->machine->level[at];
    const int       a = from / l->ranks_per_port, b = to / l->ranks_per_port;
    load(p, p->w->first[at] + 2 * a, n);
    load(p, p->w->first[at] + 2 * b + 1, n);
    if (!l->leaf || from / l->leaf == to / l->leaf) return l->latency;
    load(p, p->w->leaves[at] + 2 * (from / l->leaf), n);
    load(p, p->w->leaves[at] + 2 * (to / l->leaf) + 1, n);
    return l->latency;
}

/* A message of a share n of all bytes. Returns its latency. */
static double message(plan *p, int from, int to, double n)
{
    const gm_machine *m = p->w->machine;
    int               at = 0;
    double            latency;
    if (from == to) return 0;
    while (at < m->n_levels && !same_unit(&m->level[at], from, to)) at++;
    if (at == m->n_levels) {
        p->apart = true;
        return 0;
    }
    const gm_level *l = &m->level[at];
    if (l->kind == GM_LEVEL_TORUS) latency = torus(p, at, from, to, n);
    else if (l->kind == GM_LEVEL_SWITCH) latency = through_switch(p, at, from, to, n);
    else {
        latency = l->latency;
        load(p, p->w->first[at] + (l->ranks ? from / l->ranks : 0), n);
    }
    if (latency > p->slowest_message) p->slowest_message = latency;
    return latency;
}

/* ---- algorithms ---- */

/* Members of a unit of the innermost level, if every unit holds as many and there are several units; else 1. */
static int places_in_unit(const gm_network *w, int p, const int *members)
{
    int ranks = w->machine->n_levels ? w->machine->level[0].ranks : 0, k = 1;
    if (!ranks) return 1;
    while (k < p && members[k] / ranks == members[0] / ranks) k++;
    if (k == p || p % k) return 1;
    for (int i = 0; i < p; i++)
        if (members[i] / ranks != members[i / k * k] / ranks) return 1;
    return k;
}

static double least(double a, double b) { return a < b ? a : b; }

/* Each member sends a share n to the next one, over as many rings as a unit has places. A piece of the bytes goes
 * around once less a hop, or (twice) two times less two hops that follow each other; the slowest piece leaves the
 * fastest of them out. */
static void ring(plan *q, int p, const int *members, double n, bool twice)
{
    int k = places_in_unit(q->w, p, members), units = p / k;
    for (int c = 0; c < k; c++) { /* ring c: of each unit, its members from place c on; it leaves at place c - 1 */
        double sum = 0, first = 0, before = 0, hop = 0, one = INFINITY, two = INFINITY;
        for (int i = 0; i < p; i++, before = hop) {
            int unit = i / k, place = i % k, next = place + 1 < k ? unit : (unit + 1) % units;
            hop = message(q, members[unit * k + (c + place) % k], members[next * k + (c + (place + 1) % k) % k], n / k);
            if (i) two = least(two, before + hop);
            else first = hop;
            sum += hop;
            one = least(one, hop);
        }
        double way = twice ? 2 * sum - least(two, hop + first) : sum - one;
        if (way > q->around) q->around = way;
    }
}

/* Member i's children are 2 i + 1 and 2 i + 2, counted from the root. */
static void tree(plan *q, int p, const int *members, int root, double up, double down)
{
    for (int i = 1; i < p; i++) {
        int child = members[(i + root) % p], parent = members[((i - 1) / 2 + root) % p];
        if (up > 0) message(q, child, parent, up);
        if (down > 0) message(q, parent, child, down);
    }
}

static void every_pair(plan *q, int p, const int *members, double n)
{
    q->messages = p - 1;
    for (int i = 0; i < p; i++)
        for (int k = 1; k < p; k++) message(q, members[i], members[(i + k) % p], n);
}

static void to_or_from_root(plan *q, int p, const int *members, int root, double n, bool to)
{
    for (int i = 0; i < p; i++) message(q, members[to ? i : root], members[to ? root : i], n);
}

/* The root doubles those that have it: in round k, the first 2^k send. */
static void binomial(plan *q, int p, const int *members, int root)
{
    for (int have = 1; have < p; have *= 2)
        for (int i = 0; i < have && i + have < p; i++)
            message(q, members[(i + root) % p], members[(i + have + root) % p], 1);
}

static int log2_of(int p)
{
    int rounds = 0;
    while ((1 << rounds) < p) rounds++;
    return rounds;
}

static bool is(const char *op, const char *name) { return !strcmp(op, name); }

bool gm_network_is_below(const char *op) { return !strncmp(op, "disk_", 5) || !strncmp(op, "host_", 5); }

/* Bytes between a rank and what is below it. */
static int below(plan *q, const char *op, int rank)
{
    const gm_machine *m = q->w->machine;
    int               write = is(op, "disk_write") || is(op, "host_write"), disk = !strncmp(op, "disk_", 5);
    int               node = rank / (m->ranks_per_node > 0 ? m->ranks_per_node : 1);
    load(q, (disk ? q->w->disks + 2 * node : q->w->hosts + 2 * rank) + write, 1);
    q->slowest_message = disk ? m->below.disk_latency : m->below.host_latency;
    return 1;
}

/* Adds the messages of an op; returns its rounds beside those of a ring, -1: there is no such op. */
static int play(plan *q, const char *op, int p, const int *members, int root, gm_algorithm how)
{
    bool   direct = how == GM_ALGORITHM_DIRECT;
    double part = 1.0 / p, rest = (double)(p - 1) / p;
    if (gm_network_is_below(op)) return below(q, op, members[0]);
    if (is(op, "message")) return message(q, members[0], members[1], 1), 1;
    if (is(op, "all_reduce")) {
        if (direct) return every_pair(q, p, members, 2 * part), 2;
        if (how == GM_ALGORITHM_AT_ONCE) return every_pair(q, p, members, 1), 1;
        if (how == GM_ALGORITHM_TREE) return tree(q, p, members, 0, 1, 1), 2 * log2_of(p);
        return ring(q, p, members, 2 * rest, true), 0;
    }
    if (is(op, "all_gather") || is(op, "reduce_scatter")) {
        if (direct) return every_pair(q, p, members, part), 1;
        return ring(q, p, members, rest, false), 0;
    }
    if (is(op, "broadcast")) {
        if (direct) return binomial(q, p, members, root), log2_of(p);
        if (how == GM_ALGORITHM_TREE) return tree(q, p, members, root, 0, 1), log2_of(p);
        return ring(q, p, members, 1, false), 0;
    }
    if (is(op, "reduce")) {
        if (how == GM_ALGORITHM_TREE) return tree(q, p, members, root, 1, 0), log2_of(p);
        if (!direct) return ring(q, p, members, 1, false), 0;
        every_pair(q, p, members, part);
        return to_or_from_root(q, p, members, root, part, true), 2;
    }
    if (is(op, "gather")) return to_or_from_root(q, p, members, root, part, true), 1;
    if (is(op, "scatter")) return to_or_from_root(q, p, members, root, part, false), 1;
    if (is(op, "all_to_all")) return every_pair(q, p, members, part), 1;
    if (is(op, "all_to_all_rows")) return every_pair(q, p, members, 1.0 / (p - 1)), 1; /* of what goes to others */
    if (is(op, "exchange")) return every_pair(q, p, members, part), 2;                 /* sizes go first */
    if (is(op, "barrier")) return every_pair(q, p, members, 0), log2_of(p);
    return -1;
}

/* ---- results ---- */

static int by_link(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void forget(gm_network *w)
{
    for (int i = 0; i < w->n_touched; i++) w->share[w->touched[i]] = 0;
    w->n_touched = 0;
}

static gm_status finish(const plan *q, double factor, int rounds, gm_transfer *out)
{
    gm_network *w = q->w;
    int         in_a_row = gm_cores_are_shared(w->machine) ? q->messages : 1;
    qsort(w->touched, (size_t)w->n_touched, sizeof *w->touched, by_link);
    *out = (gm_transfer){.latency = q->around + rounds * in_a_row * q->slowest_message,
                         .uses = malloc(((size_t)w->n_touched + 1) * sizeof *out->uses)};
    if (!out->uses) return GM_FAIL(GM_ENOMEM, "no memory for a transfer");
    for (int i = 0; i < w->n_touched; i++) {
        int    link = w->touched[i];
        double share = w->share[link] / factor, seconds = share / w->bandwidth[link];
        out->uses[out->n++] = (gm_use){link, share};
        if (seconds > out->slowest) out->slowest = seconds;
    }
    return GM_OK;
}

bool gm_network_has_tree(const char *op) { return is(op, "all_reduce") || is(op, "broadcast") || is(op, "reduce"); }

static gm_status check_below(const gm_machine *m, const char *op)
{
    bool   disk = !strncmp(op, "disk_", 5);
    double rate = !disk ? m->below.host : is(op, "disk_read") ? m->below.disk_read : m->below.disk_write;
    if (rate > 0) return GM_OK;
    return GM_FAIL(GM_EINVAL, "the recipe offloads to the %s, and the machine does not say how fast it is: add %s",
                   disk ? "disk" : "host", disk ? "disk.read and disk.write" : "host.bandwidth");
}

gm_status gm_network_plan(gm_network *w, const char *op, int p, const int *members, int root, gm_algorithm how,
                          gm_transfer *out)
{
    plan q = {.w = w, .messages = 1};
    if (gm_network_is_below(op)) GM_TRY(check_below(w->machine, op));
    int       rounds = play(&q, op, p, members, root < 0 ? 0 : root, how);
    gm_status st = GM_OK;
    if (rounds < 0) st = GM_FAIL(GM_EINVAL, "a simulation does not know the operation %s", op);
    else if (q.apart)
        st = GM_FAIL(GM_EINVAL, "the machine has no link between all of %d ranks: its outermost level must hold all",
                     w->world);
    else st = finish(&q, gm_machine_efficiency(w->machine, op), rounds, out);
    forget(w);
    return st;
}

void gm_transfer_free(gm_transfer *t)
{
    free(t->uses);
    *t = (gm_transfer){0};
}
