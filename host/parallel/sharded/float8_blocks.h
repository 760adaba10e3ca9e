/* float8_blocks.h - the dense layer of float8.c where scales are of blocks of 128 (kernels/float8.h): which cuts it
 * takes, and its steps. Private to this folder.
 *
 * x (..., I) is m rows, w (O, I). All codes are E4M3, those of gradients too: a block has few numbers, so it needs no
 * wide range (DeepSeek-V3's report, arXiv:2412.19437, section 3.3.2). The three products and their scales:
 *     y = x w'    x: rows along I        w: squares
 *     dx = dy w   dy: rows along O       w turned: squares, the same
 *     dw = dy' x  dy turned: rows along the m rows      x turned: rows along the m rows
 * So x and dy are rounded twice, each from one read. A tensor is cut only between blocks. Then a rank finds the scales
 * of its part by itself, and sends nothing for them. */
#ifndef GM_SHARDED_FLOAT8_BLOCKS_H
#define GM_SHARDED_FLOAT8_BLOCKS_H

#include "../../autograd/value.h"
#include "../../autograd/work.h"

/* What float8_block_encode gives of a tensor; NULL: it was not wanted. */
typedef struct gm_float8_coded {
    gm_tensor *codes, *scales, *turned, *turned_scales;
} gm_float8_coded;

/* GM_ESHAPE unless all cuts of x and w lie between blocks: each dimension that is cut has parts of one size, a multiple
 * of 128, and if `turned`, so has each run of rows of x (all dimensions but the last, in order) that a rank holds. */
gm_status gm_float8_check_blocks(gm_rank *r, const gm_value *x, const gm_value *w, bool turned);
/* The codes and scales of t (..., k), in E4M3: as it is (straight), turned, or both. The work has them. */
gm_float8_coded gm_float8_code_blocks(gm_work *w, gm_tensor *t, bool square, bool straight, bool turned);
/* to (+)= a b' + bias (NULL: none). The scales of a are of rows, those of b of rows or squares. */
void gm_float8_multiply_blocks(gm_work *w, gm_tensor *a, gm_tensor *a_scales, gm_tensor *b, gm_tensor *b_scales,
                               bool square, gm_tensor *bias, bool accumulate, gm_tensor *to);
/* Makes a value of the scales of x's turned codes, laid out as x's rows and columns are. Takes the reference. */
gm_status gm_float8_take_scales(gm_rank *r, gm_tensor *scales, const gm_value *x, gm_value **out);

#endif
