/* saved.h - what a node keeps for its backward, slot by slot: nothing, a tensor, or a parameter by reference. The one
 * place that decides what is kept and how it comes back; private to host/autograd.
 *
 * A tensor is kept with the version of its bytes: one that was written in place since is refused when it is read, since
 * its gradient would be wrong. A leaf is kept as the value that it is: its bytes are looked up when they are read. */
#ifndef GM_SAVED_H
#define GM_SAVED_H

#include "value.h"

typedef struct gm_saved {
    enum { GM_SAVED_NOTHING, GM_SAVED_TENSOR, GM_SAVED_LEAF } kind;
    gm_tensor *tensor;  /* TENSOR: counted */
    gm_value  *leaf;    /* LEAF: counted */
    unsigned   version; /* of the storage when it was kept */
} gm_saved;

/* Of an empty slot; NULL: nothing. */
void gm_saved_keep(gm_saved *s, gm_value *v);
void gm_saved_keep_tensor(gm_saved *s, gm_tensor *t);
/* Borrowed; NULL of an empty slot. op, for the message: GM_EINVAL where it was changed in place. */
gm_status gm_saved_read(const gm_saved *s, const char *op, gm_tensor **out);
void      gm_saved_clear(gm_saved *s);

#endif
