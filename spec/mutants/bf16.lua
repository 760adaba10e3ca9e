--- Mutants of products, convolutions and attention of bf16 on CPUs that multiply it (kernels/cpu/gemm_pairs.c).
-- What a row says: spec/mutants/table.lua.
local convolutions = "spec/kernels/bf16_convolutions_spec.lua"
local attention = "spec/kernels/bf16_attention_spec.lua -f 'queries, '"
local whole = "spec/kernels/bf16_products_spec.lua -f 'whole numbers'"
local rows = {
  {
    name = "1820-pairs-odd", file = "kernels/cpu/gemm_pairs.c",
    find = [[pairs_join(x, 2 * p + 1 < numbers ? x + along : NULL, have)]],
    replace = [[pairs_join(x, x + along, have)]],
    breaks = "where k is odd, the last pair takes a number of the next row",
    test = whole,
  },
  {
    name = "1821-pairs-order", file = "kernels/cpu/gemm_pairs.c",
    find = [[order[i] = (int16_t)(i / 2 + i % 2 * 32);]],
    replace = [[order[i] = (int16_t)(i / 2 + (1 - i % 2) * 32);]],
    breaks = "pairs of whole panels are the wrong way round",
    test = whole,
  },
  {
    name = "1822-pairs-tail", file = "kernels/cpu/gemm_pairs.c",
    find = [[(1ull << (n < 0 ? 0 : n)) - 1)]],
    replace = [[(1ull << (n < 0 ? 0 : (n + 1) / 2 * 2)) - 1)]],
    breaks = "where k is odd, pairs of a row take the number behind its end",
    test = whole,
  },
  {
    name = "1823-pairs-gather", file = "kernels/cpu/gemm_pairs.c",
    find = [[x[0] | (p + 1 < numbers ? (uint32_t)x[along] << 16 : 0)]],
    replace = [[x[0] | (uint32_t)x[along] << 16]],
    breaks = "where k is odd and no numbers are neighbours, the last pair takes one too many",
    test = whole,
  },
  {
    name = "1824-pairs-depth", file = "kernels/cpu/gemm_block_t.h",
    find = [[const int64_t left = g->numbers - 2 * p;]],
    replace = [[const int64_t left = g->numbers - p;]],
    breaks = "what is left of k is counted in pairs",
    test = whole,
  },
  {
    name = "1825-pairs-batch", file = "kernels/cpu/gemm_ops.c",
    find = [[size = g.numbers ? 2 : to;]],
    replace = [[size = to;]],
    breaks = "products of a batch lie twice as far apart as they are",
    test = "spec/kernels/bf16_products_spec.lua -f batches",
  },
  {
    name = "1826-pairs-thin", file = "kernels/cpu/gemm_thin.c",
    find = [[two[1] = pairs_load(w + k + 32, 32);]],
    replace = [[two[1] = pairs_load(w + k, 32);]],
    breaks = "one row of x meets the same 32 weights twice",
    test = "spec/kernels/bf16_products_spec.lua -f linear",
  },
  {
    name = "1827-pairs-bias", file = "kernels/cpu/gemm_bias_t.h",
    find = [[(const bits2 *)w->g + i * w->g_row, sum);]],
    replace = [[(const bits2 *)w->g, sum);]],
    breaks = "the gradient of a bias in bf16 adds the first row again and again",
    test = "spec/kernels/contraction_spec.lua -f 'linear_weight_grad bf16'",
  },
  {
    name = "1903-pairs-across", file = "kernels/cpu/gemm_block_t.h",
    find = [[(g->numbers % 2 == 0 && row % 2 == 0 &&]],
    replace = [[(row % 2 == 0 &&]],
    breaks = "the last pair of a row that is read where it lies has a number that is not of this row",
    test = "spec/kernels/bf16_products_spec.lua -f 'half of a pair'",
  },
  {
    name = "2040-attention-pairs-order", file = "kernels/cpu/gemm_pairs.c",
    find = [[0, 16, 1, 17, 2,  18,]],
    replace = [[16, 0, 1, 17, 2,  18,]],
    breaks = "the weights of two keys of one query are the wrong way round",
    test = attention,
  },
  {
    name = "2041-attention-pairs-last", file = "kernels/cpu/attention_t.h",
    find = [[j + 1 < keys ? load_f32(at + GEMM_COLUMNS) : splat_f32(0)]],
    replace = [[load_f32(at + GEMM_COLUMNS)]],
    breaks = "the key behind an odd number of keys has what is left of another block as its weight",
    test = attention,
  },
  {
    name = "2042-attention-pairs-mask", file = "kernels/cpu/attention_t.h",
    find = [[if (w->pairs && w->mask) F(attention_pack)]],
    replace = [[if (false) F(attention_pack)]],
    breaks = "values of hidden keys, which may be NaN, are multiplied by 0",
    test = "spec/kernels/attention_spec.lua -f 'hidden keys'",
  },
  {
    name = "2043-gradient-pairs-block", file = "kernels/cpu/attention_grad_t.h",
    find = [[k = room->k + j0 / 2 * d;]],
    replace = [[k = room->k + j0 * d;]],
    breaks = "gradients of queries take keys from beyond the second block",
    test = attention,
  },
  {
    name = "2044-gradient-pairs-row", file = "kernels/cpu/attention_grad_t.h",
    find = [[if (two) pairs_store((bits2 *)room->ds_pairs]],
    replace = [[if (false) pairs_store((bits2 *)room->ds_pairs]],
    breaks = "every second query has no slopes of its own in bf16",
    test = attention,
  },
  {
    name = "2045-attention-widened", file = "kernels/cpu/narrow.c",
    find = [[default: return attention_takes_pairs(call);]],
    replace = [[default: return false;]],
    breaks = "attention of bf16 is converted to f32 though it is computed in bf16",
    test = "spec/kernels/bf16_attention_spec.lua -f 'copies in f32'",
  },
  {
    name = "2046-attention-pairs-added", file = "kernels/cpu/attention_t.h",
    find = [[cast_bf16_f32(m, narrow, room);]],
    replace = [[memset(room, 0, sizeof room);]],
    breaks = "attention that adds to bf16 forgets what is there",
    test = "spec/kernels/attention_spec.lua -f 'accumulating bf16'",
  },
  {
    name = "1886-conv-pairs-behind", file = "kernels/cpu/convolution_pairs.c",
    find = [[y ? at_f32(y + run[r].from, i, m)]],
    replace = [[y ? at_f32(x + run[r].from, i, m)]],
    breaks = "both numbers of a pair are those of one place of the kernel",
    test = convolutions,
  },
  {
    name = "1887-conv-pairs-odd-results", file = "kernels/cpu/convolution_pairs.c",
    find = [[g->numbers - 2 * p < 2 * k ? g->numbers - 2 * p : 2 * k;]],
    replace = [[g->numbers - 2 * p < 2 * k ? (g->numbers - 2 * p) / 2 * 2 : 2 * k;]],
    breaks = "the gradient of weights leaves out the last of an odd number of results",
    test = convolutions,
  },
  {
    name = "1888-conv-pairs-phases", file = "kernels/cpu/convolution_ops.c",
    find = [[b->phases[i].a = paired + ((char *)b->phases[i].a - (char *)b->phases[0].a) / 2;]],
    replace = [[b->phases[i].a = paired;]],
    breaks = "all phases of a transposed convolution of bf16 take the weights of the first",
    test = convolutions,
  },
  {
    name = "1889-conv-pairs-groups", file = "kernels/cpu/convolution.c",
    find = [[.a = (const char *)w->a + group * w->m * n * conv_a_size(w),]],
    replace = [[.a = (const char *)w->a + group * w->m * n * size,]],
    breaks = "the second group of a gradient of weights in bf16 reads behind what is its own",
    test = convolutions,
  },
  {
    name = "1890-conv-pairs-widened", file = "kernels/cpu/narrow.c",
    find = [[    case GM_OP_convolution:
    case GM_OP_transposed_convolution:
]],
    replace = "",
    breaks = "convolutions of bf16 are computed in f32, at half the rate",
    test = convolutions,
  },
}
for _, row in ipairs(rows) do row.isa, row.cpu = "avx512bf16", "avx512_bf16" end
return rows
