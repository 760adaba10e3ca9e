/* device.c - backends by name, and the life of a device. */
#define _GNU_SOURCE
#include "device.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/cpu.h"
#include "meta/meta.h"
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

gm_status gm_device_new(const char *backend, int threads, gm_device **out)
{
    gm_status         st;
    const gm_backend *be = gm_backend_find(backend);
    if (!be) return GM_FAIL(GM_EINVAL, "there is no backend '%s' here; cpu, ref and meta exist", backend);
    gm_device *dev = calloc(1, sizeof *dev);
    if (!dev) return GM_FAIL(GM_ENOMEM, "no memory for a device");
    dev->backend = be;
    dev->step = (gm_step_block){.step = 1, .clip = 1, .loss_scale = 1};
    GM_TRY_OR(gm_pool_new(&be->memory, &dev->pool), st, fail);
    if (be->has_data) GM_TRY_OR(gm_threads_new(threads > 0 ? threads : usable_cores(), &dev->threads), st, fail);
    *out = dev;
    return GM_OK;
fail:
    gm_device_free(dev);
    return st;
}

void gm_device_free(gm_device *dev)
{
    if (!dev) return;
    gm_threads_free(dev->threads);
    gm_pool_free(dev->pool);
    free(dev);
}
