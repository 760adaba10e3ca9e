/* hopper.cuh - what a multiprocessor of compute capability 9.0 (H100, H200) does by itself while its threads go on:
 * copies of tiles between memory and shared memory (PTX ISA, cp.async.bulk.tensor), products of tiles on the tensor
 * cores (wgmma), and barriers in shared memory on which both are waited for (mbarrier). wgmma needs code for sm_90a.
 *
 * A tile in shared memory has rows of 128 bytes, 64 numbers of 16 bits. Its 16-byte pieces are swizzled: piece c of row
 * r lies at place c ^ (r % 8) of the row (swizzle mode 128B). A tile starts at a multiple of 1,024 bytes.
 *
 * Shared memory is named by addresses of 32 bits (gm_shared_address). Barriers have 8 bytes of shared memory each. One
 * thread starts a barrier with the number of arrivals that end a phase. gm_await(b, parity) returns when the phase of
 * this parity (0, then 1, then 0) has ended. gm_expect arrives, and makes the phase wait for so many bytes of copies
 * too. */
#ifndef GM_CUDA_HOPPER_CUH
#define GM_CUDA_HOPPER_CUH

#include "dtype.cuh"
#include "../runtime/tensor_map.h"

#define GM_TILE_ROW  128  /* bytes */
#define GM_TILE_ATOM 1024 /* bytes of 8 rows, which the swizzle repeats after */
#define GM_WARPGROUP 128  /* threads */

/* The address of piece 0 of row `row` of a tile with rows of 64 bytes, swizzled (mode 64B, over 512 bytes): piece p
 * lies at this address ^ p << 4. */
GM_DEVICE uint32_t gm_swizzled_row(uint32_t tile, int row) { return tile + row * 64 + ((row >> 1 & 3) << 4); }

/* A factor of a product in shared memory (PTX ISA, "Matrix descriptor"). Its low word is gm_factor_low of its address,
 * a multiple of 16, plus address / 16 for what lies further on; gm_factor adds the high word. leading: bytes between
 * blocks of 64 along rows or columns of the result, where the tile's rows run along them (turned); else 16. */
GM_DEVICE uint32_t gm_factor_low(uint32_t address, uint32_t leading)
{
    return (address & 0x3ffff) >> 4 | leading >> 4 << 16;
}
GM_DEVICE uint64_t gm_factor(uint32_t low) { return (uint64_t)low | (uint64_t)((GM_TILE_ATOM >> 4) | 1u << 30) << 32; }

#ifdef GM_EMULATED
#include "hopper_emulated.h"
#else

/* The compiler shall keep the address, not find it again at each use. */
GM_DEVICE uint32_t gm_shared_address(const void *p)
{
    uint32_t address = (uint32_t)__cvta_generic_to_shared(p);
    asm volatile("" : "+r"(address));
    return address;
}
GM_DEVICE void gm_put_word(uint32_t address, uint32_t word)
{
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}
GM_DEVICE uint32_t gm_get_word(uint32_t address)
{
    uint32_t word;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}

/* ---- barriers ---- */

GM_DEVICE void gm_barrier_start(uint32_t b, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(arrivals) : "memory");
}
/* After barriers were started, before other threads and copies use them; GM_SYNC follows. */
GM_DEVICE void gm_barriers_started(void) { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
GM_DEVICE void gm_arrive(uint32_t b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory"); }
GM_DEVICE void gm_expect(uint32_t b, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
GM_DEVICE void gm_await(uint32_t b, int parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni over;\n"
                 "bra.uni again;\n"
                 "over:\n"
                 "}" ::"r"(b),
                 "r"(parity)
                 : "memory");
}

/* So many threads of the block meet, those that name the same number (1 to 15; GM_SYNC has 0). */
GM_DEVICE void gm_meet(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* ---- registers: a warpgroup gives some back, or takes more ---- */

template <int n> GM_DEVICE void gm_fewer_registers(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}
template <int n> GM_DEVICE void gm_more_registers(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

/* ---- copies of tiles; one thread asks. x: along the rows of memory, y: which row ---- */

GM_DEVICE void gm_tile_load(uint32_t to, const gm_tensor_map *from, int x, int y, uint32_t b)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(to),
        "l"(from), "r"(x), "r"(y), "r"(b)
        : "memory");
}
/* What threads wrote to shared memory is there for copies and products that are asked for later. */
GM_DEVICE void gm_written(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
GM_DEVICE void gm_tile_store(const gm_tensor_map *to, uint32_t from, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(to), "r"(x),
                 "r"(y), "r"(from)
                 : "memory");
}
GM_DEVICE void gm_close_stores(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/* Until at most n groups of this thread's stores still read shared memory. */
template <int n> GM_DEVICE void gm_await_stores(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(n) : "memory");
}

/* ---- products; all 128 threads of a warpgroup ---- */

/* Before the first product after threads touched the sums. */
GM_DEVICE void gm_products_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
GM_DEVICE void gm_products_close(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int n> GM_DEVICE void gm_await_products(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}

#include "wgmma.cuh"

#endif
#endif
