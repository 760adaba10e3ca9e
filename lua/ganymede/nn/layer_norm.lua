--- Layer normalisation over the last dimension (Ba, Kiros and Hinton 2016).
-- @module ganymede.nn.layer_norm
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"

local LayerNorm = module.class "LayerNorm"

LayerNorm.positional = { "width", "eps" }
LayerNorm.aliases = { normalized_shape = "width" }
LayerNorm.options = {
  width = { type = "integer", min = 1, doc = "the size of the last dimension" },
  eps   = { type = "number", default = 1e-5, above = 0,
    doc = "a number added to the variance, which prevents a division by 0" },
  bias  = { type = "boolean", default = true, doc = "whether a learned bias is added" },
}

function LayerNorm:build(opt)
  self:param("weight", { opt.width }, init.ones()(opt.width))
  if opt.bias then self:param("bias", { opt.width }, init.zeros()(opt.width)) end
end

--- x (..., width) -> normalised (..., width).
-- With a residual of the shape of x it returns normalised(x + residual) and the sum itself, both from one pass over
-- memory. Backward: dx (and dresidual) are set, dW and db are added to.
function LayerNorm:forward(x, residual)
  local weight, bias = self:use "weight", self:use "bias"
  if residual then return ops.add_layer_norm(x, residual, weight, bias, self.opt.eps) end
  return ops.layer_norm(x, weight, bias, self.opt.eps)
end

return LayerNorm
