/* nccl_trial.c - the real NCCL on a machine without a GPU, a program for spec/cuda/nccl_spec.lua: is every function
 * that we call there, is the version one that serves, does it make ids, and does it refuse a communicator without a
 * GPU with an error that we read as one?
 *
 *     gm_nccl_trial      "NCCL 2.28.9; ids differ; NCCL failed: ..."; status 3: there is no NCCL
 *
 * The device is none: its queues have nothing in them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../host/comm/links.h"

static gm_status open_queue(gm_device *dev, gm_queue **out) { return (void)dev, *out = NULL, GM_OK; }
static void      close_queue(gm_queue *queue) { (void)queue; }

static const gm_queues queues = {.open = open_queue, .close = close_queue};

/* Where the loader finds it, else the toolkit's. */
static gm_status find(gm_link_facts *facts)
{
    gm_status st = gm_links_find(facts);
    if (st == GM_OK || !strstr(gm_last_error(), "there is no NCCL")) return st;
    setenv("GANYMEDE_CUDA_NCCL", GM_TOOLKIT "/lib/libnccl.so.2", 1);
    return gm_links_find(facts);
}

int main(void)
{
    gm_backend    backend = {.name = "none", .queues = &queues};
    gm_device     device = {.backend = &backend};
    gm_link_facts facts;
    gm_link_id    one, two;
    gm_link      *link = NULL;
    bool          ready;
    if (find(&facts) != GM_OK) {
        printf("%s\n", gm_last_error());
        return strstr(gm_last_error(), "there is no NCCL") ? 3 : 1;
    }
    bool ids = gm_links_new_id(&one) == GM_OK && gm_links_new_id(&two) == GM_OK;
    printf("%s; ids %s; ", facts.library, ids && memcmp(&one, &two, sizeof one) ? "differ" : "do not differ");
    gm_status st = gm_links_open(&device, &one, 1, 0, &link);
    if (st == GM_OK) st = gm_links_ready(link, &ready);
    printf("%s\n", st == GM_OK ? "made" : gm_last_error());
    gm_links_close(link, false);
    return 0;
}
