/* energy.h - the energy that CPUs and a GPU have used since a meter was opened, from the machine's counters: RAPL for
 * whole CPU packages (Linux powercap; AMD's counters have the same name), NVML for a whole GPU.
 *
 * The counters include all other work on these devices. A counter that cannot be read is absent, with the reason;
 * nothing is estimated. A RAPL counter wraps at its range, after some minutes under load, so it must be read now and
 * then. */
#ifndef GM_ENERGY_H
#define GM_ENERGY_H

#include <stdbool.h>

#include "../../kernels/status.h"

#define GM_ENERGY_PERIOD 10 /* seconds: the shortest range known, 262 kJ, lasts minutes at 1 kW */

typedef struct gm_energy gm_energy;

/* Where to look; NULL: the usual places. */
typedef struct gm_energy_places {
    const char *powercap; /* folder; /sys/class/powercap */
    const char *nvml;     /* library; libnvidia-ml.so.1 */
    const char *gpu;      /* "GPU-8f0c1d2e-..." as NVML and the driver name it; NULL or "": no GPU is in use */
} gm_energy_places;

typedef struct gm_energy_report {
    char   machine[64]; /* tells machines apart: the boot id */
    bool   has_cpu, has_gpu;
    double cpu_joules, gpu_joules; /* since the meter was opened; of all packages together */
    char   gpu[96];                /* the name above */
    char   cpu_reason[320], gpu_reason[320];
} gm_energy_report;

/* GM_ENOMEM alone fails; counters that cannot be read are reasons in the report. */
gm_status gm_energy_open(const gm_energy_places *places, gm_energy **out);
/* Reads the counters if GM_ENERGY_PERIOD has passed since they were read, or `now`. */
void gm_energy_update(gm_energy *e, bool now);
void gm_energy_read(gm_energy *e, gm_energy_report *out); /* updates first */
void gm_energy_close(gm_energy *e);                       /* NULL is allowed */

#endif
