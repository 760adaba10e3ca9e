--- Fifty updates of each optimizer with given gradients, against PyTorch (families.py).
local gm = require "ganymede"
local numeric = require "spec.support.numeric"
local read = require "spec.golden.read"
local registry = require "ganymede.base.registry"

-- relative to the largest parameter: fifty updates of a few roundings each
local tolerances = { f32 = 1e-5, f64 = 1e-12 }

local file = read "families"

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
  local params, seen = {}, 0
  for n = 1, case.params do params[n] = file:tensor("param." .. n, dtype):requires_grad(true) end
  local optimizer = registry.optimizers:get(case.optimizer)(case.options, params)
  for k = 1, case.steps do
    gm.scope(function()
      local gradients = {}
      for n = 1, case.params do gradients[n] = file:tensor(("grad.%d.%d"):format(k, n), dtype) end
      optimizer:zero_grad()
      set_gradients(params, gradients)
      optimizer:step()
      for n, p in ipairs(params) do
        local name = ("%s/after.%d.%d"):format(case.name, k, n)
        if file:has(name) then
          numeric.agree(p, file:tensor(name), tolerances[dtype])
          seen = seen + 1
        end
      end
    end)
  end
  assert.equal(4 * case.params, seen)
end

describe("golden", function()
  require "ganymede.optim"
  for _, case in ipairs(file.cases) do
    for _, dtype in ipairs { "f64", "f32" } do
      it(("%s equals PyTorch in %s"):format(case.name, dtype), function() gm.scope(judge, case, dtype) end)
    end
  end
end)
