--- Mutants of what small steps on CPUs need: narrow panels of attention, and threads that share the units of a job.
-- What a row says: spec/mutants/table.lua.
return {
  {
    name = "2047-attention-wide", file = "kernels/cpu/attention_t.h",
    find = [[return queries > LANES ? GEMM_COLUMNS : LANES;]],
    replace = [[return queries >= GEMM_COLUMNS ? GEMM_COLUMNS : LANES;]],
    breaks = "of a panel of queries that is not full only one vector is computed",
    test = "spec/kernels/attention_spec.lua -f 'attention f32'",
  },
  {
    name = "2048-gradient-wide", file = "kernels/cpu/attention_grad_t.h",
    find = [[t.b_step = F(gradient_wide)(w->keys - j0 - j);]],
    replace = [[t.b_step = F(gradient_wide)(keys - j);]],
    breaks = "a panel of keys of which queries see few is read as if it were narrow",
    test = "spec/kernels/attention_spec.lua -f 'window'",
  },
  {
    name = "2049-queue-half", file = "kernels/cpu/gemm.c",
    find = [[q.span[i].end = units * (i + 1) / q.spans;]],
    replace = [[q.span[i].end = units * (i + 1) / q.spans - 1;]],
    breaks = "the last unit of each span is done by nobody",
    test = "spec/kernels/contraction_spec.lua -f 'matmul f32'",
  },
  {
    name = "2360-piece-end", file = "kernels/cpu/gelu_t.h", isa = "avx512",
    find = [[#define PIECES_END 5.859375f]],
    replace = [[#define PIECES_END 4.75f]],
    breaks = "gelu is 0 where it is not yet",
    test = "spec/kernels/pieces_spec.lua",
  },
  {
    name = "2361-piece-of", file = "kernels/cpu/gelu_t.h", isa = "avx512",
    find = [[__builtin_shuffle(load_f32(row), load_f32(row + 16), (vi32)k)]],
    replace = [[__builtin_shuffle(load_f32(row), load_f32(row), (vi32)k)]],
    breaks = "the outer half of the pieces takes the polynomials of the inner one",
    test = "spec/kernels/pieces_spec.lua",
  },
  {
    name = "2362-finish-rows", file = "kernels/cpu/gemm_block_t.h",
    find = [[(const T *)g->pre + i * g->pre_row + j, g->pre_row, c,]],
    replace = [[(const T *)g->pre + i * g->pre_row + j, 0, c,]],
    breaks = "all rows of a tile go back through the activation of the first",
    test = "spec/kernels/contraction_spec.lua",
  },
}
