--- A dense layer: y = f(x W' + b). If there is an activation f, the kernel of the product also computes it.
-- @module ganymede.nn.linear
local few_bits = require "ganymede.nn.few_bits"
local functions = require "ganymede.nn.functions"
local init = require "ganymede.nn.initializers"
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"

local Linear = module.class "Linear"

Linear.positional = { "inputs", "outputs", "bias" }
Linear.aliases = { in_features = "inputs", out_features = "outputs" }
Linear.options = {
  inputs  = { type = "integer", min = 1, doc = "the width of x" },
  outputs = { type = "integer", min = 1, doc = "the width of y" },
  bias    = { type = "boolean", default = true, doc = "whether the bias b is added" },
  activation = { type = "string", optional = true, one_of = functions.in_products,
                 doc = "the activation function f, applied in the kernel of the product; default: none" },
  skip_bias_add = { type = "boolean", default = false, hidden = true,
                    doc = "whether the layer returns y without b, and b as a second result, for a caller that adds "
                      .. "both to something else" },
  partition = { type = "string", optional = true, hidden = true, one_of = { "column", "row", "whole" },
                doc = "the place of this layer in a pair, on a mesh that cuts layers; column: the first, row: the "
                  .. "second; whole: 1D tensor parallelism does not cut it" },
  weight_initializer = init.option "the initializer of W; default: U(-1/sqrt(inputs), 1/sqrt(inputs)), as in PyTorch",
  bias_initializer   = init.option "the initializer of b; default: U(-1/sqrt(inputs), 1/sqrt(inputs)), as in PyTorch",
}

function Linear:build(opt)
  if opt.skip_bias_add and opt.activation then
    error("Linear: 'activation' needs the sum with b, and 'skip_bias_add' does not add b; give one of them", 3)
  end
  self:param("weight", { opt.outputs, opt.inputs },
    init.resolve(opt.weight_initializer, init.dense_weight, opt.inputs, opt.outputs))
  if opt.bias then
    self:param("bias", { opt.outputs }, init.resolve(opt.bias_initializer, init.dense_bias, opt.inputs))
  end
end

-- The product of the layer with its own weight, W, and the activation f in its kernel, if f is given. bare: b is not
-- added. A mode of tensor parallelism replaces this method. -> y, and b if it was not added.
function Linear:product(x, f, bare)
  local b = self:use "bias"
  if bare or self.opt.skip_bias_add then return few_bits.linear(self, x), b end
  return few_bits.linear(self, x, b, f)
end

-- The `partition` of the two layers of an adapter (ganymede.nn.lora) on this mesh: of the one that x enters, and of the
-- one whose result has the layout of y.
function Linear:adapter_partitions() return self.opt.partition, self.opt.partition end

-- The sum of the product and what an adapter adds. A magnitude multiplies both, and not b.
local function adapted(self, adapter, x)
  if not adapter:has_magnitude() then
    local y, b = self:product(x)
    return ops.add(y, adapter(x)), b
  end
  local y, b = self:product(x, nil, true)
  y = ops.mul(ops.add(y, adapter(x)), adapter:factor())
  if self.opt.skip_bias_add or not b then return y, b end
  return ops.add(y, b)
end

--- x (..., inputs) -> (..., outputs); with skip_bias_add it also returns b. Backward: dx is set, dW and db are added
-- to. An adapter (gm.lora) adds its own product before the activation.
function Linear:forward(x)
  local adapter, f = self._module.children.lora, self.opt.activation
  if not adapter then return self:product(x, f) end
  local y, b = adapted(self, adapter, x)
  return f and ops[f](y) or y, b
end

Linear.reads_few_bits = Linear.forward -- another forward may read the weight in its own way

return Linear
