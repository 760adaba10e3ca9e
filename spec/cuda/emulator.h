/* emulator.h - what the fake driver asks of the emulation (emulate.c). */
#ifndef GM_EMULATOR_H
#define GM_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

typedef struct gm_emulated_kernel {
    const char *name;
    void (*run)(const void *args);
    size_t args; /* bytes of its struct */
} gm_emulated_kernel;

typedef struct gm_emulated_grid {
    int64_t x, y, z;
    int     block;
    size_t  shared;
} gm_emulated_grid;

const gm_emulated_kernel *gm_emulated_find(const char *name); /* NULL: there is none */
const gm_emulated_kernel *gm_emulated_all(int *n);
/* Runs all of it; not 0: `error` says what the kernel did wrong. One launch at a time. */
int gm_emulated_launch(const gm_emulated_kernel *kernel, const gm_emulated_grid *g, const void *args, char *error,
                       size_t error_size);

#endif
