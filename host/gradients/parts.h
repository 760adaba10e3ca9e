/* parts.h - how a block is shared out over its owners (ZeRO), and copies between whole blocks and parts.
 *
 * Each owner has one part of the block: the layout of the parts (gm_layout_divide) cuts one dimension of the block
 * further, into as many rows as there are owners, all of one length; the last parts may reach beyond the end of the
 * tensor, or lie behind it. Several blocks of the same owners travel together: the parts of one owner stand one behind
 * the other, and those of the next owner follow. */
#ifndef GM_PARTS_H
#define GM_PARTS_H

#include "../autograd/value.h"
#include "../comm/comm.h"

typedef struct gm_parts {
    gm_rank  *rank;
    uint32_t  owners;               /* axes; 0: the block is not shared out */
    gm_layout whole, owned;         /* of the block, and of the parts */
    int       ndim, dim;            /* dim: which dimension the owners cut */
    int64_t   global[GM_MAX_DIMS];  /* shape of the tensor, */
    int64_t   block[GM_MAX_DIMS];   /* of the block, */
    int64_t   part[GM_MAX_DIMS];    /* and of a part */
    int64_t   outer, n, inner, len; /* the block is outer x n x inner, of which n is cut into rows of len */
} gm_parts;

/* The parts of v's block over these axes. owners is 0 where no axis of several ranks is left, or v has no dimension. */
void gm_parts_find(const gm_value *v, uint32_t axes, gm_parts *out);
/* Elements of a part, padding included. */
int64_t   gm_parts_numel(const gm_parts *p);
gm_status gm_parts_group(const gm_parts *p, gm_comm **comm, gm_group **group);

/* The rows of v's block that a rank owns: `length` from `start` on, of dimension `dim`. owned: the layout of the parts.
 * length is 0 where the part lies behind the end of the tensor. */
typedef struct gm_owned_rows {
    int     dim;
    int64_t start, length;
} gm_owned_rows;

gm_owned_rows gm_owned_rows_of(const gm_value *v, const gm_layout *owned, int rank);

/* Are sums of v's gradients (gm_parameter.own) or its numbers (stored) shared out? */
bool gm_is_shared_out(const gm_value *v);
/* The layout of what this rank owns of v: gm_parameter.owned, or v's own. */
const gm_layout *gm_owned_layout(const gm_value *v);
/* *out: the rows of t that this rank owns; all of t if v is not shared out. t: v's block or a gradient of all of it, or
 * laid out as the parts, whose blocks may reach beyond the tensor's end. *out is a reference. */
gm_status gm_owned_part(const gm_value *v, gm_tensor *t, gm_tensor **out);

/* Are the parts of all owners, one behind the other, the block as it is? */
bool gm_parts_are_block(const gm_parts *p, const gm_group *g);
/* Copies between the contiguous block and the parts of all owners in `parts`, a tensor of one dimension: the part of
 * owner j begins at element j * stride + at. pack: from the block to the parts, else back. */
gm_status gm_parts_copy(const gm_parts *p, const gm_group *g, gm_tensor *block, gm_tensor *parts, int64_t stride,
                        int64_t at, bool pack);
/* The same with this rank's part alone, which begins at `at`. */
gm_status gm_parts_copy_own(const gm_parts *p, gm_tensor *block, gm_tensor *part, int64_t at, bool pack);
/* *out: t, which is contiguous, as one dimension. */
gm_status gm_parts_flatten(gm_tensor *t, gm_tensor **out);

#endif
