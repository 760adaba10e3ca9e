--- Layers, losses and models against PyTorch: outputs and all gradients, in f64 and f32.
-- The numbers come from layers.py, convolution.py, models.py, llama.py, images.py, resnet.py, vision.py and
-- diffusion.py beside this file.
local examples = require "spec.golden.examples"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"
local registry = require "ganymede.base.registry"

require "ganymede.models"

-- Errors are relative to the largest value. f32: the sums here have fewer than 200 terms, 2^-24 * sqrt(200)
-- is 8e-7 and the models are some ten layers deep. f64: both sides round in 2^-53, with room for the order of sums.
local tolerances = { f32 = 1e-5, f64 = 1e-10 }

-- A U-Net has some sixty layers one behind the other, norms of two numbers among them; each adds its rounding.
local function tolerance_of(case, dtype)
  return dtype == "f32" and case.layer == "UNet" and 3e-5 or tolerances[dtype]
end

local function load_parameters(layer, file, case)
  local wanted = file:names(case.name .. "/param.")
  local found = {}
  for i, p in ipairs(layer:named_parameters()) do
    found[i] = p.name
    p.tensor:detach():copy_(file:tensor(case.name .. "/param." .. p.name))
  end
  table.sort(found)
  assert.same(wanted, found) -- the layer has these parameters and no others
end

local function inputs_of(file, case, dtype)
  local inputs = {}
  for i = 1, #file:names(case.name .. "/input.") do
    inputs[i] = file:tensor(("%s/input.%d"):format(case.name, i), dtype)
    if file:has(("%s/grad.input.%d"):format(case.name, i)) then inputs[i]:requires_grad(true) end
  end
  return inputs
end

local function check_gradients(layer, inputs, file, case, tolerance)
  local largest = 0
  local function check(tensor, name)
    local place = case.name .. "/grad." .. name
    numeric.agree(tensor:grad(), file:tensor(place), tolerance, case.floor) -- floor: some have no slope in theory
    largest = math.max(largest, file:largest(place))
  end
  for i, x in ipairs(inputs) do
    if x:requires_grad() then check(x, "input." .. i) end
  end
  for _, p in ipairs(layer:named_parameters()) do check(p.tensor, "param." .. p.name) end
  assert.is_true(largest >= 1e-3, "gradients are all near zero: the case proves nothing")
end

-- What a call in training has left in buffers.
local function check_state(layer, file, case, tolerance)
  local wanted, found = file:names(case.name .. "/state."), {}
  for i, e in ipairs(layer:state(true)) do
    found[i] = e.name
    numeric.agree(e.tensor, file:tensor(case.name .. "/state." .. e.name, e.tensor:dtype()), tolerance)
  end
  table.sort(found)
  assert.same(wanted, found)
end

local function judge(case, dtype, file)
  local layer, tolerance = registry[case.registry or "layers"]:get(case.layer)(case.options), tolerance_of(case, dtype)
  load_parameters(layer, file, case)
  local inputs = inputs_of(file, case, dtype)
  if case.eval then layer:eval() end
  local output = layer(unpack(inputs))
  if not gm.is_tensor(output) then -- a list of outputs: one row of their numbers
    for i, y in ipairs(output) do output[i] = y:reshape { -1 } end
    output = gm.ops.cat(output, 1)
  end
  assert.equal(dtype, output:dtype())
  numeric.agree(output, file:tensor(case.name .. "/output"), tolerance)
  gm.ops.sum(output * file:tensor(case.name .. "/seed", dtype)):backward()
  check_gradients(layer, inputs, file, case, tolerance)
  check_state(layer, file, case, tolerance)
  if case.count then assert.equal(case.count, layer:count(inputs[2])) end
end

describe("golden", function()
  for _, name in ipairs { "layers", "convolution", "models", "llama", "images", "resnet", "vision", "diffusion" } do
    examples(it, read(name), judge)
  end
  local sweep = os.getenv "GANYMEDE_SPEC_SWEEP" -- a folder of sweep.py
  if sweep then examples(it, read("sweep_layers", sweep), judge) end
end)
