--- A tiny BERT against PyTorch (bert.py): both outputs, both losses, every gradient, with padding and ignored targets.
local examples = require "spec.golden.examples"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"

local file = read "bert"

-- Relative to the largest value. f32: sums of some hundred terms of 2^-24 through a dozen layers; f64: 2^-53 likewise.
local tolerances = { f32 = 1e-5, f64 = 1e-10 }

local function judge(case, dtype)
  local model = gm.models.BERT(file.meta.model)
  local function golden(what) return file:tensor(case.name .. "/" .. what, dtype) end
  for _, p in ipairs(model:named_parameters()) do p.tensor:detach():copy_(golden("param." .. p.name)) end
  local target, criterion, tolerance = golden "target", gm.nn.BERTLoss {}, tolerances[dtype]
  local output = model(golden "input")
  numeric.agree(output[1], golden "tokens", tolerance)
  numeric.agree(output[2], golden "pair", tolerance)
  assert.same(case.count, criterion:count(target))
  local losses = numeric.flat(golden "loss")
  for k, sum in ipairs(criterion:terms(output, target)) do
    assert.near(losses[k], sum:item() / case.count[k], tolerance * losses[k])
  end
  local loss = criterion(output, target)
  assert.near(losses[1] + losses[2], loss:item(), tolerance * (losses[1] + losses[2]))
  loss:backward()
  local names = {}
  for i, p in ipairs(model:named_parameters()) do
    assert.is_true(file:largest(case.name .. "/grad." .. p.name) >= 1e-3, p.name)
    numeric.agree(p.tensor:grad(), golden("grad." .. p.name), tolerance)
    names[i] = p.name
  end
  table.sort(names)
  assert.same(file:names(case.name .. "/param."), names)
end

describe("golden BERT", function()
  assert(#file.cases == 2)
  examples(it, file, judge, "with %s sequences equals PyTorch in %s")
end)
