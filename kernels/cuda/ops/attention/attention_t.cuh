/* attention_t.cuh - attention for one dtype (each_dtype.cuh): for narrow and for wide heads; those of 16 bits that are
 * narrow go to attention_mma.cu. */

#if !GM_SHORT
#define GM_EACH       GM_PASTE(GM_ATTENTION_EACH_narrow, GM_S)
#define GM_COLUMNS    (GM_ATTENTION_NARROW / GM_ATTENTION_THREADS)
#define GM_BLOCKS     2
#define GM_NAME(base) GM_PASTE(GM_PASTE(base, narrow), GM_D)
#include "attention_tile_t.cuh"
#undef GM_EACH
#undef GM_COLUMNS
#undef GM_BLOCKS
#undef GM_NAME
#endif

#define GM_EACH       GM_PASTE(GM_ATTENTION_EACH_wide, GM_S)
#define GM_COLUMNS    (GM_ATTENTION_WIDE / GM_ATTENTION_THREADS)
#define GM_BLOCKS     1
#define GM_NAME(base) GM_PASTE(GM_PASTE(base, wide), GM_D)
#include "attention_tile_t.cuh"
#undef GM_EACH
#undef GM_COLUMNS
#undef GM_BLOCKS
#undef GM_NAME
