--- The decays of two moments, checked.
-- @module ganymede.optim.betas
local options = require "ganymede.base.options"

--- Returns beta1 and beta2 of the option `betas`, a list. name: of the optimizer, for errors.
return function(name, betas)
  if #betas ~= 2 then error(("%s: betas has two numbers; got %s"):format(name, options.literal(betas)), 0) end
  for i, b in ipairs(betas) do
    if type(b) ~= "number" or not (b >= 0 and b < 1) then
      error(("%s: betas[%d] must be a number from 0, below 1; got %s"):format(name, i, options.literal(b)), 0)
    end
  end
  return betas[1], betas[2]
end
