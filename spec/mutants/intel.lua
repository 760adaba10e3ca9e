--- Mutants of what is chosen on Intel's processors (kernels/cpu/find.c). What a row says: spec/mutants/table.lua.
local rows = {
  {
    name = "3030-pairs-slow", file = "kernels/cpu/find.c",
    find = [[if (has.avx512bf16 && !(pairs_slow && has.avx512))]],
    replace = [[if (has.avx512bf16 || pairs_slow)]],
    breaks = "pairs of bf16 are multiplied where f32 is twice as fast",
    test = "unit find_best",
  },
  {
    name = "3031-pairs-alone", file = "kernels/cpu/find.c",
    find = [[!(pairs_slow && has.avx512)]],
    replace = [[!pairs_slow]],
    breaks = "a build whose only table multiplies pairs runs the generic kernels",
    test = "unit find_best",
  },
  {
    name = "3032-find-name", file = "kernels/cpu/find.c",
    find = [[if (has.avx512bf16 && !strcmp(name, "cpu-avx512bf16")) return &gm_cpu_avx512bf16;]],
    replace = [[if (has.avx512bf16 && !strcmp(name, "cpu-avx512bf16")) return &gm_cpu_amx_emulated;]],
    breaks = "a table is not the one that its name says",
    test = "unit find_names",
  },
  {
    name = "3033-doctor-pairs", file = "lua/ganymede/cli/doctor.lua",
    find = [[pairs_slow = core.pairs_slow() }]],
    replace = [[pairs_slow = not core.pairs_slow() }]],
    breaks = "the doctor says the contrary of what pairs of bf16 cost",
    test = "spec/kernels/amx_spec.lua -f doctor",
  },
}
for _, row in ipairs(rows) do row.isa, row.cpu = "avx512bf16", "avx512_bf16" end
return rows
