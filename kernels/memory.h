/* memory.h - a caching pool of device memory with exact statistics and a limit.
 *
 * Blocks have sizes of classes: eight classes for each power of two, at least 64 bytes, so that at most 12.5 % is lost.
 * A released block waits in its class for the next request, so that a steady training step takes nothing from the
 * system. `live` counts the bytes that callers asked for. `reserved` counts the bytes that the pool holds from the
 * system, idle blocks included. The limit applies to `reserved`. A request that would exceed it first gives all idle
 * blocks back to the system; if that is not enough, it fails with GM_ENOMEM. The message names the bytes wanted, the
 * bytes in use, the limit and the largest holders. The pool never calls upper layers, such as a garbage collector. Only
 * one thread may use a pool. */
#ifndef GM_MEMORY_H
#define GM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "status.h"

typedef struct gm_pool  gm_pool;
typedef struct gm_block gm_block;
struct gm_journal;

typedef struct gm_memory_stats {
    size_t   live, peak;         /* bytes asked for: held now, and the most since the last reset */
    size_t   scratch_peak;       /* the largest block that a kernel took for itself (gm_pool_alloc_scratch) */
    size_t   reserved;           /* bytes held from the system */
    size_t   limit;              /* 0: none */
    uint64_t allocations;        /* requests served */
    uint64_t system_allocations; /* of these, the ones that had to ask the system */
} gm_memory_stats;

/* What the allocations of one place hold. place: "module path: op", from the strings given to gm_pool_set_place. */
typedef struct gm_holder {
    const char *place;
    size_t      live, peak;
    uint64_t    blocks; /* live blocks */
} gm_holder;

/* How the pool takes memory from the system: malloc, cuMemAlloc, or nothing at all on meta. context: the one given to
 * gm_pool_new. */
typedef struct gm_raw_memory {
    gm_status (*alloc)(void *context, size_t bytes, void **out);
    void (*free)(void *context, void *p, size_t bytes);
} gm_raw_memory;

gm_status gm_pool_new(const gm_raw_memory *raw, void *context, gm_pool **out);
void      gm_pool_free(gm_pool *pool); /* gives everything back; NULL is allowed */

/* Sets the place to which the next allocations are charged. The pool copies both strings. */
void        gm_pool_set_place(gm_pool *pool, const char *module_path, const char *op);
const char *gm_pool_place(const gm_pool *pool); /* "blocks.3.mlp: linear"; owned by the pool */
/* Sets the record (journal.h) of what is taken and released from here on; NULL: none. The pool does not own it. */
void gm_pool_set_journal(gm_pool *pool, struct gm_journal *journal);

/* Gives a block of at least this many bytes, and its address. The caller releases the block. GM_ENOMEM. */
gm_status gm_pool_alloc(gm_pool *pool, size_t bytes, void **data, gm_block **block);
/* The same for memory that a kernel needs while it runs. A rehearsal on meta runs no kernels and cannot count it. */
gm_status gm_pool_alloc_scratch(gm_pool *pool, size_t bytes, void **data, gm_block **block);
void      gm_pool_release(gm_pool *pool, gm_block *block);

/* Gives the pool a second source: memory that other processes can map (arena.h). While `wanted`, requests of at least
 * GM_SHARED_LEAST bytes that no part (below) serves are taken from there, and where it has no more, from the first
 * source. These blocks are counted and limited as all are, and serve later such requests only. raw NULL: there is no
 * such source any more; its blocks stay until they are released, so raw's context must live as long as the pool. */
#define GM_SHARED_LEAST ((size_t)16 << 10)
void gm_pool_lend(gm_pool *pool, const gm_raw_memory *raw, void *context);
bool gm_pool_want_shared(gm_pool *pool, bool wanted); /* what it was before */

/* A part of a pool has blocks of its own. They serve only requests that are made while the part is in use, and return
 * to the part when they are released. Recorded work (graph.h) therefore finds the same memory in each run. While a part
 * is in use, nothing is given back to the system, and a request beyond the limit fails. Statistics, places and limit
 * belong to the whole pool. */
typedef struct gm_pool_part gm_pool_part;
gm_status                   gm_pool_part_new(gm_pool *pool, gm_pool_part **out);
void gm_pool_use(gm_pool *pool, gm_pool_part *part); /* serves the next requests; NULL: the pool's own blocks do */
/* The part's idle blocks become the pool's own; blocks in use do so when they are released. NULL is allowed. */
void   gm_pool_part_free(gm_pool *pool, gm_pool_part *part);
size_t gm_pool_part_reserved(const gm_pool_part *part); /* bytes of its blocks */
bool   gm_pool_part_has(const gm_pool_part *part, const gm_block *block);
/* Says that the work recorded with the part has run again, so that the pool's peak counts what it holds meanwhile. */
void gm_pool_part_ran(gm_pool *pool, const gm_pool_part *part);

void            gm_pool_set_limit(gm_pool *pool, size_t bytes); /* 0: no limit */
void            gm_pool_reset_peak(gm_pool *pool);              /* peaks = live, also of places; scratch_peak = 0 */
void            gm_pool_trim(gm_pool *pool);                    /* gives the pool's own idle blocks to the system */
gm_memory_stats gm_pool_stats(const gm_pool *pool);
/* Gives the n places with the most live bytes, the largest first; returns how many were written. */
int gm_pool_holders(const gm_pool *pool, gm_holder *out, int n);
/* Gives the n places with the largest peaks, also those that hold nothing now. */
int gm_pool_peaks(const gm_pool *pool, gm_holder *out, int n);

#endif
