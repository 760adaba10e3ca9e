--- Ops that are made of others (ganymede.tensor.composed) against PyTorch: results and gradients, in f64 and f32. The
-- numbers come from composed.py beside this file.
local examples = require "spec.golden.examples"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"

-- Errors are relative to the largest value, as in layers_spec.lua: sums of some ten terms.
local tolerances = { f32 = 1e-5, f64 = 1e-12 }

local function judge(case, dtype, file)
  local inputs, n = {}, #file:names(case.name .. "/input.")
  for i = 1, n do
    inputs[i] = file:tensor(("%s/input.%d"):format(case.name, i), dtype)
    if file:has(("%s/grad.input.%d"):format(case.name, i)) then inputs[i]:requires_grad(true) end
  end
  local given = case.list and { inputs, unpack(case.arguments) } or { inputs[1], unpack(case.arguments) }
  local y, index = gm.ops[case.op](unpack(given))
  if y:dim() > 0 then assert.same(file:tensor(case.name .. "/output"):shape(), y:shape()) end -- numpy has no ()
  numeric.agree(y, file:tensor(case.name .. "/output"), tolerances[dtype])
  if index then assert.same(file:tensor(case.name .. "/index"):totable(), index:totable()) end
  if not file:has(case.name .. "/seed") then return end
  gm.ops.sum(y * file:tensor(case.name .. "/seed", dtype)):backward()
  for i, x in ipairs(inputs) do
    numeric.agree(x:grad(), file:tensor(("%s/grad.input.%d"):format(case.name, i)), tolerances[dtype])
  end
end

describe("golden", function()
  local file = read "composed"
  assert(#file.cases > 60)
  examples(it, file, judge)
  local sweep = os.getenv "GANYMEDE_SPEC_SWEEP" -- a folder of sweep.py
  if sweep then examples(it, read("sweep_ops", sweep), judge) end
end)
