--- Mutants of ops whose lanes are rows or columns, of norms of f16, and of sums of 16 bits (kernels/cpu/extremes.c,
--- norm.c, memory_t.h). What a row says: spec/mutants/table.lua.
local reduce, f16 = "spec/kernels/reduce_spec.lua", "spec/kernels/f16_elements_spec.lua"
return {
  {
    name = "3400-extreme-of-nan", file = "kernels/cpu/extremes_t.h",
    find = [[VI take = ~keeps & (*best == *best);]],
    replace = [[VI take = ~keeps;]],
    breaks = "beside each other, what follows a NaN takes its place",
    test = reduce .. " -f 'NaN and infinities'",
  },
  {
    name = "3401-extreme-of-equals", file = "kernels/cpu/extremes_t.h",
    find = [[smallest ? v >= *best : v <= *best]],
    replace = [[smallest ? v > *best : v < *best]],
    breaks = "beside each other, the last of equals counts",
    test = reduce .. " -f 'beside each other'",
  },
  {
    name = "3402-extreme-strips", file = "kernels/cpu/extremes_t.h",
    find = [[first = i % j->strips * most, to]],
    replace = [[first = i % j->strips * LANES, to]],
    breaks = "strips of columns begin within the one before",
    test = reduce .. " -f 'beside each other'",
  },
  {
    name = "3403-extreme-rows-left", file = "kernels/cpu/extremes_t.h",
    find = [[F(extreme_part)(context, begin, end, thread);]],
    replace = [[F(extreme_part)(context, begin, begin, thread);]],
    breaks = "short rows that fill no vector get no extreme",
    test = reduce .. " -f 'beside each other'",
  },
  {
    name = "3404-norm-of-f16", file = "kernels/cpu/norm.c",
    find = [[BY_ANY(x, norm_part)]],
    replace = [[BY_ELEMENT(x, norm_part)]],
    breaks = "norms read f16 as doubles",
    test = f16 .. " -f norms",
  },
  {
    name = "3405-gradient-of-norm-of-f16", file = "kernels/cpu/norm.c",
    find = [[gm_dtype_is_narrow(x->dtype)]],
    replace = [[x->dtype == GM_BF16]],
    breaks = "gradients of norms of f16 keep a row of f32 where their f16 belongs",
    test = f16 .. " -f norms",
  },
  {
    name = "3406-sum-of-halves", file = "kernels/cpu/memory_t.h",
    find = [[if (T_BITS == 32) *b += high;]],
    replace = [[if (T_BITS == 32) *b += low;]],
    breaks = "sums count the first half of each vector twice",
    test = reduce .. " -f sum",
  },
  {
    name = "3407-product-of-halves", file = "kernels/cpu/memory_t.h",
    find = [[*b += high * high_q;]],
    replace = [[*b += high * low_q;]],
    breaks = "sums of products cross the halves of vectors",
    test = "spec/kernels/norm_spec.lua -f rms_norm",
  },
}
