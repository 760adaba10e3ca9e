/* fake_memory.h - the memory of the fake driver: of the device, in an arena that the host may touch only while it is
 * open, and page-locked memory of the host. Each allocation lies between guard zones; fresh and freed bytes are 0xff,
 * which is NaN in every float. GANYMEDE_CUDA_MEMORY in the environment: bytes that the device has (16 GiB).
 * Called under the driver's lock. */
#ifndef GM_FAKE_MEMORY_H
#define GM_FAKE_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#define GM_FAKE_ALLOCATIONS 65536

typedef struct gm_fake_allocation {
    unsigned char *data;
    size_t         bytes;
} gm_fake_allocation;

/* Sorted by address. */
typedef struct gm_fake_allocations {
    gm_fake_allocation list[GM_FAKE_ALLOCATIONS];
    int                n;
} gm_fake_allocations;

extern gm_fake_allocations gm_fake_device, gm_fake_pinned;

CUresult gm_fake_take(size_t bytes, void **out); /* of the device; leaves the arena open */
CUresult gm_fake_take_pinned(size_t bytes, void **out);
int      gm_fake_find(const gm_fake_allocations *a, const void *p); /* -1: none begins there */
void     gm_fake_forget(gm_fake_allocations *a, int at);
bool     gm_fake_inside(const gm_fake_allocations *a, const void *p, size_t bytes); /* all of one allocation? */
void     gm_fake_open(bool on);
/* If a guard zone of the device is damaged and error is empty: says so there, and mends it. */
void gm_fake_check_guards(const char *after, char *error, size_t size);

#endif
