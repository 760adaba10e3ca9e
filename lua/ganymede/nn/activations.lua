--- Activations as layers, for Sequential. nn.Linear { activation = ... } is faster, because it needs one pass over
-- memory.
-- @module ganymede.nn.activations
local module = require "ganymede.nn.module"
local ops = require "ganymede.tensor.ops"
local stream = require "ganymede.nn.stream"

local layers = {}

-- Defines a layer without options: x (...) -> op(x), of the same shape.
local function simple(name, op)
  local class = module.class(name)
  class.options = {}
  function class:forward(x) return ops[op](x) end -- luacheck: ignore self
  layers[name] = class
end

simple("ReLU", "relu")
simple("SiLU", "silu")
simple("Tanh", "tanh")
simple("Sigmoid", "sigmoid")

local GELU = module.class "GELU"
GELU.options = {
  approximate = { type = "string", default = "none", one_of = { "none", "tanh" },
                  doc = "the formula; none: the exact one with erf, tanh: the approximation of GPT-2" },
}
--- x (...) -> x Phi(x), of the same shape (Hendrycks and Gimpel 2016).
function GELU:forward(x) return self.opt.approximate == "tanh" and ops.gelu_tanh(x) or ops.gelu(x) end
layers.GELU = GELU

-- Defines a softmax along one dimension: x (...) -> the same shape. If ranks share that dimension, it is gathered
-- first.
local function along(name, op)
  local class = module.class(name)
  class.positional = { "dim" }
  class.options = { dim = { type = "integer", default = -1,
    doc = "the dimension along which the softmax is taken, from 1; -1 is the last" } }
  function class:forward(x) return ops[op](stream.whole(x, self.opt.dim), self.opt.dim) end
  layers[name] = class
end

along("Softmax", "softmax")
along("LogSoftmax", "log_softmax")

return layers
