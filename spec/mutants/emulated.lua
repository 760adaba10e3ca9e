--- Mutants of the emulation of AVX-512 (kernels/cpu/emulated_avx512.h), and of lines that only AVX-512 has (table.lua).
local rows = {
  {
    name = "2640-scale-nearest", file = "kernels/cpu/emulated_avx512.h",
    find = [[const double whole = floor(n);]],
    replace = [[const double whole = nearbyint(n);]],
    breaks = "vscalef rounds its power to the nearest whole number, not down",
    test = "unit emulated_scale",
  },
  {
    name = "2641-smallest-normal", file = "kernels/cpu/emulated_avx512.h",
    find = [[_mm256_set1_ps(0x1p-126f), _CMP_LT_OQ)]],
    replace = [[_mm256_set1_ps(0x1p-126f), _CMP_LE_OQ)]],
    breaks = "vdpbf16ps takes the smallest normal number as zero",
    test = "unit emulated_bf16_products",
  },
  {
    name = "2642-bf16-ties", file = "kernels/cpu/emulated_avx512.h",
    find = [[(bits + 0x7fff + (bits >> 16 & 1)) >> 16]],
    replace = [[(bits + 0x8000) >> 16]],
    breaks = "vcvtneps2bf16 rounds ties away from zero",
    test = "unit emulated_bf16_rounding",
  },
  {
    name = "2643-bytes-with-sign", file = "kernels/cpu/emulated_avx512.h",
    find = [[dot += x.u8[k] * y.i8[k];]],
    replace = [[dot += x.i8[k] * y.i8[k];]],
    breaks = "vpdpbusd takes both of its bytes with a sign",
    test = "unit emulated_bytes",
  },
  {
    name = "2644-permuted-two", file = "kernels/cpu/emulated_avx512.h",
    find = [[__builtin_shuffle((wide_u16)(a), (wide_u16)(b), (wide_u16)(index))]],
    replace = [[__builtin_shuffle((wide_u16)(b), (wide_u16)(a), (wide_u16)(index))]],
    breaks = "a permutation of two vectors takes the one for the other",
    test = "unit emulated_permutations",
  },
  {
    name = "2645-mask-half", file = "kernels/cpu/emulated_avx512.h",
    find = [[_mm256_set1_epi32((int)(k >> 8 * h))]],
    replace = [[_mm256_set1_epi32((int)(k >> 4 * h))]],
    breaks = "masks of the upper half of a vector are off by four lanes",
    test = "unit emulated_masks",
  },
  {
    name = "2646-first-of-halves", file = "kernels/cpu/emulated_avx512.h",
    find = [[half(x.half_##part[h], y.half_##part[h]);]],
    replace = [[half(y.half_##part[h], x.half_##part[h]);]],
    breaks = "the smaller of a number and NaN is the first of them, not the second",
    test = "unit emulated_comparisons",
  },
}
for _, row in ipairs(rows) do row.cpu = "avx2" end

rows[#rows + 1] = {
  name = "2647-four-sums", file = "kernels/cpu/gemm_thin.c", isa = "avx512",
  find = [[_mm512_shuffle_ps(ab, cd, 0xee)]],
  replace = [[_mm512_shuffle_ps(ab, cd, 0x4e)]],
  breaks = "of four sums across lanes the first two hold half of their lanes twice",
  test = "spec/kernels/contraction_spec.lua -f 'linear f32'",
}
return rows
