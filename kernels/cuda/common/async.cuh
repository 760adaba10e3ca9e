/* async.cuh - copies from memory into shared memory that go on while the thread does other work (PTX ISA, cp.async). A
 * thread sends copies, closes them as a group, and waits until only so many of its groups are under way. What other
 * threads copied is there after they have waited and all have met at GM_SYNC. */
#ifndef GM_CUDA_ASYNC_CUH
#define GM_CUDA_ASYNC_CUH

#include "kernel.cuh"

#ifdef GM_EMULATED
#include <stdlib.h>

/* On the way: nothing is there, NaN if anything, before the thread has waited for the group. */
typedef struct gm_sent {
    unsigned char *to;
    const void    *from;
    int            bytes;
    bool           there;
    int64_t        group;
} gm_sent;

/* What a thread has sent; closed: its groups that are. */
typedef struct gm_sender {
    uint64_t launch;
    int64_t  block[3], closed;
    gm_sent *list;
    int      n, room;
} gm_sender;

GM_DEVICE gm_sender *gm_sender_here(void)
{
    static gm_sender senders[1024];
    gm_sender       *s = &senders[gm_thread];
    const int64_t    block[3] = {gm_block_x, gm_block_y, gm_block_z};
    if (s->launch != gm_emulated.launch || memcmp(s->block, block, sizeof block)) s->n = 0, s->closed = 0;
    s->launch = gm_emulated.launch;
    memcpy(s->block, block, sizeof block);
    return s;
}

/* V: a type of so many bytes, whose accesses the emulation looks at. */
template <class V> GM_DEVICE void gm_send(void *to, const void *from, bool there)
{
    gm_sender *s = gm_sender_here();
    const V    before = *(const V *)from;
    *(V *)to = before;
    memset(to, 0xff, sizeof before);
    if (s->n == s->room) s->list = (gm_sent *)realloc(s->list, (size_t)(s->room = 2 * s->room + 64) * sizeof *s->list);
    s->list[s->n++] = (gm_sent){(unsigned char *)to, from, (int)sizeof(V), there, s->closed};
}

typedef struct GM_ALIGNED(8) gm_half_vector {
    uint32_t word[2];
} gm_half_vector;

GM_DEVICE void gm_send_16(void *to, const void *from, bool there) { gm_send<gm_vector>(to, from, there); }
GM_DEVICE void gm_send_8(void *to, const void *from, bool there) { gm_send<gm_half_vector>(to, from, there); }
GM_DEVICE void gm_close_sends(void) { gm_sender_here()->closed++; }

template <int n> GM_DEVICE void gm_wait_sends(void)
{
    gm_sender *s = gm_sender_here();
    int        left = 0;
    for (int i = 0; i < s->n; i++) {
        const gm_sent one = s->list[i];
        if (one.group + n >= s->closed) s->list[left++] = one;
        else if (one.there) memcpy(one.to, one.from, (size_t)one.bytes);
        else memset(one.to, 0, (size_t)one.bytes);
    }
    s->n = left;
}

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
