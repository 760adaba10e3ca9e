--- The decays of two moments, checked.
-- @module ganymede.optim.betas
local options = require "ganymede.base.options"

--- Returns beta1 and beta2 of the option `betas`. name: of the optimizer, for errors.
return function(name, betas)
  for i = 1, 2 do
    local b = betas[i]
    if type(b) ~= "number" or b < 0 or b >= 1 then
      error(("%s: betas[%d] must be a number from 0, below 1; got %s"):format(name, i, tostring(b)), 0)
    end
  end
  for key in pairs(betas) do
    if key ~= 1 and key ~= 2 then
      error(("%s: betas has two numbers; got %s"):format(name, options.literal(betas)), 0)
    end
  end
  return betas[1], betas[2]
end
