--- Updates of an optimizer whose gradients are given: for the golden specs of optimizers.
local gm = require "ganymede"
local registry = require "ganymede.base.registry"

local given_gradients = {}

-- Sets the gradient of each parameter p to g: the gradient of sum(p * g) is g.
local function set_gradients(params, gradients)
  local loss
  for n, p in ipairs(params) do
    local term = gm.ops.sum(p * gradients[n])
    loss = loss and loss + term or term
  end
  loss:backward()
end

--- Makes case.steps updates of case.params parameters with the optimizer of the case, and returns the optimizer.
-- read_param(n) and read_gradient(step, n) return tensors of the golden file; check(step, n, parameter) is called after
-- each update.
function given_gradients.run(case, read_param, read_gradient, check)
  local params = {}
  for n = 1, case.params do params[n] = read_param(n):requires_grad(true) end
  local optimizer = registry.optimizers:get(case.optimizer)(case.options, params)
  for k = 1, case.steps do
    gm.scope(function()
      local gradients = {}
      for n = 1, case.params do gradients[n] = read_gradient(k, n) end
      optimizer:zero_grad()
      set_gradients(params, gradients)
      optimizer:step()
      for n, p in ipairs(params) do check(k, n, p) end
    end)
  end
  return optimizer
end

return given_gradients
