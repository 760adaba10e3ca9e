-- Mutants of products of some rows and many columns where vectors have 64 bytes (kernels/cpu/gemm_turned_t.h).
-- table.lua says what the fields are. avx2.lua has those that are the same for all vectors.
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
}
