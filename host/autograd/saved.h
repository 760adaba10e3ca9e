/* saved.h - the slots of a node, which keep data for its backward: nothing, a tensor, or a parameter by reference. Only
 * this file decides how data is kept and read. Private to host/autograd.
 *
 * A tensor is kept with the version of its bytes. Reading it fails if it was written in place since, because the
 * gradient would be wrong. A leaf is kept as a value, and its bytes are looked up when they are read. */
#ifndef GM_SAVED_H
#define GM_SAVED_H

#include "value.h"

typedef struct gm_saved {
    enum { GM_SAVED_NOTHING, GM_SAVED_TENSOR, GM_SAVED_LEAF } kind;
    gm_tensor *tensor;  /* TENSOR: counted */
    gm_value  *leaf;    /* LEAF: counted */
    unsigned   version; /* of the storage when it was kept */
} gm_saved;

/* Fills an empty slot; takes a reference of its own. NULL: keeps nothing. */
void gm_saved_keep(gm_saved *s, gm_value *v);
void gm_saved_keep_tensor(gm_saved *s, gm_tensor *t);
/* *out: the tensor, borrowed; NULL for an empty slot. GM_EINVAL, naming op: it was written in place since. */
gm_status gm_saved_read(const gm_saved *s, const char *op, gm_tensor **out);
void      gm_saved_clear(gm_saved *s);

#endif
