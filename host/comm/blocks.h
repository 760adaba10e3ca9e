/* blocks.h - how collectives cut tensors into blocks, one a member, and sums into slices. Private to comm/. */
#ifndef GM_COMM_BLOCKS_H
#define GM_COMM_BLOCKS_H

#include "combine.h"
#include "state.h"

static inline size_t gm_bytes_of(const gm_tensor *t) { return (size_t)gm_tensor_numel(t) * gm_dtype_size(t->dtype); }
static inline char  *gm_at(void *base, size_t offset) { return base ? (char *)base + offset : NULL; }

/* Does a block lie in one piece? */
static inline bool gm_in_one(gm_strip s) { return s.outer <= 1; }

/* Does p move bytes on this host? */
static inline bool gm_moves(const gm_pending *p)
{
    return (p->comm->transport->has_data && !p->linked) || p->group->size == 1;
}

/* ---- all_reduce, reduce: slices of the flat tensor ---- */

typedef struct gm_slice {
    char  *bytes;
    size_t n;
} gm_slice;

static inline size_t gm_slice_start(const gm_tensor *t, int place, int p)
{
    return (size_t)(gm_tensor_numel(t) / p * place + gm_tensor_numel(t) % p * place / p) * gm_dtype_size(t->dtype);
}

static inline gm_slice gm_slice_of(const gm_pending *p, int place)
{
    size_t start = gm_slice_start(p->out, place, p->group->size);
    return (gm_slice){gm_at(p->to, start), gm_slice_start(p->out, place + 1, p->group->size) - start};
}

static inline size_t gm_largest_slice(const gm_tensor *t, int p)
{
    return (size_t)((gm_tensor_numel(t) + p - 1) / p) * gm_dtype_size(t->dtype);
}

/* ---- reduce_scatter, scatter, all_to_all: blocks of p->in ---- */

/* Where block `place` is in one piece: in p->from, or in scratch, where it must have been packed. */
static inline char *gm_block_piece(const gm_pending *p, int place, size_t block)
{
    return gm_at(gm_in_one(p->split) ? p->from : p->scratch, (size_t)place * block);
}

/* collective.c: copies block `place` into p->to, whose blocks lie as s says. */
void gm_block_unpack(gm_pending *p, gm_strip s, const char *block, int place);

#endif
