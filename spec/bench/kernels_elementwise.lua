-- kernels_elementwise.lua - what the memory-bound kernels reach of this machine's copy bandwidth, timed on demand:
--
--     build/ganymede run spec/bench/kernels_elementwise.lua --threads 2
--
-- Prints for each kernel the best of `rounds` runs as traffic (each tensor read or written once) in GB/s, the copy's
-- likewise, and the median share of the copy's rate: the two take turns, so both suffer alike when the machine is
-- shared. Judge by the share. On one thread times are of the processor, not of the clock.
local gm = require "ganymede"
local core = require "ganymede.core"

local rows, width, rounds = 16384, 768, 21
local clock = core.device().threads == 1 and os.clock or core.now

local function seconds(op, inputs, outputs, attrs)
  local from = clock()
  core.run_op("cpu", op, inputs, outputs, attrs or {})
  return clock() - from
end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local function run()
  local function make(seed, shape) return gm.normal(shape or { rows, width }, { seed = seed }) end
  local x, y, z, g, w, b = make(1), make(2), make(3), make(4), make(5, { width }), make(6, { width })
  local mean, rstd, dw, db = make(7, { rows }), make(8, { rows }), make(9, { width }), make(10, { width })
  local bytes = rows * width * 4

  local function report(name, passes, op, inputs, outputs, attrs)
    local copy, best, shares = 0, 0, {}
    for i = 1, rounds do
      local copied = 2 * bytes / seconds("copy", { n = 1, x }, { n = 1, y })
      local rate = passes * bytes / seconds(op, inputs, outputs, attrs)
      copy, best, shares[i] = math.max(copy, copied), math.max(best, rate), rate / copied
    end
    print(("%-24s %7.2f GB/s %6.0f %% of copy (%.2f)"):format(name, best / 1e9, 100 * median(shares), copy / 1e9))
  end

  report("fill", 1, "fill", { n = 0 }, { n = 1, y }, { value = 0 })
  report("fill with 0.1", 1, "fill", { n = 0 }, { n = 1, y }, { value = 0.1 })
  report("transposed copy", 2, "copy", { n = 1, x:permute { 2, 1 } }, { n = 1, make(11, { width, rows }) })
  report("add", 3, "binary", { n = 2, x, g }, { n = 1, y }, { ["function"] = "add" })
  report("add a row", 2, "binary", { n = 2, x, w }, { n = 1, y }, { ["function"] = "add" })
  for _, f in ipairs { "relu", "gelu", "gelu_tanh", "silu", "tanh", "exp" } do
    report(f, 2, "unary", { n = 1, x }, { n = 1, y }, { ["function"] = f })
    report(f .. " gradient", 3, "unary_grad", { n = 2, x, g }, { n = 1, y }, { ["function"] = f })
  end
  report("dropout", 2, "dropout", { n = 1, x }, { n = 1, y }, { p = 0.1 })
  report("layer_norm", 2, "layer_norm", { n = 4, x, nil, w, b }, { n = 4, y, false, mean, rstd })
  report("layer_norm gradient", 3, "layer_norm_grad", { n = 6, g, nil, x, w, mean, rstd }, { n = 3, y, dw, db })
  report("softmax", 2, "softmax", { n = 1, x }, { n = 1, y })
  report("softmax gradient", 3, "softmax_grad", { n = 2, y, g }, { n = 1, z })
  report("sum of columns", 1, "sum", { n = 1, x }, { n = 1, db }, { dims = 1 })
  report("sum of rows", 1, "sum", { n = 1, x }, { n = 1, mean }, { dims = 2 })
  report("sum of squares", 1, "sum_squares", { n = 1, x }, { n = 1, true })
  for _, t in ipairs { y, z } do core.run_op("cpu", "fill", {}, { n = 1, t }, { value = 0.5 }) end
  report("adam", 7, "adam", { n = 3, nil, nil, g }, { n = 6, x, make(12):keep(), z })
end

gm.scope(run)
