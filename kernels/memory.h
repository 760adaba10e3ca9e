/* memory.h - a caching pool of device memory with exact statistics and a limit.
 *
 * Blocks come in size classes (eight per power of two, at least 64 bytes, so at most 12.5 % is lost);
 * a released block waits in its class for the next taker, so a steady training step takes nothing
 * from the system. `live` counts bytes as asked for; `reserved` counts what the pool holds from the
 * system, idle blocks included. The limit bounds `reserved`: a request that would pass it first
 * gives all idle blocks back, then fails with GM_ENOMEM and a message naming wanted, in use, limit
 * and the largest holders. The pool never calls up (no collector runs from here). One thread. */
#ifndef GM_MEMORY_H
#define GM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "status.h"

typedef struct gm_pool  gm_pool;
typedef struct gm_block gm_block;

typedef struct gm_memory_stats {
    size_t   live, peak;         /* bytes asked for: held now, and the most since the last reset */
    size_t   scratch_peak;       /* the largest block that a kernel took for itself (gm_pool_alloc_scratch) */
    size_t   reserved;           /* bytes held from the system */
    size_t   limit;              /* 0: none */
    uint64_t allocations;        /* requests served */
    uint64_t system_allocations; /* of these, the ones that had to ask the system */
} gm_memory_stats;

/* What one place of birth holds. place is "module path: op", the strings the pool was given. */
typedef struct gm_holder {
    const char *place;
    size_t      live, peak;
    uint64_t    blocks; /* live blocks */
} gm_holder;

/* How the system is reached (malloc, cuMemAlloc, or nothing at all on meta). context: what gm_pool_new was given. */
typedef struct gm_raw_memory {
    gm_status (*alloc)(void *context, size_t bytes, void **out);
    void (*free)(void *context, void *p, size_t bytes);
} gm_raw_memory;

gm_status gm_pool_new(const gm_raw_memory *raw, void *context, gm_pool **out);
void      gm_pool_free(gm_pool *pool); /* gives everything back; NULL is allowed */

/* The place charged with the allocations that follow: copied on first sight, so any buffer will do. */
void        gm_pool_set_place(gm_pool *pool, const char *module_path, const char *op);
const char *gm_pool_place(const gm_pool *pool); /* as text: "blocks.3.mlp: linear"; as long as the pool */

gm_status gm_pool_alloc(gm_pool *pool, size_t bytes, void **data, gm_block **block);
/* The same for a kernel's own use while it runs: what a plan without kernels (meta) cannot know of. */
gm_status gm_pool_alloc_scratch(gm_pool *pool, size_t bytes, void **data, gm_block **block);
void      gm_pool_release(gm_pool *pool, gm_block *block);

/* A part of a pool: blocks that serve only what is asked for while the part is in use, and go back to it. Work that was
 * recorded with it (graph.h) finds its memory as it was, however often it runs. While a part is in use nothing is given
 * back to the system: at the limit requests fail. Statistics, places and limit are the whole pool's. */
typedef struct gm_pool_part gm_pool_part;
gm_status                   gm_pool_part_new(gm_pool *pool, gm_pool_part **out);
void gm_pool_use(gm_pool *pool, gm_pool_part *part); /* by the requests that follow; NULL: the pool's own blocks */
/* Its idle blocks become the pool's own, those in use when they are released. NULL is allowed. */
void   gm_pool_part_free(gm_pool *pool, gm_pool_part *part);
size_t gm_pool_part_reserved(const gm_pool_part *part); /* bytes of its blocks */
bool   gm_pool_part_has(const gm_pool_part *part, const gm_block *block);
/* What was recorded has run again, and held what it holds: the pool's peak counts it. */
void gm_pool_part_ran(gm_pool *pool, const gm_pool_part *part);

void            gm_pool_set_limit(gm_pool *pool, size_t bytes); /* 0: none */
void            gm_pool_reset_peak(gm_pool *pool);              /* peak = live, places too */
void            gm_pool_trim(gm_pool *pool);                    /* give idle blocks of its own back */
gm_memory_stats gm_pool_stats(const gm_pool *pool);
/* The n largest holders by live bytes, largest first; returns how many were written. */
int gm_pool_holders(const gm_pool *pool, gm_holder *out, int n);
/* The same by their peaks, of places that hold nothing now too. */
int gm_pool_peaks(const gm_pool *pool, gm_holder *out, int n);

#endif
