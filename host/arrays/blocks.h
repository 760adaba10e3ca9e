/* blocks.h - one block of few bits as numbers; inside of elements.c alone. */
#ifndef GM_ARRAYS_BLOCKS_H
#define GM_ARRAYS_BLOCKS_H

#include "elements.h"

/* Writes the gm_element_block(e) numbers of the block at b. */
void gm_block_decode(gm_element e, const unsigned char *b, float *out);

#endif
