/* elements.h - the types of elements that files of arrays have, and their numbers as ours.
 *
 * F8_E4M3 and F8_E5M2 are the 8-bit floats of Micikevicius et al. 2022, arXiv:2209.05433 (E4M3 has no infinity). Types
 * of blocks (Q4_0 to Q6_K) are those of GGML (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): whole numbers
 * of few bits, with scales, and for some with minima, of their own in each block. */
#ifndef GM_ARRAYS_ELEMENTS_H
#define GM_ARRAYS_ELEMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../../kernels/dtype.h"

typedef enum gm_element {
#define GM_ELEMENT(NAME, name, elements, bytes) GM_ELEMENT_##NAME,
#include "elements.def"
#undef GM_ELEMENT
    GM_ELEMENT_COUNT
} gm_element;

#define GM_ELEMENT_BLOCK 256 /* elements of the largest block */

const char *gm_element_name(gm_element e);
gm_element  gm_element_named(const char *name); /* GM_ELEMENT_COUNT: there is none */
int         gm_element_block(gm_element e);     /* elements of a block; 1: a plain type */
size_t      gm_element_bytes(gm_element e);     /* bytes of a block */
/* The dtype with the same bits, or GM_DTYPE_NONE. */
gm_dtype   gm_element_dtype(gm_element e);
gm_element gm_element_of(gm_dtype t); /* the other way */

/* Writes n elements of dtype `to`, from whole blocks. swapped: plain types, bytes in big-endian order. Whole numbers
 * become whole numbers without a way over floats; those that the dtype does not hold are cut off as by a cast in C. */
void gm_elements_decode(gm_element e, bool swapped, const unsigned char *from, int64_t n, gm_dtype to, void *out);

#endif
