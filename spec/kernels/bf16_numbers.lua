--- Tensors of bf16 for specs of CPU tables that multiply bf16 as it is, and the tables.
local core = require "ganymede.core"
local gm = require "ganymede"
local support = require "spec.kernels.support"

local bf16 = {}

-- The best table of this machine, the one that multiplies pairs of bf16, and the one by tiles of AMX.
bf16.tables = { "cpu" }
if core.has_backend "cpu-avx512bf16" and core.device().backend ~= "cpu-avx512bf16" then
  bf16.tables[#bf16.tables + 1] = "cpu-avx512bf16"
end
if core.has_backend "cpu-amx-emulated" then bf16.tables[#bf16.tables + 1] = "cpu-amx-emulated" end

--- A function draw(n) that gives whole numbers from 0 to n - 1, the same in each run.
function bf16.draws()
  local state = 1
  return function(n)
    state = (state * 1103515245 + 12345) % 2 ^ 31
    return math.floor(state / 2 ^ 16) % n
  end
end

--- bf16 in a layout of memory whose other numbers are NaN: a sum that reads one of them shows it. low, high: whole
-- numbers of this range; else uniform in [-1, 1). layout: "contiguous", "window" or "turned".
function bf16.numbers(shape, layout, low, high)
  local values = low and support.integers(shape, "i32", low, high):to "bf16" or support.input(shape, "bf16")
  if layout == "contiguous" then return values end
  local larger, order, turned = {}, {}, {}
  for d = 1, #shape do larger[d] = shape[d] + 3 end
  for d = 1, #shape do order[d], turned[d] = #shape + 1 - d, larger[#shape + 1 - d] end
  local t = layout == "window" and gm.full(larger, 0 / 0, { dtype = "bf16" })
    or gm.full(turned, 0 / 0, { dtype = "bf16" }):permute(order)
  for d = 1, #shape do t = t:narrow(d, 2, shape[d]) end
  return core.run_op("ref", "copy", { n = 1, values }, { n = 1, t })[1]
end

return bf16
