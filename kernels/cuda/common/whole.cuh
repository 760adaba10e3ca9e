/* whole.cuh - a store of 16 bytes that stays one. Of gm_store_vector (kernel.cuh) the compiler makes four stores of 4
 * bytes in some places, behind a condition above all; kernels at the limit of memory's bandwidth use this. */
#ifndef GM_CUDA_WHOLE_CUH
#define GM_CUDA_WHOLE_CUH

#include "kernel.cuh"

#ifdef GM_EMULATED
GM_DEVICE void gm_store_whole(void *p, gm_vector v) { gm_store_vector(p, v); }
#else
GM_DEVICE void gm_store_whole(void *p, gm_vector v)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "r"(v.word[0]),
                 "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
}
#endif

#endif
