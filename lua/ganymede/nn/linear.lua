--- A dense layer: y = f(x W' + b), the activation f fused into the product when there is one.
-- @module ganymede.nn.linear
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"

local Linear = module.class "Linear"

Linear.positional = { "inputs", "outputs", "bias" }
Linear.aliases = { in_features = "inputs", out_features = "outputs" }
Linear.options = {
  inputs  = { type = "integer", min = 1, doc = "width of x" },
  outputs = { type = "integer", min = 1, doc = "width of y" },
  bias    = { type = "boolean", default = true, doc = "add b?" },
  activation = { type = "string", optional = true, one_of = { "relu", "gelu", "gelu_tanh", "silu" },
                 doc = "applied to the result, in the same kernel" },
  skip_bias_add = { type = "boolean", default = false, hidden = true,
                    doc = "give y without b, and b, to whoever adds it together with something else" },
  partition = { type = "string", optional = true, hidden = true, one_of = { "column", "row" },
                doc = "which of a pair of layers this is on a mesh that cuts layers: the first, or the second" },
  weight_initializer = init.option "default U(-1/sqrt(inputs), 1/sqrt(inputs)), as PyTorch",
  bias_initializer   = init.option "default U(-1/sqrt(inputs), 1/sqrt(inputs)), as PyTorch",
}

function Linear:build(opt)
  if opt.skip_bias_add and opt.activation then
    error("Linear: 'activation' is taken of y + b, 'skip_bias_add' leaves b away; give one of them", 3)
  end
  self:param("weight", { opt.outputs, opt.inputs },
    init.resolve(opt.weight_initializer, init.dense_weight, opt.inputs, opt.outputs))
  if opt.bias then
    self:param("bias", { opt.outputs }, init.resolve(opt.bias_initializer, init.dense_bias, opt.inputs))
  end
end

--- x (..., inputs) -> (..., outputs), with skip_bias_add and b; backward: dx is set, dW and db are added to.
function Linear:forward(x)
  local b = self:use "bias"
  if self.opt.skip_bias_add then return ops.linear(x, self:use "weight"), b end
  return ops.linear(x, self:use "weight", b, self.opt.activation)
end

return Linear
