/* energy.c - see energy.h. NVML is loaded at run time and declared here as NVIDIA documents it (nvml.h), so that
 * machines without its header build this too. */
#include "energy.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/clock.h"

#define PACKAGES 64

typedef struct package {
    char     path[320];
    uint64_t last, range, used; /* microjoules */
} package;

typedef struct nvml {
    void *library, *device;
    int (*init)(void);
    int (*shutdown)(void);
    int (*by_uuid)(const char *uuid, void **device);
    int (*energy)(void *device, unsigned long long *millijoules);
    const char *(*words)(int error);
} nvml;

struct gm_energy {
    package            packages[PACKAGES];
    int                n;
    nvml               nvml;
    unsigned long long first, last; /* millijoules of the GPU */
    double             at;          /* when the counters were read: gm_now */
    gm_energy_report   report;      /* what is known without reading: names, reasons */
};

/* ---- CPUs ---- */

static bool first_line(const char *path, char *buf, size_t size)
{
    FILE *file = fopen(path, "re");
    bool  read = file && fgets(buf, (int)size, file);
    if (file) fclose(file);
    else if (!errno) errno = EIO;
    buf[read ? strcspn(buf, "\n") : 0] = 0;
    return read;
}

static bool read_number(const char *path, uint64_t *out)
{
    char text[64], *end;
    errno = 0;
    if (!first_line(path, text, sizeof text)) return false;
    *out = strtoull(text, &end, 10);
    errno = 0;
    return end != text && !*end;
}

/* "PATH: Permission denied", or that it holds no number. */
static void unreadable(gm_energy *e, const char *path)
{
    snprintf(e->report.cpu_reason, sizeof e->report.cpu_reason, "%.200s: %s (often root's alone: chmod a+r it)", path,
             errno ? strerror(errno) : "no number");
    e->report.has_cpu = false;
}

static bool add_package(gm_energy *e, const char *place)
{
    char     path[320];
    package *p = &e->packages[e->n];
    snprintf(path, sizeof path, "%.280s/max_energy_range_uj", place);
    p->used = 0;
    snprintf(p->path, sizeof p->path, "%.280s/energy_uj", place);
    bool read = read_number(p->path, &p->last);
    if (!read) unreadable(e, p->path);
    else if (!(read = read_number(path, &p->range))) unreadable(e, path);
    e->n += read;
    return read;
}

/* All packages, or none and the reason. */
static void find_packages(gm_energy *e, const char *folder)
{
    char place[300], path[320], name[64];
    e->report.has_cpu = true;
    for (int i = 0; i < 256 && e->n < PACKAGES && e->report.has_cpu; i++) {
        snprintf(place, sizeof place, "%.260s/intel-rapl:%d", folder, i);
        snprintf(path, sizeof path, "%s/name", place);
        if (!first_line(path, name, sizeof name)) break;
        if (!strncmp(name, "package", 7) && !add_package(e, place)) return;
    }
    if (e->n) return;
    e->report.has_cpu = false;
    snprintf(e->report.cpu_reason, sizeof e->report.cpu_reason, "%.200s has no RAPL counters of CPU packages", folder);
}

static void update_packages(gm_energy *e)
{
    for (int i = 0; i < e->n && e->report.has_cpu; i++) {
        package *p = &e->packages[i];
        uint64_t value;
        if (!read_number(p->path, &value)) {
            unreadable(e, p->path);
            return;
        }
        p->used += value >= p->last ? value - p->last : value + p->range + 1 - p->last;
        p->last = value;
    }
}

/* ---- the GPU ---- */

static void no_gpu(gm_energy *e, const char *what, const char *why)
{
    snprintf(e->report.gpu_reason, sizeof e->report.gpu_reason, "%s: %.180s", what, why);
    e->report.has_gpu = false;
}

static bool find_functions(nvml *n, const char **missing)
{
    static const char *const names[] = {"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetHandleByUUID",
                                        "nvmlDeviceGetTotalEnergyConsumption", "nvmlErrorString"};
    void *const              to[] = {&n->init, &n->shutdown, &n->by_uuid, &n->energy, &n->words};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *symbol = dlsym(n->library, names[i]);
        if (!symbol) {
            *missing = names[i];
            return false;
        }
        memcpy(to[i], &symbol, sizeof symbol);
    }
    return true;
}

static void unload(nvml *n)
{
    if (n->library) dlclose(n->library);
    n->library = NULL;
}

static bool load_nvml(gm_energy *e, const char *path)
{
    nvml       *n = &e->nvml;
    const char *missing;
    int         error;
    n->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!n->library) {
        no_gpu(e, "no NVML", dlerror());
        return false;
    }
    if (!find_functions(n, &missing)) no_gpu(e, "no NVML: it lacks", missing);
    else if ((error = n->init())) no_gpu(e, "NVML does not start", n->words(error));
    else return true;
    unload(n);
    return false;
}

static bool read_gpu(gm_energy *e)
{
    int error = e->nvml.energy(e->nvml.device, &e->last);
    if (error) no_gpu(e, "NVML gives no energy", e->nvml.words(error));
    return !error;
}

static void find_gpu(gm_energy *e, const char *path, const char *uuid)
{
    char what[128];
    int  error;
    if (!uuid || !*uuid) {
        snprintf(e->report.gpu_reason, sizeof e->report.gpu_reason, "the run is not on a GPU");
        return;
    }
    if (!load_nvml(e, path)) return;
    if ((error = e->nvml.by_uuid(uuid, &e->nvml.device))) {
        snprintf(what, sizeof what, "NVML has no GPU %.80s", uuid);
        no_gpu(e, what, e->nvml.words(error));
        return;
    }
    e->report.has_gpu = read_gpu(e);
    e->first = e->last;
    snprintf(e->report.gpu, sizeof e->report.gpu, "%s", uuid);
}

/* ---- the meter ---- */

gm_status gm_energy_open(const gm_energy_places *places, gm_energy **out)
{
    gm_energy *e = calloc(1, sizeof *e);
    if (!e) return GM_FAIL(GM_ENOMEM, "no memory for a meter of energy");
    if (!first_line("/proc/sys/kernel/random/boot_id", e->report.machine, sizeof e->report.machine))
        snprintf(e->report.machine, sizeof e->report.machine, "?");
    find_packages(e, places->powercap ? places->powercap : "/sys/class/powercap");
    find_gpu(e, places->nvml ? places->nvml : "libnvidia-ml.so.1", places->gpu);
    e->at = gm_now();
    *out = e;
    return GM_OK;
}

void gm_energy_update(gm_energy *e, bool now)
{
    double t = gm_now();
    if (!now && t - e->at < GM_ENERGY_PERIOD) return;
    e->at = t;
    update_packages(e);
    if (e->report.has_gpu) read_gpu(e);
}

void gm_energy_read(gm_energy *e, gm_energy_report *out)
{
    uint64_t microjoules = 0;
    gm_energy_update(e, true);
    *out = e->report;
    for (int i = 0; i < e->n; i++) microjoules += e->packages[i].used;
    out->cpu_joules = out->has_cpu ? 1e-6 * (double)microjoules : 0;
    out->gpu_joules = out->has_gpu ? 1e-3 * (double)(e->last - e->first) : 0;
}

void gm_energy_close(gm_energy *e)
{
    if (!e) return;
    if (e->nvml.library) e->nvml.shutdown();
    unload(&e->nvml);
    free(e);
}
