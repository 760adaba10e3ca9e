--- Mutants of what CI chooses to build (.ci/kernels), and of a reference that was made faster for it (table.lua).
return {
  {
    name = "2490-lists-are-code", file = ".ci/kernels",
    find = [[why = $i ~ /[.]def$/ ? "lists" : "code"]],
    replace = [[why = "code"]],
    breaks = "a line of a list has kernels compiled for all GPUs",
    test = "spec/tree/kernels_spec.lua -f 'tells lists'",
  },
  {
    name = "2491-new-kernels-are-left-out", file = ".ci/kernels",
    find = [[; git ls-files --others --exclude-standard -- kernels)]],
    replace = [[)]],
    breaks = "a kernel that is not committed is not compiled",
    test = "spec/tree/kernels_spec.lua -f 'what is new'",
  },
  {
    name = "2492-lists-stay-lists", file = ".ci/kernels",
    find = [[in differs && why != "code"]],
    replace = [[in differs && why == ""]],
    breaks = "a changed kernel is compiled for one GPU if how kernels are compiled has changed, too",
    test = "spec/tree/kernels_spec.lua -f both",
  },
  {
    name = "2493-registers-do-not-count", file = ".ci/kernels",
    find = [[|registers[.]awk)]],
    replace = [[|registers)]],
    breaks = "another limit of registers compiles no kernel anew",
    test = "spec/tree/kernels_spec.lua -f both",
  },
  {
    name = "2494-paths-with-dots", file = ".ci/kernels",
    find = [[while (sub("[^/]+/[.][.]/", "", path)) continue]],
    replace = [[sub("[^/]+/[.][.]/", "", path)]],
    breaks = "a file that is included by ../../ is no part of a kernel",
    test = "spec/tree/kernels_spec.lua -f 'tells lists'",
  },
  {
    name = "2495-codes-of-8-bits-to-odd", file = "kernels/ref/float8.c",
    find = [[(up == down && above % 2 == 0)]],
    replace = [[(up == down && above % 2 == 1)]],
    breaks = "a number between two codes of 8 bits gets the odd one",
    test = "spec/kernels/float8_spec.lua -f 'every value'",
  },
}
