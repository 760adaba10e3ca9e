/* device.c - finds backends by name, opens and closes devices, and runs calls (see device.h). */
#define _GNU_SOURCE
#include "device.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "arena.h"
#include "cpu/cpu.h"
#include "cuda/runtime/find.h"
#include "graph.h"
#include "graph_host.h"
#include "meta/meta.h"
#include "profile.h"
#include "journal.h"
#include "ref/ref.h"

const gm_backend *gm_backend_find(const char *name)
{
    if (!strcmp(name, "ref")) return &gm_ref;
    if (!strcmp(name, "meta")) return &gm_meta;
    if (!strncmp(name, "cpu", 3)) return gm_cpu_find(name);
    return NULL;
}

static int usable_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

/* "cuda" or "cuda:N": the backend that the module beside the executable holds. */
static gm_status find_with_ordinal(const char *name, const gm_backend **be, int *ordinal)
{
    *ordinal = 0;
    if (!strncmp(name, "cuda", 4) && (!name[4] || name[4] == ':')) {
        char *end = NULL;
        long  n = name[4] ? strtol(name + 5, &end, 10) : 0;
        if (n < 0 || n > INT_MAX || (end && (end == name + 5 || *end)))
            return GM_FAIL(GM_EINVAL, "'%s' is no device: cuda, cuda:0, cuda:1, ...", name);
        *ordinal = (int)n;
        return gm_cuda_find(be);
    }
    *be = gm_backend_find(name);
    return *be ? GM_OK : GM_FAIL(GM_EINVAL, "there is no backend '%s' here; cpu, cuda, ref and meta exist", name);
}

bool gm_device_exists(const char *backend)
{
    int               ordinal;
    const gm_backend *be;
    gm_cuda_api       api;
    if (find_with_ordinal(backend, &be, &ordinal) != GM_OK) return false;
    return be->on_host || !be->has_data || (gm_cuda_load(&api) == GM_OK && api.probe() == GM_OK);
}

gm_status gm_device_facts(gm_device_fact *out, int n, int *found)
{
    gm_cuda_api api;
    *found = 0;
    GM_TRY(gm_cuda_load(&api));
    *found = api.facts(out, n);
    return GM_OK;
}

gm_status gm_device_new(const char *backend, int threads, gm_device **out)
{
    gm_status         st;
    int               ordinal;
    const gm_backend *be;
    GM_TRY(find_with_ordinal(backend, &be, &ordinal));
    gm_device *dev = calloc(1, sizeof *dev);
    if (!dev) return GM_FAIL(GM_ENOMEM, "no memory for a device");
    dev->backend = be;
    dev->step = (gm_step_block){.step = 1, .clip = 1, .loss_scale = 1};
    if (be->open) GM_TRY_OR(be->open(dev, ordinal), st, fail);
    GM_TRY_OR(gm_pool_new(&be->memory, dev, &dev->pool), st, fail);
    if (be->on_host) GM_TRY_OR(gm_threads_new(threads > 0 ? threads : usable_cores(), &dev->threads), st, fail);
    *out = dev;
    return GM_OK;
fail:
    gm_device_free(dev);
    return st;
}

gm_status gm_device_new_beside(gm_device *dev, int threads, gm_device **out)
{
    bool has_data = dev->backend->has_data;
    if (dev->backend->on_host)
        return GM_FAIL(GM_EINVAL, "%s needs no device of the host beside it: its memory is the host's",
                       dev->backend->name);
    GM_TRY(gm_device_new(has_data ? "cpu" : "meta", threads, out));
    if (!has_data) return GM_OK;
    gm_pool_free((*out)->pool);
    (*out)->pool = NULL;
    gm_status st = gm_pool_new(&dev->backend->pinned, dev, &(*out)->pool);
    if (st == GM_OK) return GM_OK;
    gm_device_free(*out);
    *out = NULL;
    return st;
}

void gm_device_free(gm_device *dev)
{
    if (!dev) return;
    gm_device_capture_drop(dev);
    gm_threads_free(dev->threads);
    gm_profile_free(dev);
    if (dev->pool) gm_pool_set_journal(dev->pool, NULL);
    gm_journal_free(dev->journal);
    gm_pool_free(dev->pool);
    gm_pool_free(dev->host);
    if (dev->backend->close) dev->backend->close(dev);
    free(dev->notes);
    free(dev);
}

/* ---- memory that ranks share ---- */

static gm_status take_shared(void *device, size_t bytes, void **out)
{
    char       text[300];
    gm_device *dev = device;
    gm_status  st = gm_arena_take(dev->arena, bytes, out);
    if (st == GM_OK) return GM_OK;
    snprintf(text, sizeof text, "%.200s; further tensors lie in memory of this rank alone", gm_last_error());
    gm_device_note(dev, text);
    return st;
}

static void give_shared(void *device, void *p, size_t bytes) { gm_arena_give(((gm_device *)device)->arena, p, bytes); }

void gm_device_share(gm_device *dev, gm_arena *arena)
{
    static const gm_raw_memory memory = {take_shared, give_shared};
    if (!dev->backend->on_host || !dev->backend->has_data) return;
    if (arena) dev->arena = arena;
    gm_pool_lend(dev->pool, arena ? &memory : NULL, dev);
}

#define NOTES 16 /* what comes after so many is not kept: each asks for the same remedies */

struct gm_notes {
    int  n, next;
    char text[NOTES][320];
};

void gm_device_note(gm_device *dev, const char *text)
{
    if (!dev->notes && !(dev->notes = calloc(1, sizeof *dev->notes))) return;
    struct gm_notes *notes = dev->notes;
    for (int i = 0; i < notes->n; i++)
        if (!strncmp(notes->text[i], text, sizeof notes->text[i] - 1)) return;
    if (notes->n < NOTES) snprintf(notes->text[notes->n++], sizeof notes->text[0], "%s", text);
}

bool gm_device_next_note(gm_device *dev, char *buf, size_t size)
{
    if (!dev->notes || dev->notes->next == dev->notes->n) return false;
    snprintf(buf, size, "%s", dev->notes->text[dev->notes->next++]);
    return true;
}

bool gm_device_count(const gm_device *dev, gm_device_counts *out)
{
    *out = (gm_device_counts){0};
    if (dev->backend->counts) dev->backend->counts(dev, out);
    return dev->backend->counts != NULL;
}

static bool is_gpu(const gm_device *dev) { return !dev->backend->on_host && dev->backend->has_data; }

void gm_device_set_tf32(gm_device *dev, bool wanted, bool *effect)
{
    dev->tf32 = wanted;
    *effect = is_gpu(dev);
}

void gm_device_time_products(gm_device *dev, gm_timing timing, bool *effect)
{
    dev->timing = timing;
    *effect = is_gpu(dev);
}

void gm_device_set_deterministic(gm_device *dev, bool wanted, bool *effect)
{
    dev->deterministic = wanted;
    *effect = is_gpu(dev);
}

/* ---- bytes ---- */

static gm_status move(gm_device *dev, gm_status (*how)(gm_device *, void *, const void *, size_t), void *to,
                      const void *from, size_t bytes)
{
    if (!bytes || !dev->backend->has_data) return GM_OK;
    if (how) return how(dev, to, from, bytes);
    GM_TRY(gm_host_is_free(dev, "to move bytes"));
    memmove(to, from, bytes);
    return GM_OK;
}

gm_status gm_device_read(gm_device *dev, void *host, const void *device, size_t bytes)
{
    return move(dev, dev->backend->read, host, device, bytes);
}

gm_status gm_device_write(gm_device *dev, void *device, const void *host, size_t bytes)
{
    return move(dev, dev->backend->write, device, host, bytes);
}

gm_status gm_device_copy(gm_device *dev, void *to, const void *from, size_t bytes)
{
    return move(dev, dev->backend->copy, to, from, bytes);
}

gm_status gm_device_synchronize(gm_device *dev)
{
    return dev->backend->synchronize ? dev->backend->synchronize(dev) : GM_OK;
}

/* ---- copies that nobody waits for ---- */

static gm_status no_copies(const gm_device *dev)
{
    return GM_FAIL(GM_EINVAL, "%s has no copies to wait for: its memory is the host's", dev->backend->name);
}

gm_status gm_device_host_pool(gm_device *dev, gm_pool **out)
{
    if (!dev->backend->pinned.alloc) return no_copies(dev);
    if (!dev->host) GM_TRY(gm_pool_new(&dev->backend->pinned, dev, &dev->host));
    *out = dev->host;
    return GM_OK;
}

gm_status gm_device_read_later(gm_device *dev, void *pinned, const void *device, size_t bytes)
{
    if (!dev->backend->read_later) return no_copies(dev);
    return bytes ? dev->backend->read_later(dev, pinned, device, bytes) : GM_OK;
}

gm_status gm_device_write_later(gm_device *dev, void *device, const void *pinned, size_t bytes)
{
    if (!dev->backend->write_later) return no_copies(dev);
    return bytes ? dev->backend->write_later(dev, device, pinned, bytes) : GM_OK;
}

gm_status gm_device_mark(gm_device *dev, void **mark)
{
    return dev->backend->mark ? dev->backend->mark(dev, mark) : no_copies(dev);
}

gm_status gm_device_passed(gm_device *dev, void *mark, bool *passed)
{
    return dev->backend->passed ? dev->backend->passed(dev, mark, passed) : no_copies(dev);
}

void gm_device_unmark(gm_device *dev, void *mark)
{
    if (mark) dev->backend->unmark(dev, mark);
}
