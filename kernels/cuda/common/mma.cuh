/* mma.cuh - products of small tiles on the tensor cores, for 16-bit factors and sums in f32: mma.sync.m16n8k16 of PTX
 * (PTX ISA, "Matrix fragments for mma.m16n8k16").
 *
 *     gm_mma<gm_bf16>(c, a, b)   c += a b, all 32 lanes of a warp together: a (16, 16), b (16, 8), c (16, 8)
 *
 * With g = lane / 4 and t = lane % 4 a lane holds, two numbers a word, the lower column (of b: row) in the lower half,
 *     a[0]: row g, columns 2 t, 2 t + 1    a[1]: row g + 8    a[2]: row g, columns + 8    a[3]: row g + 8, columns + 8
 *     b[0]: rows 2 t, 2 t + 1, column g     b[1]: rows + 8
 *     c[0], c[1]: row g, columns 2 t, 2 t + 1                   c[2], c[3]: row g + 8
 * So two neighbouring results of a row, packed into a word, are a factor of the next product.
 *
 *     gm_matrices(r, row)          four matrices of 8 by 8 words of 16 bits from shared memory, one for each register
 *                                  (PTX ISA, ldmatrix): lane l names row l % 8 of matrix l / 8, 16 bytes, aligned.
 *                                  r[m]: row g of matrix m, columns 2 t and 2 t + 1
 *     gm_matrices_turned(r, row)   r[m]: column g of matrix m, rows 2 t and 2 t + 1 */
#ifndef GM_CUDA_MMA_CUH
#define GM_CUDA_MMA_CUH

#include "dtype.cuh"

/* Two numbers as a word of factors. */
template <class T> GM_DEVICE uint32_t gm_pair(float low, float high)
{
#ifdef GM_EMULATED
    return gm_put<T>(low).bits | (uint32_t)gm_put<T>(high).bits << 16;
#else
    uint32_t pair; /* one instruction rounds both */
    if constexpr (std::is_same_v<T, gm_bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

#ifdef GM_EMULATED

typedef struct gm_factors { /* of a lane */
    float a[8], b[4];
} gm_factors;

GM_DEVICE const gm_factors *gm_factors_of(const unsigned char *all, int lane)
{
    return (const gm_factors *)(const void *)(all + lane * GM_EMULATED_SLOT);
}

GM_DEVICE void gm_mma_emulated(float *c, const gm_factors *mine, const char *file, int line)
{
    const unsigned char *all = gm_emulated_gather(mine, sizeof *mine, file, line);
    int                  g = gm_thread % 32 / 4, t = gm_thread % 4;
    for (int k = 0; k < 16; k++) {
        const gm_factors *row = gm_factors_of(all, 4 * g + k % 8 / 2);
        int               a = k / 8 * 4 + k % 2, b = k / 8 * 2 + k % 2; /* row g + 8: 2 further */
        for (int e = 0; e < 2; e++) {
            float factor = gm_factors_of(all, 4 * (2 * t + e) + k % 8 / 2)->b[b];
            c[e] += row->a[a] * factor;
            c[2 + e] += row->a[a + 2] * factor;
        }
    }
}

/* file, line: of the caller, where all lanes are to meet. */
template <class T>
GM_DEVICE void gm_mma(float *c, const uint32_t *a, const uint32_t *b, const char *file = __builtin_FILE(),
                      int line = __builtin_LINE())
{
    gm_factors mine;
    for (int i = 0; i < 12; i++) {
        const uint32_t word = i < 8 ? a[i / 2] : b[(i - 8) / 2];
        const float    x = gm_get(T{(uint16_t)(i % 2 ? word >> 16 : word)});
        if (i < 8) mine.a[i] = x;
        else mine.b[i - 8] = x;
    }
    gm_mma_emulated(c, &mine, file, line);
}

/* A row of 16 bytes, at an address that is aligned. */
GM_DEVICE const uint16_t *gm_row_checked(const uint16_t *row)
{
    const gm_vector v = *(const gm_vector *)(const void *)row;
    (void)v;
    return row;
}

GM_DEVICE const uint16_t *gm_row_of(const unsigned char *all, int lane)
{
    return *(const uint16_t *const *)(const void *)(all + lane * GM_EMULATED_SLOT);
}

GM_DEVICE void gm_matrices(uint32_t *r, const uint16_t *row, const char *file = __builtin_FILE(),
                           int line = __builtin_LINE())
{
    const uint16_t      *mine = gm_row_checked(row);
    const unsigned char *all = gm_emulated_gather(&mine, sizeof mine, file, line);
    int                  g = gm_thread % 32 / 4, t = gm_thread % 4;
    for (int m = 0; m < 4; m++) {
        const uint16_t *of = gm_row_of(all, 8 * m + g);
        r[m] = of[2 * t] | (uint32_t)of[2 * t + 1] << 16;
    }
}

GM_DEVICE void gm_matrices_turned(uint32_t *r, const uint16_t *row, const char *file = __builtin_FILE(),
                                  int line = __builtin_LINE())
{
    const uint16_t      *mine = gm_row_checked(row);
    const unsigned char *all = gm_emulated_gather(&mine, sizeof mine, file, line);
    int                  g = gm_thread % 32 / 4, t = gm_thread % 4;
    for (int m = 0; m < 4; m++)
        r[m] = gm_row_of(all, 8 * m + 2 * t)[g] | (uint32_t)gm_row_of(all, 8 * m + 2 * t + 1)[g] << 16;
}

#else

#define GM_MMA(type)                                                                                \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #type "." #type ".f32 {%0, %1, %2, %3}, " \
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                    \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <class T> GM_DEVICE void gm_mma(float *c, const uint32_t *a, const uint32_t *b)
{
    if constexpr (std::is_same_v<T, gm_bf16>) GM_MMA(bf16);
    else GM_MMA(f16);
}

#define GM_MATRICES(r, row, turned)                                                           \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" turned ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])                             \
                 : "r"((uint32_t)__cvta_generic_to_shared(row)))

GM_DEVICE void gm_matrices(uint32_t *r, const uint16_t *row) { GM_MATRICES(r, row, ""); }
GM_DEVICE void gm_matrices_turned(uint32_t *r, const uint16_t *row) { GM_MATRICES(r, row, ".trans"); }

#endif

#endif
