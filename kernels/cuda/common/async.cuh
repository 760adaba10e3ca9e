/* async.cuh - copies from memory into shared memory that go on while the thread does other work (PTX ISA, cp.async). A
 * thread sends copies, closes them as a group, and waits until only so many of its groups are under way. What other
 * threads copied is there after they have waited and all have met at GM_SYNC. */
#ifndef GM_CUDA_ASYNC_CUH
#define GM_CUDA_ASYNC_CUH

#include "kernel.cuh"

#ifdef GM_EMULATED

/* By types, so that the emulation looks at both addresses. */
typedef struct GM_ALIGNED(8) gm_half_vector {
    uint32_t word[2];
} gm_half_vector;

GM_DEVICE void gm_send_16(void *to, const void *from, bool there)
{
    const gm_vector v = *(const gm_vector *)from, none = {{0, 0, 0, 0}};
    *(gm_vector *)to = there ? v : none;
}
GM_DEVICE void gm_send_8(void *to, const void *from, bool there)
{
    const gm_half_vector v = *(const gm_half_vector *)from, none = {{0, 0}};
    *(gm_half_vector *)to = there ? v : none;
}
GM_DEVICE void                  gm_close_sends(void) {}
template <int n> GM_DEVICE void gm_wait_sends(void) {}

#else

/* 16 bytes, both addresses aligned; zeros where there is nothing. `from` is an address in any case. */
GM_DEVICE void gm_send_16(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
}

GM_DEVICE void gm_send_8(void *to, const void *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 8 : 0)
                 : "memory");
}

GM_DEVICE void                  gm_close_sends(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n> GM_DEVICE void gm_wait_sends(void) { asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory"); }

#endif

#endif
