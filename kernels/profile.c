/* profile.c - see profile.h. */
#include "profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "philox.h"

/* A moment: an event of the device, made once and recorded again and again, or the clock. */
typedef struct moment {
    void  *event;
    double clock;
} moment;

typedef struct span {
    moment from, to;
    int    line; /* of a call that is under way; -1: none */
} span;

struct gm_profile {
    bool             runs, inside; /* inside: a kernel calls ops itself */
    gm_profile_line *lines;
    int              n, room;
    span             spans[GM_PROFILE_SPANS];
    unsigned         next;
};

/* ---- moments ---- */

static gm_status note(gm_device *dev, moment *m)
{
    if (dev->backend->stamp) return dev->backend->stamp(dev, &m->event);
    m->clock = gm_now();
    return GM_OK;
}

/* Adds what the call of this span took, waiting until it is over. */
static gm_status settle(gm_device *dev, struct gm_profile *p, span *s)
{
    double seconds = s->to.clock - s->from.clock;
    int    line = s->line;
    if (line < 0) return GM_OK;
    s->line = -1;
    if (dev->backend->elapsed) GM_TRY(dev->backend->elapsed(dev, s->from.event, s->to.event, &seconds));
    p->lines[line].seconds += seconds;
    return GM_OK;
}

static gm_status settle_all(gm_device *dev, struct gm_profile *p)
{
    for (int i = 0; i < GM_PROFILE_SPANS; i++) GM_TRY(settle(dev, p, &p->spans[i]));
    return GM_OK;
}

/* ---- kinds of calls ---- */

typedef struct text {
    char  *at;
    size_t room;
} text;

static void add(text *t, const char *word)
{
    size_t n = strlen(word);
    if (n >= t->room) n = t->room - 1;
    memcpy(t->at, word, n);
    t->at[n] = 0;
    t->at += n;
    t->room -= n;
}

static void add_shape(text *t, const gm_tensor *x)
{
    char number[24];
    add(t, " (");
    for (int d = 0; d < x->ndim; d++) {
        snprintf(number, sizeof number, d ? ", %lld" : "%lld", (long long)x->shape[d]);
        add(t, number);
    }
    add(t, ")");
}

void gm_profile_describe(const gm_call *call, char *buf, size_t size)
{
    text              t = {buf, size};
    int               n = call->n_in ? call->n_in : call->n_out, said = 0;
    gm_tensor *const *list = call->n_in ? call->in : call->out;
    char              count[32];
    buf[0] = 0;
    for (int i = 0; i < n && said < 2; i++) {
        if (!list[i]) continue;
        if (!said++) add(&t, gm_dtype_name(list[i]->dtype));
        add_shape(&t, list[i]);
    }
    if (n > GM_MAX_SLOTS) {
        snprintf(count, sizeof count, " ... of %d", n);
        add(&t, count);
    }
    if (call->attrs->function) {
        add(&t, " ");
        add(&t, gm_function_name(call->attrs->function));
    }
    if (call->attrs->causal) add(&t, call->attrs->window ? " causal window" : " causal");
}

void gm_profile_path(const gm_device *dev, char *buf, size_t size)
{
    const char *place = gm_pool_place(dev->pool), *end = strrchr(place, ':');
    size_t      n = end ? (size_t)(end - place) : strlen(place);
    n = n < size ? n : size - 1;
    memcpy(buf, place, n);
    buf[n] = 0;
}

static gm_status line_of(gm_device *dev, struct gm_profile *p, const gm_call *call, int *out)
{
    char about[sizeof p->lines->about], path[sizeof p->lines->path];
    gm_profile_describe(call, about, sizeof about);
    gm_profile_path(dev, path, sizeof path);
    uint64_t hash = gm_hash_text(gm_hash_text(GM_HASH_START + (uint64_t)call->op, about), path);
    for (*out = 0; *out < p->n; ++*out) {
        const gm_profile_line *l = &p->lines[*out];
        if (l->hash == hash && l->op == call->op && !strcmp(l->about, about) && !strcmp(l->path, path)) return GM_OK;
    }
    if (p->n == p->room) {
        int              room = p->room ? 2 * p->room : 64;
        gm_profile_line *lines = realloc(p->lines, (size_t)room * sizeof *lines);
        if (!lines) return GM_FAIL(GM_ENOMEM, "no memory for the lines of a profile");
        p->lines = lines;
        p->room = room;
    }
    gm_profile_line *line = &p->lines[p->n++];
    *line = (gm_profile_line){.op = call->op, .hash = hash};
    memcpy(line->about, about, sizeof about);
    memcpy(line->path, path, sizeof path);
    return GM_OK;
}

/* ---- the device's profile ---- */

gm_status gm_profile_start(gm_device *dev)
{
    if (!dev->profile && !(dev->profile = calloc(1, sizeof *dev->profile)))
        return GM_FAIL(GM_ENOMEM, "no memory for a profile");
    for (int i = 0; i < GM_PROFILE_SPANS; i++) dev->profile->spans[i].line = -1;
    dev->profile->n = 0;
    dev->profile->runs = true;
    return GM_OK;
}

static int by_seconds(const void *a, const void *b)
{
    const gm_profile_line *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
    if (x->op != y->op) return (int)x->op - (int)y->op;
    int about = strcmp(x->about, y->about);
    return about ? about : strcmp(x->path, y->path);
}

gm_status gm_profile_stop(gm_device *dev)
{
    struct gm_profile *p = dev->profile;
    if (!p || !p->runs) return GM_OK;
    p->runs = false;
    GM_TRY(settle_all(dev, p));
    if (p->n) qsort(p->lines, (size_t)p->n, sizeof *p->lines, by_seconds);
    return GM_OK;
}

bool gm_profile_runs(const gm_device *dev)
{
    return dev->profile && dev->profile->runs && !dev->profile->inside && !dev->capture;
}

void gm_profile_lines(gm_device *dev, const gm_profile_line **out, int *n)
{
    *n = dev->profile && !dev->profile->runs ? dev->profile->n : 0;
    *out = *n ? dev->profile->lines : NULL;
}

static gm_status compute(gm_device *dev, struct gm_profile *p, const gm_call *call)
{
    p->inside = true;
    gm_status st = dev->backend->kernel[call->op](dev, call);
    p->inside = false;
    return st;
}

gm_status gm_profile_call(gm_device *dev, const gm_call *call, double flops, double bytes)
{
    struct gm_profile *p = dev->profile;
    span              *s = &p->spans[p->next++ % GM_PROFILE_SPANS];
    int                line;
    GM_TRY(settle(dev, p, s));
    GM_TRY(line_of(dev, p, call, &line));
    GM_TRY(note(dev, &s->from));
    GM_TRY(compute(dev, p, call));
    GM_TRY(note(dev, &s->to));
    s->line = line;
    p->lines[line].calls++;
    p->lines[line].flops += flops;
    p->lines[line].bytes += bytes;
    return GM_OK;
}

void gm_profile_free(gm_device *dev)
{
    struct gm_profile *p = dev->profile;
    if (!p) return;
    for (int i = 0; i < GM_PROFILE_SPANS; i++) {
        gm_device_unmark(dev, p->spans[i].from.event);
        gm_device_unmark(dev, p->spans[i].to.event);
    }
    free(p->lines);
    free(p);
    dev->profile = NULL;
}
