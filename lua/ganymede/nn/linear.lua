--- A dense layer: y = f(x W' + b), the activation f fused into the product when there is one.
-- @module ganymede.nn.linear
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.ops"

local Linear = module.class "Linear"

Linear.positional = { "inputs", "outputs" }
Linear.aliases = { in_features = "inputs", out_features = "outputs" }
Linear.options = {
  inputs  = { type = "integer", min = 1, doc = "width of x" },
  outputs = { type = "integer", min = 1, doc = "width of y" },
  bias    = { type = "boolean", default = true, doc = "add b?" },
  activation = { type = "string", optional = true, one_of = { "relu", "gelu", "gelu_tanh", "silu" },
                 doc = "applied to the result, in the same kernel" },
  partition = { type = "string", optional = true, hidden = true, one_of = { "column", "row" },
                doc = "which of a pair of layers this is on a mesh that cuts layers: the first, or the second" },
  weight_initializer = init.option "default U(-1/sqrt(inputs), 1/sqrt(inputs)), as PyTorch",
  bias_initializer   = init.option "default U(-1/sqrt(inputs), 1/sqrt(inputs)), as PyTorch",
}

function Linear:build(opt)
  self:param("weight", { opt.outputs, opt.inputs },
    init.resolve(opt.weight_initializer, init.dense_weight, opt.inputs, opt.outputs))
  if opt.bias then
    self:param("bias", { opt.outputs }, init.resolve(opt.bias_initializer, init.dense_bias, opt.inputs))
  end
end

--- x (..., inputs) -> (..., outputs); backward: dx is set, dW and db are added to.
function Linear:forward(x)
  return ops.linear(x, self:use "weight", self:use "bias", self.opt.activation)
end

return Linear
