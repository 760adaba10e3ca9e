/* attention_t.cuh - attention for one type: for narrow and for wide heads. Included by attention.cu with
 *   GM_T  the type in memory    GM_S  its name    GM_R, GM_A  the type of arithmetic and its name
 *   GM_M(exp)  the function of the C library for it */

#define GM_EACH       GM_PASTE(GM_ATTENTION_EACH_narrow, GM_A)
#define GM_COLUMNS    (GM_ATTENTION_NARROW / GM_ATTENTION_THREADS)
#define GM_NAME(base) GM_PASTE(GM_PASTE(base, narrow), GM_S)
#include "attention_tile_t.cuh"
#undef GM_EACH
#undef GM_COLUMNS
#undef GM_NAME

#define GM_EACH       GM_PASTE(GM_ATTENTION_EACH_wide, GM_A)
#define GM_COLUMNS    (GM_ATTENTION_WIDE / GM_ATTENTION_THREADS)
#define GM_NAME(base) GM_PASTE(GM_PASTE(base, wide), GM_S)
#include "attention_tile_t.cuh"
#undef GM_EACH
#undef GM_COLUMNS
#undef GM_NAME

#undef GM_T
#undef GM_S
