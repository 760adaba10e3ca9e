/* link_trial.c - gm_links_try: runs every kind of operation on a link of one device with itself. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "../../kernels/clock.h"
#include "../../kernels/graph.h"
#include "comm.h"
#include "links.h"

#define COUNT   INT64_C(1000) /* numbers of an operation */
#define SECONDS 60            /* that the library may take for a step that needs nobody else */

typedef struct trial {
    gm_device *dev;
    gm_link   *link;
    gm_tensor *from, *to; /* f32 (COUNT) */
} trial;

static const char *const names[] = {
    [GM_LINK_ALL_REDUCE] = "all_reduce",         [GM_LINK_REDUCE] = "reduce",
    [GM_LINK_BROADCAST] = "broadcast",           [GM_LINK_ALL_GATHER] = "all_gather",
    [GM_LINK_REDUCE_SCATTER] = "reduce_scatter", [GM_LINK_SEND] = "send to itself",
};

static gm_status await(const trial *t, const char *what)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const double          end = gm_now() + SECONDS;
    bool                  ready = false;
    GM_TRY(gm_links_ready(t->link, &ready));
    while (!ready) {
        if (gm_now() > end)
            return GM_FAIL(GM_EHANG, "a link of one device: %s took more than %d seconds", what, SECONDS);
        nanosleep(&pause, NULL);
        GM_TRY(gm_links_ready(t->link, &ready));
    }
    return GM_OK;
}

static gm_status move(const trial *t, gm_link_kind kind)
{
    const gm_queues *queues = t->dev->backend->queues;
    gm_ticket       *ticket = NULL;
    gm_link_move moves[2] = {{.kind = kind, .dtype = GM_F32, .count = (size_t)COUNT, .from = gm_tensor_data(t->from)}};
    int          n = kind == GM_LINK_SEND ? 2 : 1;
    gm_status    st;
    moves[1] = moves[0];
    moves[1].kind = GM_LINK_RECEIVE;
    moves[n - 1].to = gm_tensor_data(t->to);
    GM_TRY(queues->fork(t->dev, &ticket));
    GM_TRY_OR(gm_links_issue(t->link, ticket, moves, n), st, done);
    GM_TRY_OR(await(t, names[kind]), st, done);
    GM_TRY_OR(queues->leave(gm_links_queue(t->link), ticket), st, done);
    st = queues->order(t->dev, ticket);
done:
    queues->give(t->dev, ticket);
    return st;
}

/* What arrives is what was sent: one place adds up to itself. graph NULL: an operation of this kind is made. */
static gm_status try_kind(const trial *t, gm_link_kind kind, gm_graph *graph)
{
    float    sent[COUNT], got[COUNT];
    gm_attrs zero = gm_attrs_default();
    for (int i = 0; i < COUNT; i++) sent[i] = (float)(i + kind);
    GM_TRY(gm_run_one(t->dev, GM_OP_fill, &zero, NULL, t->to));
    GM_TRY(gm_device_write(t->dev, gm_tensor_data(t->from), sent, sizeof sent));
    GM_TRY(graph ? gm_device_replay(t->dev, graph) : move(t, kind));
    GM_TRY(gm_device_read(t->dev, got, gm_tensor_data(t->to), sizeof got));
    if (!memcmp(sent, got, sizeof sent)) return GM_OK;
    return GM_FAIL(GM_ECOMM, "a link of one device: %s%s brought other numbers than were sent", names[kind],
                   graph ? " in a graph" : "");
}

/* An operation of this kind in a graph that is replayed twice. */
static gm_status try_in_graph(const trial *t, gm_link_kind kind)
{
    gm_graph *graph = NULL;
    char      error[1100];
    GM_TRY(gm_device_capture_begin(t->dev));
    gm_graph_link(t->dev->capture);
    gm_status st = move(t, kind);
    if (st == GM_OK) st = gm_device_capture_end(t->dev, &graph);
    snprintf(error, sizeof error, "%s", gm_last_error());
    gm_device_capture_drop(t->dev);
    if (st != GM_OK) return gm_fail_again(st, error);
    for (int i = 0; i < 2 && st == GM_OK; i++) st = try_kind(t, kind, graph);
    gm_graph_free(graph); /* before its link */
    return st;
}

static gm_status try_all(trial *t)
{
    gm_link_id id;
    GM_TRY(gm_links_new_id(&id));
    GM_TRY(gm_links_open(t->dev, &id, 1, 0, &t->link));
    GM_TRY(await(t, "opening it"));
    GM_TRY(gm_tensor_new(t->dev, GM_F32, 1, (int64_t[]){COUNT}, &t->from));
    GM_TRY(gm_tensor_new(t->dev, GM_F32, 1, (int64_t[]){COUNT}, &t->to));
    for (int kind = GM_LINK_ALL_REDUCE; kind <= GM_LINK_SEND; kind++) GM_TRY(try_kind(t, (gm_link_kind)kind, NULL));
    for (int kind = GM_LINK_ALL_REDUCE; kind <= GM_LINK_SEND; kind++) GM_TRY(try_in_graph(t, (gm_link_kind)kind));
    return GM_OK;
}

gm_status gm_links_try(gm_device *dev, gm_link_facts *facts)
{
    trial t = {.dev = dev};
    if (!dev->backend->queues) return GM_FAIL(GM_EINVAL, "a %s device has no links to others", dev->backend->name);
    GM_TRY(gm_links_find(facts));
    gm_status st = try_all(&t);
    gm_links_close(t.link, st == GM_OK);
    gm_tensor_release(t.from);
    gm_tensor_release(t.to);
    return st;
}
