/* wgmma.cuh - the instruction wgmma.mma_async for 16-bit factors in shared memory and sums in f32 (hopper.cuh):
 *
 *     gm_wgmma<T, columns, turned_a, turned_b>(c, a, b, more)     c (64, columns) = a (64, 16) b (16, columns) [+ c]
 *
 * a, b: gm_factor. A tile has rows of 64 numbers along the sum, a row for each row of a or column of b; of a turned
 * factor it has them along the rows of a or the columns of b. With g = lane / 4, t = lane % 4 and w = the warp in its
 * warpgroup, a thread holds of c, for each block j of 8 columns (PTX ISA, "Register fragments for wgmma"),
 *     c[4 j], c[4 j + 1]: row 16 w + g, columns 8 j + 2 t, 8 j + 2 t + 1      c[4 j + 2], c[4 j + 3]: row + 8 */
#ifndef GM_CUDA_WGMMA_CUH
#define GM_CUDA_WGMMA_CUH

/* clang-format off */
#define GM_WGMMA_8(type)                                                                                               \
    asm volatile("{.reg .pred more;\n"                                                                                 \
                 "setp.ne.b32 more, %6, 0;\n"                                                                          \
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32." #type "." #type " {"                                     \
                 "%0, %1, %2, %3"                                                                                      \
                 "}, %4, %5, more, 1, 1, %7, %8;}"                                                                     \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                      \
                 : "l"(a), "l"(b), "r"((int)more), "n"((int)turned_a), "n"((int)turned_b))

#define GM_WGMMA_192(type)                                                                                             \
    asm volatile("{.reg .pred more;\n"                                                                                 \
                 "setp.ne.b32 more, %98, 0;\n"                                                                         \
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32." #type "." #type " {"                                   \
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "     \
                 "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "     \
                 "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, "     \
                 "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, "     \
                 "%78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"            \
                 "}, %96, %97, more, 1, 1, %99, %100;}"                                                                \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]),                             \
                   "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]),                           \
                   "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]),                       \
                   "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),                       \
                   "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),                       \
                   "+f"(c[30]), "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]),                       \
                   "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]),                       \
                   "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]),                       \
                   "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]),                       \
                   "+f"(c[54]), "+f"(c[55]), "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]),                       \
                   "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63]), "+f"(c[64]), "+f"(c[65]),                       \
                   "+f"(c[66]), "+f"(c[67]), "+f"(c[68]), "+f"(c[69]), "+f"(c[70]), "+f"(c[71]),                       \
                   "+f"(c[72]), "+f"(c[73]), "+f"(c[74]), "+f"(c[75]), "+f"(c[76]), "+f"(c[77]),                       \
                   "+f"(c[78]), "+f"(c[79]), "+f"(c[80]), "+f"(c[81]), "+f"(c[82]), "+f"(c[83]),                       \
                   "+f"(c[84]), "+f"(c[85]), "+f"(c[86]), "+f"(c[87]), "+f"(c[88]), "+f"(c[89]),                       \
                   "+f"(c[90]), "+f"(c[91]), "+f"(c[92]), "+f"(c[93]), "+f"(c[94]), "+f"(c[95])                        \
                 : "l"(a), "l"(b), "r"((int)more), "n"((int)turned_a), "n"((int)turned_b))

/* clang-format on */

template <class T, int columns, bool turned_a, bool turned_b>
GM_DEVICE void gm_wgmma(float *c, uint64_t a, uint64_t b, bool more)
{
    constexpr bool is_bf16 = std::is_same_v<T, gm_bf16>;
    if constexpr (columns == 8 && is_bf16) GM_WGMMA_8(bf16);
    else if constexpr (columns == 8) GM_WGMMA_8(f16);
    else if constexpr (columns == 192 && is_bf16) GM_WGMMA_192(bf16);
    else if constexpr (columns == 192) GM_WGMMA_192(f16);
    else static_assert(columns == 8, "no such products: add a line");
}

#endif
