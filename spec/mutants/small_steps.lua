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
}
