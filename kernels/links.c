/* links.c - a link of one place, tried: every kind of operation through the library that would carry those of many. */
#include "links.h"

#include <string.h>
#include <time.h>

#include "device.h"

#define COUNT   INT64_C(1000) /* numbers of an operation */
#define SECONDS 60            /* that the library may take for a step that needs nobody else */

typedef struct trial {
    gm_device      *dev;
    const gm_links *links;
    gm_link        *link;
    gm_tensor      *from, *to; /* f32 (COUNT) */
} trial;

static const char *const names[] = {
    [GM_LINK_ALL_REDUCE] = "all_reduce",         [GM_LINK_REDUCE] = "reduce",
    [GM_LINK_BROADCAST] = "broadcast",           [GM_LINK_ALL_GATHER] = "all_gather",
    [GM_LINK_REDUCE_SCATTER] = "reduce_scatter", [GM_LINK_SEND] = "send to itself",
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static gm_status await(const trial *t, const char *what)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const double          end = seconds() + SECONDS;
    bool                  ready = false;
    GM_TRY(t->links->ready(t->link, &ready));
    while (!ready) {
        if (seconds() > end)
            return GM_FAIL(GM_EHANG, "a link of one device: %s took more than %d seconds", what, SECONDS);
        nanosleep(&pause, NULL);
        GM_TRY(t->links->ready(t->link, &ready));
    }
    return GM_OK;
}

static gm_status move(const trial *t, gm_link_kind kind)
{
    gm_ticket   *ticket = NULL;
    gm_link_move moves[2] = {{.kind = kind, .dtype = GM_F32, .count = (size_t)COUNT, .from = gm_tensor_data(t->from)}};
    int          n = kind == GM_LINK_SEND ? 2 : 1;
    gm_status    st;
    moves[1] = moves[0];
    moves[1].kind = GM_LINK_RECEIVE;
    moves[n - 1].to = gm_tensor_data(t->to);
    GM_TRY(t->links->enter(t->dev, &ticket));
    GM_TRY_OR(t->links->issue(t->link, ticket, moves, n), st, done);
    GM_TRY_OR(await(t, names[kind]), st, done);
    GM_TRY_OR(t->links->leave(t->link, ticket), st, done);
    st = t->links->order(t->dev, ticket);
done:
    t->links->give(t->dev, ticket);
    return st;
}

/* What arrives is what was sent: one place adds up to itself. */
static gm_status try_kind(const trial *t, gm_link_kind kind)
{
    float    sent[COUNT], got[COUNT];
    gm_attrs zero = gm_attrs_default();
    for (int i = 0; i < COUNT; i++) sent[i] = (float)(i + kind);
    GM_TRY(gm_run_one(t->dev, GM_OP_fill, &zero, NULL, t->to));
    GM_TRY(gm_device_write(t->dev, gm_tensor_data(t->from), sent, sizeof sent));
    GM_TRY(move(t, kind));
    GM_TRY(gm_device_read(t->dev, got, gm_tensor_data(t->to), sizeof got));
    if (!memcmp(sent, got, sizeof sent)) return GM_OK;
    return GM_FAIL(GM_ECOMM, "a link of one device: %s brought other numbers than were sent", names[kind]);
}

static gm_status try_all(trial *t)
{
    gm_link_id id;
    GM_TRY(t->links->new_id(t->dev, &id));
    GM_TRY(t->links->open(t->dev, &id, 1, 0, &t->link));
    GM_TRY(await(t, "opening it"));
    GM_TRY(gm_tensor_new(t->dev, GM_F32, 1, (int64_t[]){COUNT}, &t->from));
    GM_TRY(gm_tensor_new(t->dev, GM_F32, 1, (int64_t[]){COUNT}, &t->to));
    for (int kind = GM_LINK_ALL_REDUCE; kind <= GM_LINK_SEND; kind++) GM_TRY(try_kind(t, (gm_link_kind)kind));
    return GM_OK;
}

gm_status gm_links_try(gm_device *dev, gm_link_facts *facts)
{
    trial t = {.dev = dev, .links = dev->backend->links};
    if (!t.links) return GM_FAIL(GM_EINVAL, "a %s device has no links to others", dev->backend->name);
    GM_TRY(t.links->find(dev, facts));
    gm_status st = try_all(&t);
    t.links->close(t.link, st == GM_OK);
    gm_tensor_release(t.from);
    gm_tensor_release(t.to);
    return st;
}
