/* way.c - chooses how tensors of devices travel: from device to device, or through host memory (comm.h,
 * gm_comm_use_device).
 *
 * Every rank tells all others what it has, and all reach the same answer from the same facts. A job is linked as a
 * whole or not at all: two ranks that share a device would take turns on it, each spinning while it waits for the
 * other. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "links.h"

typedef struct offer { /* of one rank; sent as it is */
    bool          there;
    gm_link_facts facts;
    char          device[96], identity[64], why[200];
} offer;

static void make_offer(gm_device *dev, offer *o)
{
    memset(o, 0, sizeof *o);
    if (dev->backend->describe) dev->backend->describe(dev, o->device, sizeof o->device);
    o->device[strcspn(o->device, ",")] = 0; /* "NVIDIA H200" */
    if (dev->backend->identify) dev->backend->identify(dev, o->identity, sizeof o->identity);
    if (!dev->backend->queues)
        snprintf(o->why, sizeof o->why, "a %s device has no NCCL; use --device cuda", dev->backend->name);
    else if (!(o->there = gm_links_find(&o->facts) == GM_OK))
        snprintf(o->why, sizeof o->why, "%.199s", gm_last_error());
}

static int sharing(const offer *all, int n, int rank)
{
    int count = 0;
    for (int i = 0; i < n; i++) count += !strcmp(all[i].identity, all[rank].identity);
    return count;
}

/* Why these ranks cannot be linked, into why; false: they can. The same on every rank. */
static bool is_impossible(const offer *all, int n, char *why, size_t size)
{
    for (int i = 0; i < n; i++)
        if (!all[i].there) return snprintf(why, size, "rank %d: %s", i, all[i].why) > 0;
    for (int i = 1; i < n; i++)
        if (strcmp(all[i].facts.library, all[0].facts.library))
            return snprintf(why, size, "rank 0 has %s, rank %d %s", all[0].facts.library, i, all[i].facts.library) > 0;
    for (int i = 0; i < n; i++)
        if (sharing(all, n, i) > 1)
            return snprintf(why, size, "%d ranks share %s", sharing(all, n, i), all[i].device) > 0;
    return false;
}

static gm_status exchange_offers(gm_comm *c, gm_device *dev, offer **all)
{
    gm_group *g;
    offer     mine;
    size_t   *sizes = calloc((size_t)c->world, sizeof *sizes);
    gm_status st = sizes ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory to ask %d ranks for their devices", c->world);
    if (st == GM_OK) st = gm_comm_everybody(c, &g);
    if (st == GM_OK) {
        make_offer(dev, &mine);
        st = gm_comm_exchange(c, g, &mine, sizeof mine, (char **)all, sizes);
    }
    free(sizes);
    return st;
}

gm_status gm_comm_use_device(gm_comm *c, gm_device *dev, gm_way wish, char *said, size_t size)
{
    char   why[320] = "it was asked for";
    offer *all = NULL;
    said[0] = 0;
    gm_comm_use_host(c);
    if (c->world == 1 || !c->transport->has_data) return GM_OK;
    if (!dev->backend->queues && wish != GM_WAY_NCCL) return GM_OK; /* its memory is the host's */
    GM_TRY(exchange_offers(c, dev, &all));
    bool host = wish == GM_WAY_HOST || is_impossible(all, c->world, why, sizeof why);
    if (!host) snprintf(said, size, "%s, %d devices", all[0].facts.library, c->world);
    else snprintf(said, size, "host memory: %s", why);
    free(all);
    if (host && wish == GM_WAY_NCCL)
        return GM_FAIL(GM_EINVAL, "these ranks cannot talk through NCCL: %s; \"auto\" lets them use host memory", why);
    if (host) return GM_OK;
    gm_lanes_use(c, dev);
    return GM_OK;
}

bool gm_comm_is_linked(const gm_comm *c) { return c->linked != NULL; }
