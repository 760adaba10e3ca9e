--- Root mean square normalisation over the last dimension (Zhang and Sennrich 2019): no mean, no bias.
-- @module ganymede.nn.rms_norm
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"

local RMSNorm = module.class "RMSNorm"

RMSNorm.positional = { "width", "eps" }
RMSNorm.aliases = { normalized_shape = "width" }
RMSNorm.options = {
  width = { type = "integer", min = 1, doc = "the size of the last dimension" },
  eps   = { type = "number", default = 1e-5, above = 0,
    doc = "a number added to the mean square, which prevents a division by 0" },
  offset = { type = "boolean", default = false,
    doc = "whether results are multiplied by 1 + weight, and not by weight, as in Gemma; weights begin with zeros" },
}

function RMSNorm:build(opt)
  self:param("weight", { opt.width }, (opt.offset and init.zeros() or init.ones())(opt.width))
end

--- x (..., width) -> normalised (..., width).
-- With a residual of the shape of x it returns normalised(x + residual) and the sum itself. Backward: dx (and
-- dresidual) are set, dW is added to.
function RMSNorm:forward(x, residual)
  local weight = self:use "weight"
  if self.opt.offset then weight = weight + 1 end
  if residual then return ops.add_rms_norm(x, residual, weight, self.opt.eps) end
  return ops.rms_norm(x, weight, self.opt.eps)
end

return RMSNorm
