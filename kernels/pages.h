/* pages.h - what the backends of the host share of the ops on pages (ops.def): where a position of a row is. */
#ifndef GM_PAGES_H
#define GM_PAGES_H

#include "op.h"

typedef struct gm_pages {
    const gm_tensor *index, *count;
    int64_t          pages, page; /* of the pool; positions of a page */
} gm_pages;

static inline gm_pages gm_pages_of(const gm_call *call)
{
    bool             writes = call->op == GM_OP_pages_write;
    const gm_tensor *pool = writes ? call->out[0] : call->in[1];
    return (gm_pages){call->in[writes ? 1 : 3], call->in[writes ? 2 : 4], pool->shape[0], pool->shape[2]};
}

/* Number n of the pages of row r. */
static inline int64_t gm_pages_index(const gm_pages *p, int64_t r, int64_t n)
{
    const gm_tensor *t = p->index;
    return (int64_t)gm_load(t->dtype, gm_tensor_data(t), r * t->stride[0] + n * t->stride[1]);
}

/* Positions of row r. */
static inline int64_t gm_pages_count(const gm_pages *p, int64_t r)
{
    return (int64_t)gm_load(p->count->dtype, gm_tensor_data(p->count), r * p->count->stride[0]);
}

/* GM_EINVAL: a row keeps more positions than it has pages for, or one of these pages is none of the pool. */
gm_status gm_pages_check(const gm_call *call);

#endif
