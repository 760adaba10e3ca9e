--- Fifty updates of Muon with given gradients, against torch.optim.Muon in f64 (muon.py).
--
-- An iteration multiplies what is small by up to 3.4, five times in a step, so that in f64 (1e-16) a direction is right
-- to 1e-13 of its size; fifty of them, times a rate, stay below 1e-11 of the largest parameter. In f32 (6e-8) the same
-- is 1e-4.
local examples = require "spec.golden.examples"
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"

local tolerances = { f32 = 2e-4, f64 = 1e-11 }

local file = read "muon"

-- Gives parameter p the gradient g: the gradient of sum(p * g).
local function set_gradients(params, gradients)
  local loss
  for n, p in ipairs(params) do
    local term = gm.ops.sum(p * gradients[n])
    loss = loss and loss + term or term
  end
  loss:backward()
end

local function judge(case, dtype)
  local params, kept = {}, {}
  for _, k in ipairs(case.kept) do kept[k] = true end
  for n = 1, case.params do
    params[n] = file:tensor(("%s/param.%d"):format(case.name, n), dtype):requires_grad(true)
  end
  local optimizer = gm.optim.Muon(case.options, params)
  for k = 1, case.steps do
    gm.scope(function()
      local gradients = {}
      for n = 1, case.params do
        gradients[n] = file:tensor(("%s/grad.%d.%d"):format(case.name, (k - 1) % case.given + 1, n), dtype)
      end
      optimizer:zero_grad()
      set_gradients(params, gradients)
      optimizer:step()
      for n, p in ipairs(kept[k] and params or {}) do
        numeric.agree(p, file:tensor(("%s/after.%d.%d"):format(case.name, k, n)), tolerances[dtype])
      end
    end)
  end
  assert.equal(case.steps, optimizer:steps())
end

describe("golden", function() examples(it, file, judge) end)
