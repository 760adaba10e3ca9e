/* attention_mma_t.cuh - the kernels of attention_mma.cu for one dtype, for heads of up to 64 and of up to 128. */

#define GM_NAME(base)   GM_PASTE(GM_PASTE(base, GM_HEAD), GM_D)
#define GM_MMA_OF_TYPE  GM_PASTE(gm_mma, GM_D)
#define GM_PAIR_OF_TYPE GM_PASTE(gm_pair, GM_D)

#define GM_HEAD    64
#define GM_BLOCKS  3
#define GM_QUERIES GM_ATTENTION_MMA_QUERIES_64
#include "attention_mma_head_t.cuh"
#undef GM_HEAD
#undef GM_BLOCKS
#undef GM_QUERIES

#define GM_HEAD    128
#define GM_BLOCKS  2
#define GM_QUERIES GM_ATTENTION_MMA_QUERIES_128
#include "attention_mma_head_t.cuh"
#undef GM_HEAD
#undef GM_BLOCKS
#undef GM_QUERIES

#undef GM_NAME
#undef GM_MMA_OF_TYPE
#undef GM_PAIR_OF_TYPE
