-- Mutants of products of some rows and many columns where vectors have 64 bytes (kernels/cpu/gemm_turned_t.h), and of
-- sums of rows that products make on their way.
-- table.lua says what the fields are. avx2.lua has those that are the same for all vectors.
local sums = "spec/kernels/contraction_spec.lua -f 'on its way'"
return {
  {
    name = "3156-pairs-of-two-rows", file = "kernels/cpu/gemm_block_t.h",
    find = [[g->numbers % 2 == 0 && row % 2 == 0 &&]],
    replace = [[g->numbers % 2 == 0 && row > 0 &&]],
    breaks = "rows an odd number apart are read as if all began with a whole pair",
    isa = "avx512bf16",
    test = "spec/kernels/bf16_products_spec.lua -f 'of some rows and many columns'",
  },
  {
    name = "3158-turned-rows-of-pairs", file = "kernels/cpu/gemm_turned_t.h",
    find = [[.a_side = F(gemm_words)(g, g->b_column),]],
    replace = [[.a_side = g->b_column,]],
    breaks = "a turned product of pairs skips every other row of weights",
    isa = "avx512bf16",
    test = "spec/kernels/bf16_products_spec.lua -f 'of some rows and many columns'",
  },
  {
    name = "3159-turned-pairs-as-floats", file = "kernels/cpu/gemm_turned_t.h",
    find = [[.pairs = g->numbers > 0};]],
    replace = [[.pairs = false};]],
    breaks = "a turned product takes pairs of bf16 for floats",
    isa = "avx512bf16",
    test = "spec/kernels/bf16_products_spec.lua -f 'of some rows and many columns'",
  },
  {
    name = "3160-turn-writes-on", file = "kernels/cpu/gemm_tile_t.h",
    find = [[F(store_over)(dst + (c + i) * row + r, have, x[i]);]],
    replace = [[F(store_over)(dst + (c + i) * row + r, LANES, x[i]);]],
    breaks = "numbers behind the last column of a turned product are overwritten",
    isa = "avx512",
    test = "spec/kernels/contraction_spec.lua -f 'matmul f32 .19, 270'",
  },
  {
    name = "3161-turn-a-square", file = "kernels/cpu/gemm_tile_t.h",
    find = [[for (int i = 0; i < LANES; i++) F(store)(dst + (c + i) * row + r, x[i]);
            } else {
                for (int i = 0; i < wide; i++)]],
    replace = [[for (int i = 0; i < LANES; i++) F(store)(dst + (c + i) * row + r, x[0]);
            } else {
                for (int i = 0; i < wide; i++)]],
    breaks = "whole squares of a turned product repeat their first row",
    isa = "avx512",
    test = "spec/kernels/contraction_spec.lua -f 'matmul f32 .19, 270'",
  },
  {
    name = "3560-sums-piece", file = "kernels/cpu/gemm_block_t.h",
    find = [[w->g->row_sums + p / GEMM_DEPTH * w->g->m + w->i0 + i;]],
    replace = [[w->g->row_sums + (p > 0) * w->g->m + w->i0 + i;]],
    breaks = "sums of a later block along k take the place of those of the one before",
    test = sums,
  },
  {
    name = "3561-sums-block", file = "kernels/cpu/gemm_block_t.h",
    find = [[w->g->row_sums + p / GEMM_DEPTH * w->g->m + w->i0 + i;]],
    replace = [[w->g->row_sums + p / GEMM_DEPTH * w->g->m + i;]],
    breaks = "sums of a later block of rows take the place of those of the first",
    test = sums,
  },
  {
    name = "3562-sums-odd", file = "kernels/cpu/gemm_block_t.h",
    find = [[(s[0] + s[1]) + (s[2] + s[3]));]],
    replace = [[(s[0] + s[1]) + (s[2] + s[2]));]],
    breaks = "of eight numbers of a row two are not summed",
    test = sums,
  },
  {
    name = "3563-sums-direct", file = "kernels/cpu/gemm_block_t.h",
    find = [[(!w->direct_a || w->g->row_sums)]],
    replace = [[!w->direct_a]],
    breaks = "rows that stay and are not packed are not summed",
    test = sums,
  },
  {
    name = "3564-sums-chunk", file = "kernels/cpu/gemm_block_t.h",
    find = [[r < count && g->row_sums && w->j0 == 0 && s0 == 0; r++)]],
    replace = [[r < count && g->row_sums && w->j0 == 0 && s0 == 0; r += 2)]],
    breaks = "of rows that are walked together every other sliver is summed",
    test = sums,
  },
  {
    name = "3565-sums-turned", file = "kernels/cpu/gemm_grads.c",
    find = [[g->dtype == GM_F32 && g->stride[1] == 1;]],
    replace = [[g->dtype == GM_F32;]],
    breaks = "rows that do not lie beside each other are summed as if they did",
    test = sums,
  },
}
