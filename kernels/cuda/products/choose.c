/* choose.c - see choose.h. */
#include "choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../runtime/driver.h"
#include "../runtime/hash.h"
#include "trial.h"

/* A kind that was met here, or that only a given choice has named so far. */
typedef struct entry {
    gm_kind          kind;         /* if met */
    bool             met, settled; /* settled: there is nothing to time, or it was tried */
    char            *text;
    const gm_way    *way; /* that counts; NULL: none */
    gm_variant       variant;
    double           seconds;
    gm_trial_results results; /* of its own trials; results.n is 0 before them */
} entry;

struct gm_products {
    entry **entries; /* in the order in which they came */
    size_t  n, room;
    entry **slots; /* those that were met, by hash; a power of two, at most half of them used */
    size_t  n_slots, met;
    int     trying; /* trials under way, one inside of the other */
};

/* ---- the table ---- */

static gm_status no_memory(void) { return GM_FAIL(GM_ENOMEM, "no memory for the choices of ways to make products"); }

static gm_status products_of(gm_cuda *cu, gm_products **out)
{
    if (!cu->products && !(cu->products = calloc(1, sizeof *cu->products))) return no_memory();
    *out = cu->products;
    return GM_OK;
}

static void free_entry(entry *e)
{
    if (!e) return;
    free(e->text);
    free(e);
}

void gm_products_free(gm_products *products)
{
    if (!products) return;
    for (size_t i = 0; i < products->n; i++) free_entry(products->entries[i]);
    free(products->entries);
    free(products->slots);
    free(products);
}

/* The slot of the kind, or the free one where it belongs. */
static entry **slot_of(entry **slots, size_t n, const gm_kind *kind)
{
    size_t i = gm_hash_bytes(kind, sizeof *kind) & (n - 1);
    while (slots[i] && memcmp(&slots[i]->kind, kind, sizeof *kind)) i = (i + 1) & (n - 1);
    return &slots[i];
}

static gm_status grow_slots(gm_products *ps)
{
    size_t  n = ps->n_slots ? 2 * ps->n_slots : 64;
    entry **slots = calloc(n, sizeof *slots);
    if (!slots) return no_memory();
    for (size_t i = 0; i < ps->n_slots; i++)
        if (ps->slots[i]) *slot_of(slots, n, &ps->slots[i]->kind) = ps->slots[i];
    free(ps->slots);
    ps->slots = slots;
    ps->n_slots = n;
    return GM_OK;
}

static entry *find_text(const gm_products *ps, const char *text)
{
    for (size_t i = 0; i < ps->n; i++)
        if (!strcmp(ps->entries[i]->text, text)) return ps->entries[i];
    return NULL;
}

static gm_status new_entry(gm_products *ps, const char *text, entry **out)
{
    if (ps->n == ps->room) {
        size_t  room = ps->room ? 2 * ps->room : 64;
        entry **entries = realloc(ps->entries, room * sizeof *entries);
        if (!entries) return no_memory();
        ps->entries = entries;
        ps->room = room;
    }
    entry *e = calloc(1, sizeof *e);
    if (!e || !(e->text = strdup(text))) {
        free_entry(e);
        return no_memory();
    }
    *out = ps->entries[ps->n++] = e;
    return GM_OK;
}

static gm_status entry_of(gm_products *ps, const gm_kind *kind, entry **out)
{
    char text[GM_KIND_TEXT];
    if (2 * ps->met >= ps->n_slots) GM_TRY(grow_slots(ps));
    entry **slot = slot_of(ps->slots, ps->n_slots, kind);
    if (!*slot) {
        entry *e = find_text(ps, gm_kind_text(kind, text));
        if (!e) GM_TRY(new_entry(ps, text, &e));
        e->kind = *kind;
        e->met = true;
        *slot = e;
        ps->met++;
    }
    *out = *slot;
    return GM_OK;
}

/* ---- choosing ---- */

static void take_fastest(entry *e)
{
    const gm_trial_result *best = &e->results.of[e->results.best];
    e->way = best->way;
    e->variant = best->variant;
    e->seconds = best->seconds;
}

/* Where there is no memory for trials, the rule decides. */
static gm_status time_it(gm_device *dev, gm_products *ps, const gm_product *p, entry *e)
{
    e->settled = true;
    ps->trying++;
    gm_status st = gm_trial_run(dev, p, &e->results);
    ps->trying--;
    if (st != GM_OK) e->results.n = 0;
    if (e->results.n && dev->timing == GM_TIMING_ALONE) take_fastest(e);
    return st == GM_ENOMEM ? GM_OK : st;
}

gm_status gm_products_choose(gm_device *dev, const gm_product *p, const gm_way **way, const gm_variant **variant,
                             const char **kind)
{
    gm_cuda     *cu = gm_cuda_of(dev);
    gm_products *ps = NULL;
    gm_kind      of;
    entry       *e;
    *way = NULL;
    if (dev->timing == GM_TIMING_NONE && !cu->products) return GM_OK; /* nothing was ever chosen */
    GM_TRY(products_of(cu, &ps));
    gm_kind_of(p, dev->tf32, &of);
    GM_TRY(entry_of(ps, &of, &e));
    if (!e->way && !e->settled && dev->timing != GM_TIMING_NONE && !cu->graph) GM_TRY(time_it(dev, ps, p, e));
    *kind = e->text;
    if (e->way) {
        *way = e->way;
        *variant = &e->variant;
    } else if (ps->trying && e->results.n) { /* a part of a way that is being timed takes its own fastest way */
        *way = e->results.of[e->results.best].way;
        *variant = &e->results.of[e->results.best].variant;
    }
    return GM_OK;
}

/* ---- what the host sees ---- */

static bool is_choice(const entry *e) { return e->way || e->results.n; }

static void describe(const entry *e, gm_choice *out)
{
    const gm_trial_results *r = &e->results;
    const gm_trial_result   counts = {.way = e->way, .variant = e->variant, .seconds = e->seconds};
    const gm_trial_result  *chosen = e->way ? &counts : &r->of[r->best];
    *out = (gm_choice){.kind = e->text, .seconds = chosen->seconds, .counts = e->way != NULL, .n_tried = r->n};
    snprintf(out->way, sizeof out->way, "%s", chosen->way->name);
    memcpy(out->word, chosen->variant.word, sizeof out->word);
    for (int i = 0; i < r->n; i++) {
        snprintf(out->tried[i].way, sizeof out->tried[i].way, "%s", r->of[i].way->name);
        out->tried[i].seconds = r->of[i].seconds;
    }
}

static bool get(gm_device *dev, int i, gm_choice *out)
{
    const gm_products *ps = gm_cuda_of(dev)->products;
    for (size_t at = 0; ps && at < ps->n; at++) {
        if (!is_choice(ps->entries[at]) || i-- > 0) continue;
        describe(ps->entries[at], out);
        return true;
    }
    return false;
}

static gm_status way_named(const char *name, const gm_way **out)
{
    char known[128] = "";
    for (int i = 0; gm_ways[i]; i++) {
        if (!strcmp(gm_ways[i]->name, name)) {
            *out = gm_ways[i];
            return GM_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", gm_ways[i]->name);
    }
    return GM_FAIL(GM_EINVAL, "there is no way to make products named \"%s\"; there are %s", name, known);
}

static gm_status take(gm_device *dev, const gm_choice *c)
{
    gm_products  *ps = NULL;
    const gm_way *way = NULL;
    GM_TRY(way_named(c->way, &way));
    GM_TRY(products_of(gm_cuda_of(dev), &ps));
    entry *e = find_text(ps, c->kind);
    if (!e) GM_TRY(new_entry(ps, c->kind, &e));
    e->way = way;
    memcpy(e->variant.word, c->word, sizeof e->variant.word);
    e->seconds = c->seconds;
    return GM_OK;
}

/* The kind of GPU, which many have: not its name or number. */
static gm_status describe_device(const gm_cuda *cu, char *buf, size_t size)
{
    int    major, minor;
    size_t bytes;
    GM_CU(cu->driver, cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, cu->device));
    GM_CU(cu->driver, cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, cu->device));
    GM_CU(cu->driver, cuDeviceTotalMem(&bytes, cu->device));
    snprintf(buf, size, "sm_%d%d, %d multiprocessors, %.0f GiB", major, minor, cu->multiprocessors,
             (double)bytes / (1 << 30));
    return GM_OK;
}

static char *about(const gm_device *dev, char *buf, size_t size)
{
    const gm_cuda *cu = gm_cuda_of(dev);
    if (describe_device(cu, buf, size) != GM_OK) snprintf(buf, size, "a GPU that does not say what it is");
    for (int i = 0; gm_ways[i]; i++) {
        size_t used = strlen(buf);
        if (gm_ways[i]->about) gm_ways[i]->about(dev, buf + used, size - used);
    }
    return buf;
}

const gm_choices gm_cuda_choices = {.get = get, .take = take, .about = about};
